"""MTCF (Yu et al. 2020), the multi-task curriculum: is it an inlier, learned from noisy labels.

L = L_x + L_d + lambda_u ramp L_u. A binary head learns that labeled images are inliers and the
others are not; its own averaged predictions replace these targets epoch by epoch. MixMatch runs on
the images whose target passes Otsu's threshold. As in the benchmark of DAC's authors.
"""

# B labeled batch, U unlabeled batch, C known classes, N pool, n labeled images

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.methods.base import Clock, Draw, Method, Scan, Sizes, Step, ViewCounts
from dac.mixup import draw_mix, forward_mixed, guess, ramp
from dac.models.heads import target_head, xavier
from dac.otsu import otsu_threshold
from dac.selection import Selection
from dac.settings import MtcfSettings


class Mtcf(Method):
    target: Tensor
    tau_pool: Tensor

    def __init__(self, sizes: Sizes, settings: MtcfSettings, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.generator, self.pool = settings, generator, sizes.pool
        self.head = target_head(sizes.feature_dim, sizes.num_known, is_xavier=sizes.xavier_head)
        self.inlier_head = xavier(nn.Linear(sizes.feature_dim, 1))
        self.views = ViewCounts(labeled=settings.labeled_views, weak=2, strong=0)
        self.draws = {"joint": Draw(sizes.batch, weak=1, with_labeled=True)}
        self.inliers = Selection(sizes.pool)
        # Inlier targets of the pool, 0 at first, and behind it of the labeled images, always 1.
        targets = [torch.zeros(sizes.pool), torch.ones(sizes.num_labeled)]
        self.register_buffer("target", torch.cat(targets))
        self.register_buffer("tau_pool", torch.zeros(()))  # Otsu's of the pool's targets
        self.history = InlierHistory(sizes.pool + sizes.num_labeled, settings.history)

    def is_warm(self, clock: Clock) -> bool:
        return clock.epoch >= self.settings.warmup_epochs

    def views_at(self, clock: Clock) -> ViewCounts:
        return self.views if self.is_warm(clock) else ViewCounts(labeled=0, weak=0, strong=0)

    def is_selectable(self, clock: Clock) -> bool:
        """Before it the target head has learned nothing."""
        return self.is_warm(clock)

    def selected(self, stream: str) -> Tensor | None:
        return self.inliers.mask if stream == "unlabeled" else None

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        """When the history is full its mean becomes the target."""
        if clock.epoch >= self.settings.history:
            self.target[: self.pool] = self.history.mean(otherwise=self.target)[: self.pool]
        self.tau_pool.copy_(otsu_threshold(self.target[: self.pool]))
        self.inliers.choose(self.target[: self.pool] >= self.tau_pool)

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
        s, views, y = self.settings, step.batch.u_weak, step.batch.y
        guessed = guess(self, step, views, s.temperature)  # MixMatch Eqs. (6)-(7)
        mix = draw_mix(len(y) + sum(map(len, views)), s.alpha, self.generator, y.device)
        mixed = forward_mixed(self, step, views, guessed, mix, interleaved=True)
        weight = s.lambda_u * ramp(step.clock.step, step.clock.steps, s.rampup)
        return {
            "supervised": mixed.supervised(),  # MixMatch Eq. (3)
            "unlabeled": weight * mixed.squared_error(),  # MixMatch Eq. (4)
        }

    def score(self, features: Tensor) -> Tensor:
        logits: Tensor = self.inlier_head(features)
        return logits.float().squeeze(1).sigmoid()

    def threshold(self, test_scores: Tensor, pool_scores: Tensor) -> Tensor:
        """Otsu of the pool's targets as training left them (the benchmark's own rule)."""
        return self.tau_pool

    def keeps(self, features: Tensor, index: Tensor) -> Tensor | None:
        return self.target[index] >= self.tau_pool


class InlierHistory(nn.Module):
    """Inlier predictions of the last epochs, one column each, for images seen in them."""

    training_only = True
    columns: Tensor
    is_filled: Tensor

    def __init__(self, size: int, epochs: int) -> None:
        super().__init__()
        self.register_buffer("columns", torch.zeros(size, epochs))
        self.register_buffer("is_filled", torch.zeros(size, epochs, dtype=torch.bool))

    @torch.no_grad()
    def note(self, index: Tensor, value: Tensor, epoch: int) -> None:
        """In place of what an image had `epochs` ago; one that is not drawn keeps that entry."""
        column = epoch % self.columns.shape[1]
        self.columns[index, column] = value
        self.is_filled[index, column] = True

    def mean(self, otherwise: Tensor) -> Tensor:
        """Of every image's entries; of an image that was never drawn what `otherwise` says (pools
        that an epoch does not cover; our choice)."""
        count = self.is_filled.sum(dim=1)
        return torch.where(count > 0, self.columns.sum(dim=1) / count.clamp_min(1), otherwise)
