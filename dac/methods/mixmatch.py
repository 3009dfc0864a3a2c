"""MixMatch (Berthelot et al. 2019): guessed labels, sharpened, and MixUp of everything.

L = L_X + lambda_u ramp L_U. Two weak views, no strong one. The release sets lambda_u to 1, which
leaves next to nothing of L_U, and does not interleave (docs/protocol.md, "MixMatch").
"""

# B labeled batch, U unlabeled batch; 2 U mixed rows of both views

import torch
from torch import Tensor

from dac.methods.base import Method, Sizes
from dac.mixup import guess_and_mix, ramp
from dac.models.heads import target_head
from dac.settings import MixMatchSettings
from dac.step import Step, ViewCounts


class MixMatch(Method):
    def __init__(
        self, sizes: Sizes, settings: MixMatchSettings, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.settings, self.generator = settings, generator
        self.head = target_head(sizes.feature_dim, sizes.num_known, is_xavier=sizes.xavier_head)
        self.views = ViewCounts(labeled=settings.labeled_views, weak=2, strong=0)

    @property
    def shared(self) -> ViewCounts:
        """Nothing is looked at unmixed."""
        return ViewCounts(labeled=0, weak=0, strong=0)

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, y = self.settings, step.batch.y
        mixed = guess_and_mix(self, step, self.generator, interleaved=s.interleaved)
        weight = s.lambda_u * ramp(step.clock.step, step.clock.steps, s.rampup)
        unlabeled = mixed.squared_error()  # MixMatch Eq. (4)
        if step.omega is not None:  # labeled rows weigh 1, both views of an image the same
            labeled = torch.ones_like(y, dtype=step.omega.dtype)
            omega = mixed.mix(torch.cat([labeled, step.omega, step.omega]))
            unlabeled = omega[len(y) :] * unlabeled
        return {
            "supervised": mixed.supervised(),  # MixMatch Eq. (3)
            "unlabeled": weight * unlabeled,
        }
