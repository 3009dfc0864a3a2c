"""Labeled-only: L = L_s, Eq. (2), on weak views of labeled images; the floor of every table."""

import torch
from torch import Tensor

from dac import losses
from dac.methods.base import Method, Sizes
from dac.models.heads import target_head
from dac.settings import LabeledOnlySettings
from dac.step import Step, ViewCounts


class LabeledOnly(Method):
    def __init__(self, sizes: Sizes, settings: LabeledOnlySettings) -> None:
        super().__init__()
        self.settings = settings
        self.head = target_head(sizes.feature_dim, sizes.num_known, is_xavier=sizes.xavier_head)
        self.views = ViewCounts(labeled=settings.labeled_views, weak=0, strong=0)

    def terms(self, step: Step) -> dict[str, Tensor]:
        x = self.logits(torch.cat(step.views.x))
        return {"supervised": losses.supervised(x, step.batch.y)}  # Eq. (2)
