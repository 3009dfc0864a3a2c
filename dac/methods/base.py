"""What a method is: heads, losses, a score, and memory as buffers, on top of one encoder.

The training loop owns everything else. A method reads pooled features, never the encoder, so any
method can stand inside another (Table 4) and `Network.state_dict()` is the whole state.
"""

# B labeled batch, U unlabeled batch, C known classes, d feature width

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class ViewCounts:
    """How many views of each image a method wants per step."""

    labeled: int
    weak: int
    strong: int


@dataclass(frozen=True)
class Batch:
    """One step's images, normalised; views of one kind lie one after the other in a list."""

    x: list[Tensor]  # weak views, each B x 3 x H x W
    y: Tensor  # B
    x_index: Tensor  # B, positions in the labeled set
    u_weak: list[Tensor]  # each U x 3 x H x W
    u_strong: list[Tensor]
    u_index: Tensor  # U, positions in the pool


@dataclass(frozen=True)
class Views:
    """Pooled features of a batch: one tensor per view, rows as in the batch."""

    x: tuple[Tensor, ...]  # each B x d
    u_weak: tuple[Tensor, ...]  # each U x d
    u_strong: tuple[Tensor, ...]


@dataclass(frozen=True)
class Clock:
    """Where training stands; stages and warm-ups read it."""

    step: int
    steps_per_epoch: int
    steps: int

    @property
    def epoch(self) -> int:
        return self.step // self.steps_per_epoch


class Step:
    """What a method has at hand in one step."""

    def __init__(self, batch: Batch, clock: Clock, encode: Callable[[Tensor], Tensor]) -> None:
        self.batch, self.clock, self.encode = batch, clock, encode
        self.omega: Tensor | None = None
        """DAC's weight of every unlabeled sample, U; set before its objective is asked."""

    @cached_property
    def views(self) -> Views:
        """One forward of [x, u_weak, u_strong], sharing batch-norm statistics, when first asked for
        (docs/protocol.md, "Forward pass")."""
        parts = (self.batch.x, self.batch.u_weak, self.batch.u_strong)
        images = [view for part in parts for view in part]
        features = self.encode(torch.cat(images)).split([len(view) for view in images])
        first, second = len(parts[0]), len(parts[0]) + len(parts[1])
        return Views(features[:first], features[first:second], features[second:])

    def weigh(self, unlabeled: Tensor) -> Tensor:
        """A per-sample unlabeled term with omega on it, Eq. (4)."""
        return unlabeled if self.omega is None else self.omega * unlabeled


@dataclass(frozen=True)
class Sizes:
    """What a method must know to build its heads and memory."""

    feature_dim: int
    num_known: int
    num_labeled: int
    pool: int
    batch: int
    unlabeled_batch: int
    xavier_head: bool
    """How the target head starts, which goes with the backbone (docs/protocol.md, "Heads")."""


class Method(nn.Module):
    """The interface with its defaults; each method file overrides what it needs."""

    views: ViewCounts
    head: nn.Linear  # f_cls, the target head
    settings: Any

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Named, weighted loss terms; a vector has one value per unlabeled sample."""
        raise NotImplementedError

    def start_epoch(self, clock: Clock) -> None:
        """Epoch-level work: choosing inliers, thresholds. Called before the epoch's first step."""

    def finish_step(self) -> None:
        """Called after the backward pass; banks are written here, when nothing reads them."""

    def logits(self, features: Tensor) -> Tensor:
        """The target head's logits: B x d -> B x C."""
        logits: Tensor = self.head(features)
        return logits

    def score(self, features: Tensor) -> Tensor:
        """One number per image, high for inliers: B x d -> B. Default: max softmax."""
        return self.logits(features).float().softmax(dim=1).amax(dim=1)

    def threshold(self, test_scores: Tensor, pool_scores: Tensor) -> Tensor:
        """The published rule: images at or above it are inliers. Default: a fixed confidence."""
        return torch.tensor(self.settings.reject_below)

    def trained_threshold(self) -> Tensor | None:
        """The threshold that training ended with, on the scale of `score`, where there is one."""
        return None

    def agreement(self, features: Tensor) -> Tensor | None:
        """Pairwise agreement of heads per image, B x K x K, where a method has several heads."""
        return None

    def embedding(self, features: Tensor) -> Tensor:
        """What Fig. 5 plots, of length one per image. Default: the pooled feature."""
        return F.normalize(features.float(), dim=1)


class Network(nn.Module):
    """Encoder, optional LayerNorm and method: the one module that is trained and saved."""

    def __init__(self, backbone: nn.Module, method: Method, *, feature_layernorm: bool) -> None:
        super().__init__()
        self.backbone = backbone
        dim = int(backbone.feature_dim)  # type: ignore[arg-type]
        # Release only: the target head, the projection and the heads all read its output.
        self.norm: nn.Module = nn.LayerNorm(dim) if feature_layernorm else nn.Identity()
        self.method = method

    def encode(self, images: Tensor) -> Tensor:
        features: Tensor = self.norm(self.backbone(images))
        return features

    def terms(self, batch: Batch, clock: Clock) -> dict[str, Tensor]:
        return self.method.terms(Step(batch, clock, self.encode))

    def needed_for_evaluation(self, name: str) -> bool:
        """Whether an entry of the state belongs into a finished model file; banks do not."""
        prefixes = [f"{n}." for n, m in self.named_modules() if getattr(m, "training_only", False)]
        return not name.startswith(tuple(prefixes))
