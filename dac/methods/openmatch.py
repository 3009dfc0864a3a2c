"""OpenMatch (Saito et al. 2021): one-vs-all detectors choose what FixMatch may learn from.

L = L_x + L_ova + lambda_em L_em + lambda_socr L_socr; from `start_epoch` on also L_fix on images
that the detector of their predicted class claims, chosen once per epoch by the averaged network.
"""

# B labeled batch, U unlabeled batch, C known classes

import torch
from torch import Tensor, nn

from dac import losses
from dac.config import OpenMatchSettings
from dac.methods.base import Method, Scan, Sizes
from dac.methods.parts.one_vs_all import (
    CLAIMED,
    Detectors,
    claims,
    entropy,
    hard_negative,
    squared_difference,
)
from dac.methods.parts.rules import Rule, at_least
from dac.methods.parts.selection import Selection
from dac.methods.step import Clock, Step


class OpenMatch(Method):
    settings: OpenMatchSettings

    def __init__(
        self, settings: OpenMatchSettings, sizes: Sizes, generator: torch.Generator
    ) -> None:
        super().__init__(settings, sizes, generator)
        self.detectors = nn.Linear(sizes.feature_dim, 2 * sizes.num_known, bias=False)
        self.inliers = Selection("inliers", sizes.pool)

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        if clock.epoch >= max(1, self.settings.start_epoch):
            self.inliers.choose(scan(self.score, averaged=True) > CLAIMED)

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views, y = self.settings, step.views, step.batch.y
        x, (first, second) = torch.cat(views.x), views.u_weak
        rows = [len(x), len(first), len(second)]
        of_x, of_first, of_second = Detectors.of(
            self.detectors(torch.cat([x, first, second]))
        ).split(*rows)
        both_entropies = (entropy(of_first) + entropy(of_second)) / 2
        terms = {
            "supervised": losses.supervised(self.logits(x), y),  # Eq. (2)
            "detectors": hard_negative(of_x, y.repeat(s.labeled_views)),  # L_ova
            "entropy": s.lambda_em * both_entropies,  # L_em
            "consistency": s.lambda_socr * squared_difference(of_first, of_second),  # L_socr
        }
        if step.clock.epoch >= s.start_epoch:
            drawn = step.batch.more["inliers"]
            weak, strong = step.encode_all([drawn.weak[0], drawn.strong[0]])
            terms["unlabeled"] = losses.pseudo_label(  # L_fix
                self.logits(weak), self.logits(strong), tau=s.tau
            )
        return terms

    def score(self, features: Tensor) -> Tensor:
        """a_in of the predicted class."""
        return claims(self, self.detectors, features)

    def rules(self) -> dict[str, Rule]:
        return {"published": at_least(CLAIMED)}
