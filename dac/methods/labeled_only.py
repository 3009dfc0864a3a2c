"""Labeled-only: L = L_s, Eq. (2), on weak views of labeled images; the baseline of every table."""

import torch
from torch import Tensor

from dac import losses
from dac.config import LabeledOnlySettings
from dac.methods.base import Method
from dac.methods.step import Step


class LabeledOnly(Method):
    settings: LabeledOnlySettings

    def terms(self, step: Step) -> dict[str, Tensor]:
        x = self.logits(torch.cat(step.views.x))
        return {"supervised": losses.supervised(x, step.batch.y)}  # Eq. (2)
