"""MixMatch (Berthelot et al. 2019): guessed and sharpened labels, and MixUp of everything.

L = L_X + lambda_u ramp L_U. Two weak views, no strong one. The release sets lambda_u to 1, which
makes L_U negligible, and does not interleave (docs/protocol/baselines.md, "MixMatch").
"""

# B labeled batch, U unlabeled batch; 2 U mixed rows of both views

import torch
from torch import Tensor

from dac.config import MixMatchSettings
from dac.methods.base import Method
from dac.methods.parts.mixup import guess_and_mix, ramp
from dac.methods.step import Step


class MixMatch(Method):
    settings: MixMatchSettings

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
