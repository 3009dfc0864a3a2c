"""One step of training as a method sees it: images, time, and the encoder to run them through."""

# B labeled batch, U unlabeled batch, d feature width

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from dac.models.ema import Ema


@dataclass(frozen=True)
class ViewCounts:
    """How many views of each image: wanted per step, or in one forward."""

    labeled: int
    weak: int
    strong: int
    labeled_strong: int = 0

    def __or__(self, other: "ViewCounts") -> "ViewCounts":
        """Enough for both."""
        names = [field.name for field in fields(self)]
        return ViewCounts(**{n: max(getattr(self, n), getattr(other, n)) for n in names})


@dataclass(frozen=True)
class Draw:
    """A further stream of pool images: how many per step, and the views of each."""

    images: int
    weak: int = 0
    strong: int = 0
    with_labeled: bool = False
    """Draw labeled images too: their positions follow those of the pool."""


@dataclass(frozen=True)
class Drawn:
    """One step's images of such a stream."""

    index: Tensor  # positions in the pool
    weak: list[Tensor]
    strong: list[Tensor]


@dataclass(frozen=True)
class Batch:
    """One step's images, normalised; views of one kind lie one after the other in a list."""

    x: list[Tensor]  # weak views, each B x 3 x H x W
    y: Tensor  # B
    x_index: Tensor  # B, positions in the labeled set
    u_weak: list[Tensor]  # each U x 3 x H x W
    u_strong: list[Tensor]
    u_index: Tensor  # U, positions in the pool
    x_strong: list[Tensor] = field(default_factory=list)
    more: dict[str, Drawn] = field(default_factory=dict)
    """Of the further streams that the method draws from."""


@dataclass(frozen=True)
class Views:
    """Pooled features of a batch: one tensor per view, rows as in the batch."""

    x: tuple[Tensor, ...]  # each B x d
    u_weak: tuple[Tensor, ...]  # each U x d
    u_strong: tuple[Tensor, ...]
    x_strong: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Clock:
    """Where training stands; stages and warm-ups read it."""

    step: int
    steps_per_epoch: int
    steps: int

    @property
    def epoch(self) -> int:
        return self.step // self.steps_per_epoch


class Encode(Protocol):
    def __call__(self, images: Tensor, *, frozen: bool = False) -> Tensor:
        """Pooled features; `frozen` leaves the running statistics of batch norm alone."""


class Step:
    """What a method has at hand in one step."""

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
        """DAC's weight of every unlabeled sample, U; set before its objective is asked."""

    @cached_property
    def views(self) -> Views:
        """One forward of [x, u_weak, u_strong], sharing batch-norm statistics, when first asked for
        (docs/protocol.md, "Forward pass"). The method says how many of each (`Method.shared`)."""
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
        """One forward of several batches, which share batch-norm statistics."""
        features = self.encode(torch.cat(images), frozen=frozen)
        return features.split([len(each) for each in images])

    @property
    def has_views(self) -> bool:
        """Whether the forward of `views` is done, and with it this step's running statistics."""
        return "views" in self.__dict__

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block the network carries its averaged weights and makes no gradients."""
        assert self.ema is not None
        try:
            with torch.no_grad(), self.ema.swapped_in():
                torch.clear_autocast_cache()  # which holds the live weights
                yield
        finally:
            torch.clear_autocast_cache()

    def weigh(self, unlabeled: Tensor) -> Tensor:
        """A per-sample unlabeled term with omega on it, Eq. (4)."""
        return unlabeled if self.omega is None else self.omega * unlabeled
