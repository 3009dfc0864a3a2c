"""MTCF (Yu et al. 2020), the multi-task curriculum: an inlier head learns from noisy labels.

L = L_x + L_d + lambda_u ramp L_u. A binary head learns that labeled images are inliers and the
others are not; its own averaged predictions replace these targets epoch by epoch. MixMatch runs on
the images whose target passes Otsu's threshold. As in the benchmark of DAC's authors.
"""

# B labeled batch, U unlabeled batch, C known classes, N pool, n labeled images

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.config import MtcfSettings
from dac.methods.base import Method, Scan, Sizes
from dac.methods.parts.mixup import guess_and_mix, ramp
from dac.methods.parts.rules import Rule, accepted, at_least
from dac.methods.parts.selection import Selection
from dac.methods.step import Clock, Step
from dac.models.heads import xavier
from dac.otsu import otsu_threshold


class Mtcf(Method):
    target: Tensor
    tau_pool: Tensor
    is_drawn: Tensor

    settings: MtcfSettings

    def __init__(self, settings: MtcfSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.inlier_head = xavier(nn.Linear(sizes.feature_dim, 1))
        self.inliers = Selection("unlabeled", sizes.pool)
        # Inlier targets of the pool, 0 at first, followed by those of the labeled images, always 1.
        self.register_buffer("target", torch.ones(sizes.pool + sizes.num_labeled))
        self.target[: sizes.pool] = 0
        self.register_buffer("tau_pool", torch.zeros(()))  # Otsu's threshold of the pool's targets
        self.register_buffer("is_drawn", torch.zeros(sizes.pool, dtype=torch.bool))
        self.history = InlierHistory(
            sizes.pool + sizes.num_labeled, settings.history, settings.undrawn
        )

    def is_warm(self, clock: Clock) -> bool:
        return clock.epoch >= self.settings.warmup_epochs

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        """Once the history is full, its mean becomes the target of every image drawn so far."""
        target = self.target[: self.sizes.pool]
        if clock.epoch >= self.settings.history:
            mean, is_drawn = self.history.mean()
            self.is_drawn.copy_(is_drawn[: self.sizes.pool])
            target.copy_(torch.where(self.is_drawn, mean[: self.sizes.pool], target))
            self.tau_pool.copy_(otsu_threshold(target, self.is_drawn))
        self.inliers.choose(self.passes())
        self.history.begin(clock.epoch)

    def passes(self) -> Tensor:
        """Pool images considered inliers; one never drawn is no outlier (our choice): N."""
        return (self.target[: self.sizes.pool] >= self.tau_pool) | ~self.is_drawn

    def terms(self, step: Step) -> dict[str, Tensor]:
        joint, is_warm = step.batch.more["joint"], self.is_warm(step.clock)
        features = step.encode(joint.weak[0], frozen=is_warm)
        logits = self.inlier_head(features).float().squeeze(1)
        self.history.note(joint.index, logits.detach().sigmoid(), step.clock.epoch)
        terms = {
            "inliers": F.binary_cross_entropy_with_logits(logits, self.target[joint.index])  # L_d
        }
        return terms | self.mixmatch(step) if is_warm else terms

    def mixmatch(self, step: Step) -> dict[str, Tensor]:
        s = self.settings
        mixed = guess_and_mix(self, step, self.generator, interleaved=True)
        weight = s.lambda_u * ramp(step.clock.step, step.clock.steps, s.rampup)
        return {
            "supervised": mixed.supervised(),  # MixMatch Eq. (3)
            "unlabeled": weight * mixed.squared_error(),  # MixMatch Eq. (4)
        }

    def score(self, features: Tensor) -> Tensor:
        logits: Tensor = self.inlier_head(features)
        return logits.float().squeeze(1).sigmoid()

    def rules(self) -> dict[str, Rule]:
        """Otsu's threshold of the pool's targets at the end of training (as in the benchmark)."""
        kept = accepted(lambda features, index: self.passes()[index])
        return {"published": at_least(self.tau_pool), "kept": kept}


class InlierHistory(nn.Module):
    """Inlier predictions of the last epochs, one column per epoch."""

    training_only = True
    columns: Tensor
    is_filled: Tensor

    def __init__(self, size: int, epochs: int, undrawn: Literal["older", "zero"]) -> None:
        super().__init__()
        self.undrawn = undrawn
        self.register_buffer("columns", torch.zeros(size, epochs))
        self.register_buffer("is_filled", torch.zeros(size, epochs, dtype=torch.bool))

    @torch.no_grad()
    def begin(self, epoch: int) -> None:
        """Initialize the epoch's column, for images that are not drawn."""
        if self.undrawn == "zero":
            column = epoch % self.columns.shape[1]
            self.columns[:, column] = 0
            self.is_filled[:, column] = True

    @torch.no_grad()
    def note(self, index: Tensor, value: Tensor, epoch: int) -> None:
        column = epoch % self.columns.shape[1]
        self.columns[index, column] = value
        self.is_filled[:, column].index_fill_(0, index, True)  # an assignment would wait

    def mean(self) -> tuple[Tensor, Tensor]:
        """Return the mean of every image's entries, and whether it has any."""
        count = self.is_filled.sum(dim=1)
        return self.columns.sum(dim=1) / count.clamp_min(1), count > 0
