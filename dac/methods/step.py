"""One training step as a method sees it: images, time, and the encoder to run them through."""

# B labeled batch, U unlabeled batch, d feature width

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from dac.config import ViewCounts
from dac.models.ema import Ema


@dataclass(frozen=True)
class Drawn:
    """The images of an additional stream (`Phase.streams`) in one step."""

    index: Tensor  # positions in the pool
    weak: list[Tensor]
    strong: list[Tensor]


@dataclass(frozen=True)
class Batch:
    """The images of one step, normalized; the views of one kind are a list."""

    x: list[Tensor]  # weak views, each B x 3 x H x W
    y: Tensor  # B
    x_index: Tensor  # B, positions in the labeled set
    u_weak: list[Tensor]  # each U x 3 x H x W
    u_strong: list[Tensor]
    u_index: Tensor  # U, positions in the pool
    x_strong: list[Tensor] = field(default_factory=list)
    more: dict[str, Drawn] = field(default_factory=dict)
    """Images of the additional streams, by name."""


@dataclass(frozen=True)
class Views:
    """Pooled features of a batch: one tensor per view, rows as in the batch."""

    x: tuple[Tensor, ...]  # each B x d
    u_weak: tuple[Tensor, ...]  # each U x d
    u_strong: tuple[Tensor, ...]
    x_strong: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Clock:
    """Position in training; phases and warm-ups depend on it."""

    step: int
    steps_per_epoch: int
    steps: int

    @property
    def epoch(self) -> int:
        return self.step // self.steps_per_epoch


class Encode(Protocol):
    def __call__(self, images: Tensor, *, frozen: bool = False) -> Tensor:
        """Return pooled features; `frozen` keeps the running statistics of batch norm unchanged."""


class Step:
    """What a method can use in one step."""

    def __init__(
        self,
        batch: Batch,
        clock: Clock,
        encode: Encode,
        *,
        shared: ViewCounts,
        ema: Ema | None = None,
    ) -> None:
        self.batch, self.clock, self.encode = batch, clock, encode
        self.shared, self.ema = shared, ema
        self.omega: Tensor | None = None
        """DAC's weight of every unlabeled sample, U; set before its objective is called."""

    @cached_property
    def views(self) -> Views:
        """One forward pass of [x, u_weak, u_strong] on first use, with shared batch-norm statistics
        (docs/protocol/training.md, "Forward pass"). `Phase.shared` says how many of each."""
        parts = (
            self.batch.x[: self.shared.labeled],
            self.batch.x_strong[: self.shared.labeled_strong],
            self.batch.u_weak[: self.shared.weak],
            self.batch.u_strong[: self.shared.strong],
        )
        features = iter(self.encode_all([view for part in parts for view in part]))
        x, x_strong, u_weak, u_strong = (tuple(islice(features, len(part))) for part in parts)
        return Views(x, u_weak, u_strong, x_strong)

    def encode_all(self, images: list[Tensor], *, frozen: bool = False) -> tuple[Tensor, ...]:
        """One forward pass of several batches, which share batch-norm statistics."""
        features = self.encode(torch.cat(images), frozen=frozen)
        return features.split([len(each) for each in images])

    @property
    def has_views(self) -> bool:
        """Whether the forward pass of `views` is done, and the running statistics are updated."""
        return "views" in self.__dict__

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block, the network has its averaged weights and computes no gradients."""
        assert self.ema is not None
        try:
            with torch.no_grad(), self.ema.swapped_in():
                torch.clear_autocast_cache()  # which holds the live weights
                yield
        finally:
            torch.clear_autocast_cache()

    def weigh(self, unlabeled: Tensor) -> Tensor:
        """Multiply a per-sample unlabeled term by omega, Eq. (4)."""
        return unlabeled if self.omega is None else self.omega * unlabeled
