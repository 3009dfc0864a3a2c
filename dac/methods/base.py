"""What a method is: heads on one encoder, losses, a score for outliers, and memory in buffers.

The training loop owns everything else: encoder, optimizer, averaged weights, batches, checkpoints.
A method reads pooled features, never the encoder itself, so any method can be used inside another
(Table 4), and `Network.state_dict()` is the whole state of a run.

To write one, subclass `Method`, annotate `settings` with a settings class whose `phase` says what a
step draws, and return the loss terms of a step from `terms`. Everything else has a default.
"""

# B batch, C known classes, d feature width

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.methods.parts.rules import Rule, at_least
from dac.methods.step import Clock, Step
from dac.models.heads import target_head


@dataclass(frozen=True)
class Sizes:
    """What a method needs to know to build its heads and memory."""

    feature_dim: int
    num_known: int
    num_labeled: int
    pool: int
    batch: int
    unlabeled_batch: int
    xavier_head: bool
    """Whether the target head starts with Xavier's weights (docs/protocol/training.md)."""


class Scan(Protocol):
    def __call__(
        self,
        read: Callable[[Tensor], Tensor],
        *,
        averaged: bool = False,
        weak: bool = True,
        index: Tensor | None = None,
    ) -> Tensor:
        """Apply `read` to the features of every pool image (or of those at the positions `index`).

        The network is in evaluation mode, with its live or averaged weights, and sees a weak view
        or the evaluation view.
        """


class Method(nn.Module):
    """The interface with its defaults; a method overrides what it needs."""

    settings: Any
    """Annotate this with the settings class of the method."""
    head: nn.Module | None
    """f_cls, the target head."""

    def __init__(self, settings: Any, sizes: Sizes, generator: torch.Generator) -> None:
        """`generator` is for the method's own draws, here and in its steps; it is saved."""
        super().__init__()
        self.settings, self.sizes, self.generator = settings, sizes, generator
        self.head = self.build_head(sizes)

    def build_head(self, sizes: Sizes) -> nn.Module | None:
        """The target head: one linear layer."""
        return target_head(sizes.feature_dim, sizes.num_known, is_xavier=sizes.xavier_head)

    # --- training ---------------------------------------------------------------------------------

    def terms(self, step: Step) -> dict[str, Tensor]:
        """Named, weighted loss terms; a vector has one value per unlabeled sample (or view)."""
        raise NotImplementedError

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        """Choose inliers or thresholds. Called before the first step of every epoch."""

    # --- evaluation -------------------------------------------------------------------------------

    def logits(self, features: Tensor) -> Tensor:
        """The target head's logits: B x d -> B x C."""
        assert self.head is not None
        logits: Tensor = self.head(features)
        return logits

    def score(self, features: Tensor) -> Tensor:
        """One number per image, high for inliers: B x d -> B. Default: max softmax."""
        return self.logits(features).float().softmax(dim=1).amax(dim=1)

    def rules(self) -> dict[str, Rule]:
        """Rules that separate inliers from outliers, by name (dac/methods/parts/rules.py).

        `published` is the method's own rule and is required. `memory` and `memory_upper` are
        thresholds at the end of training; `kept` is what training considers inliers in the pool,
        if that differs from the published rule.
        """
        return {"published": at_least(self.settings.reject_below)}

    def embedding(self, features: Tensor) -> Tensor:
        """What Fig. 5 plots, one unit vector per image. Default: the pooled feature."""
        return F.normalize(features.float(), dim=1)

    def agreement(self, features: Tensor) -> Tensor | None:
        """Pairwise agreement of heads per image, B x K x K, if a method has several heads."""
        return None
