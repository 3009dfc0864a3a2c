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
        """The last epoch's predictions enter the history; its mean becomes the target when full."""
        if clock.epoch > 0:
            mean = self.history.close_epoch(clock.epoch, otherwise=self.target)
            if clock.epoch >= self.settings.history:
                self.target[: self.pool] = mean[: self.pool]
        self.inliers.choose(self.target[: self.pool] >= self.pool_threshold())

    def terms(self, step: Step) -> dict[str, Tensor]:
        joint, is_warm = step.batch.more["joint"], self.is_warm(step.clock)
        features = step.encode(joint.weak[0], frozen=is_warm)
        logits = self.inlier_head(features).float().squeeze(1)
        self.history.note(joint.index, logits.detach().sigmoid())
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

    def pool_threshold(self) -> Tensor:
        return otsu_threshold(self.target[: self.pool])

    def score(self, features: Tensor) -> Tensor:
        logits: Tensor = self.inlier_head(features)
        return logits.float().squeeze(1).sigmoid()

    def threshold(self, test_scores: Tensor, pool_scores: Tensor) -> Tensor:
        """Otsu of the pool's targets as training left them (the benchmark's own rule)."""
        return self.pool_threshold()

    def keeps(self, features: Tensor, index: Tensor) -> Tensor | None:
        return self.target[index] >= self.pool_threshold()


class InlierHistory(nn.Module):
    """Inlier predictions of the last epochs, one column each, for images seen in them."""

    training_only = True
    columns: Tensor
    is_filled: Tensor
    value: Tensor
    seen: Tensor

    def __init__(self, size: int, epochs: int) -> None:
        super().__init__()
        self.register_buffer("columns", torch.zeros(size, epochs))
        self.register_buffer("is_filled", torch.zeros(size, epochs, dtype=torch.bool))
        self.register_buffer("value", torch.zeros(size))
        self.register_buffer("seen", torch.zeros(size, dtype=torch.bool))

    @torch.no_grad()
    def note(self, index: Tensor, value: Tensor) -> None:
        self.value[index] = value
        self.seen[index] = True

    @torch.no_grad()
    def close_epoch(self, done: int, otherwise: Tensor) -> Tensor:
        """File what was noted, as the `done`-th epoch, and return the mean entry of every image.

        An image that the epoch did not draw keeps its older entry; one that was never drawn has
        what `otherwise` says (pools that an epoch does not cover; our choice).
        """
        column = (done - 1) % self.columns.shape[1]
        self.columns[:, column] = torch.where(self.seen, self.value, self.columns[:, column])
        self.is_filled[:, column] |= self.seen
        self.seen.fill_(False)
        count = self.is_filled.sum(dim=1)
        return torch.where(count > 0, self.columns.sum(dim=1) / count.clamp_min(1), otherwise)
