"""SSB (Fan et al. 2023), the simple but strong baseline: FixMatch on everything, then a detector.

Stage 1 is FixMatch. Stage 2, the last part of training, adds one-vs-all detectors with a non-linear
head of their own, all negatives of the labels and pseudo-negatives of the pool. Its unlabeled
batches are also FixMatch's, which the original draws once more (docs/protocol.md, "SSB").
"""

# B labeled batch, U unlabeled batch, C known classes

import torch
from torch import Tensor

from dac import losses
from dac.methods.base import Method, Sizes
from dac.models.heads import mlp_head
from dac.one_vs_all import (
    CLAIMED,
    Detectors,
    all_negatives,
    claims,
    entropy,
    positives,
    squared_difference,
)
from dac.settings import SsbSettings
from dac.step import Clock, Step, ViewCounts


class Ssb(Method):
    def __init__(self, sizes: Sizes, settings: SsbSettings) -> None:
        super().__init__()
        self.settings = settings
        widths = (sizes.feature_dim, settings.hidden, settings.hidden)
        self.head = mlp_head(*widths, sizes.num_known, is_xavier=sizes.xavier_head)
        self.detectors = mlp_head(*widths, 2 * sizes.num_known, is_xavier=sizes.xavier_head)
        count = settings.labeled_views
        self.views = ViewCounts(labeled=count, labeled_strong=count, weak=2, strong=1)

    def detects(self, clock: Clock) -> bool:
        """Stage 2. Before it the detectors get no gradient at all, not even weight decay."""
        return clock.epoch >= self.settings.detector_epoch

    def views_at(self, clock: Clock) -> ViewCounts:
        return self.views if self.detects(clock) else ViewCounts(labeled=1, weak=1, strong=1)

    def is_selectable(self, clock: Clock) -> bool:
        """The best network must have a detector."""
        return self.detects(clock)

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views, y = self.settings, step.views, step.batch.y
        x, weak, strong = torch.cat(views.x), views.u_weak[0], views.u_strong[0]
        unlabeled = losses.pseudo_label(self.logits(weak), self.logits(strong), tau=s.tau)
        terms = {
            "supervised": losses.supervised(self.logits(x), y),  # L_x
            "unlabeled": s.lambda_u * unlabeled,  # L_fix
        }
        return terms | self.detection(step) if self.detects(step.clock) else terms

    def detection(self, step: Step) -> dict[str, Tensor]:
        """L_ova, L_em, L_socr and L_pn."""
        s, views = self.settings, step.views
        parts = (torch.cat(views.x), torch.cat(views.x_strong), *views.u_weak, views.u_strong[0])
        of_x, of_x_strong, weak, second, strong = Detectors.of(
            self.detectors(torch.cat(parts))
        ).split(*map(len, parts))
        y = step.batch.y.repeat(len(views.x))
        negatives = (all_negatives(of_x, y) + all_negatives(of_x_strong, y)) / 2
        is_negative = weak.log_in.detach().exp() <= s.negative_below
        return {
            "detectors": positives(of_x, y) + negatives,  # L_ova
            "entropy": s.lambda_em * (entropy(weak) + entropy(second)) / 2,  # L_em
            "consistency": s.lambda_socr * squared_difference(weak, second),  # L_socr
            "pseudo_negatives": -(is_negative * strong.log_out).sum(dim=1),  # L_pn
        }

    def score(self, features: Tensor) -> Tensor:
        """a_in of the predicted class."""
        return claims(self, self.detectors, features)

    def threshold(self, test_scores: Tensor, pool_scores: Tensor) -> Tensor:
        return torch.tensor(CLAIMED)

    def keeps(self, features: Tensor, index: Tensor) -> Tensor | None:
        """As L_fix: training has no other filter."""
        p = self.logits(features).float().softmax(dim=1)
        return p.amax(dim=1) >= self.settings.tau
