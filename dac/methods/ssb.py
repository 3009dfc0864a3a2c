"""SSB (Fan et al. 2023), the simple but strong baseline: FixMatch on everything, then a detector.

Phase 1 is FixMatch. Phase 2, the last part of training, adds one-vs-all detectors with a nonlinear
head of their own, all negatives of the labels and pseudo-negatives of the pool. Its unlabeled
batches are also FixMatch's, which the original draws again (docs/protocol/baselines.md, "SSB").
"""

# B labeled batch, U unlabeled batch, C known classes

import torch
from torch import Tensor, nn

from dac import losses
from dac.config import SsbSettings
from dac.methods.base import Method, Sizes
from dac.methods.parts.one_vs_all import (
    CLAIMED,
    Detectors,
    all_negatives,
    claims,
    entropy,
    positives,
    squared_difference,
)
from dac.methods.parts.rules import Rule, accepted, at_least
from dac.methods.step import Clock, Step
from dac.models.heads import mlp_head


class Ssb(Method):
    settings: SsbSettings

    def __init__(self, settings: SsbSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.detectors = self.build_mlp(2 * sizes.num_known, sizes)

    def build_head(self, sizes: Sizes) -> nn.Module:
        return self.build_mlp(sizes.num_known, sizes)

    def build_mlp(self, outputs: int, sizes: Sizes) -> nn.Module:
        hidden = self.settings.hidden
        return mlp_head(sizes.feature_dim, hidden, hidden, outputs, is_xavier=sizes.xavier_head)

    def detects(self, clock: Clock) -> bool:
        """Whether training is in phase 2. Before, detectors get no gradient, nor weight decay."""
        return clock.epoch >= self.settings.detector_epoch

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

    def rules(self) -> dict[str, Rule]:
        return {"published": at_least(CLAIMED), "kept": accepted(self.keeps)}

    def keeps(self, features: Tensor, index: Tensor) -> Tensor:
        """Like L_fix: training has no other filter."""
        p = self.logits(features).float().softmax(dim=1)
        return p.amax(dim=1) >= self.settings.tau
