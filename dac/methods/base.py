"""What a method is: heads, losses, a score, and memory as buffers, on top of one encoder.

The training loop owns everything else. A method reads pooled features, never the encoder, so any
method can stand inside another (Table 4) and `Network.state_dict()` is the whole state.
"""

# B batch, C known classes, d feature width

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.models.ema import Ema
from dac.models.statistics import frozen_statistics
from dac.step import Batch, Clock, Draw, Step, ViewCounts


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


class Scan(Protocol):
    def __call__(
        self,
        read: Callable[[Tensor], Tensor],
        *,
        averaged: bool = False,
        weak: bool = True,
        index: Tensor | None = None,
    ) -> Tensor:
        """What `read` makes of the features of every pool image (or those at the positions
        `index`), in evaluation mode: by the live or the averaged weights, of a weak view or of the
        evaluation's."""


class Method(nn.Module):
    """The interface with its defaults; each method file overrides what it needs."""

    views: ViewCounts  # drawn per step
    draws: dict[str, Draw]  # further streams, by name
    head: nn.Module  # f_cls, the target head
    settings: Any

    def __init__(self) -> None:
        super().__init__()
        self.draws = {}

    def views_at(self, clock: Clock) -> ViewCounts:
        """What is drawn in a step, where stages differ."""
        return self.views

    def draws_at(self, clock: Clock) -> dict[str, Draw]:
        """Of `draws`, the streams that a step needs, where stages differ."""
        return self.draws

    def selected(self, stream: str) -> Tensor | None:
        """Which images a stream ("unlabeled" or one of `draws`) draws from during an epoch: a mask
        over the pool (and the labeled images behind it, where they are drawn too); None: all."""
        return None

    @property
    def shared(self) -> ViewCounts:
        """The views in the one forward of `Step.views`. Default: all that are drawn."""
        return self.views

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Named, weighted loss terms; a vector has one value per unlabeled sample (or view)."""
        raise NotImplementedError

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
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

    def accepts(self, features: Tensor) -> Tensor | None:
        """The published rule where it is no threshold on the score: B x d -> B, true if inlier."""
        return None

    def keeps(self, features: Tensor, index: Tensor) -> Tensor | None:
        """Which pool images training takes for inliers, where that is another rule than the
        published one: features and positions in the pool -> B."""
        return None

    def averages(self, clock: Clock) -> bool:
        """Whether the averaged weights lag behind the live ones; else they are kept equal."""
        return True

    def is_selectable(self, clock: Clock) -> bool:
        """Whether a network at this point may become the best one."""
        return True

    def trained_thresholds(self) -> dict[str, Tensor]:
        """Thresholds that training ended with, on the scale of `score`: `memory`, and
        `memory_upper` where inliers and outliers have one each."""
        return {}

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

    def encode(self, images: Tensor, *, frozen: bool = False) -> Tensor:
        with frozen_statistics(self.backbone, when=frozen):
            features: Tensor = self.norm(self.backbone(images))
        return features

    def terms(self, batch: Batch, clock: Clock, ema: Ema | None = None) -> dict[str, Tensor]:
        step = Step(batch, clock, self.encode, shared=self.method.shared, ema=ema)
        return self.method.terms(step)

    def needed_for_evaluation(self, name: str) -> bool:
        """Whether an entry of the state belongs into a finished model file; banks do not."""
        prefixes = [f"{n}." for n, m in self.named_modules() if getattr(m, "training_only", False)]
        return not name.startswith(tuple(prefixes))
