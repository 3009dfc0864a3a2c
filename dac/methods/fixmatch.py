"""FixMatch (Sohn et al. 2020): confident predictions on weak views label the strong views.

L = L_s + lambda_u L_u, Eqs. (1)-(3). The release's configs use soft pseudo-labels
(`hard_label: false`), although FixMatch and the paper's Eq. (3) say one-hot
(docs/protocol.md, "FixMatch and labeled-only").
"""

import torch
from torch import Tensor

from dac import losses
from dac.methods.base import Batch, Clock, Method, Sizes, ViewCounts, Views
from dac.models.heads import target_head
from dac.settings import FixMatchSettings


class FixMatch(Method):
    def __init__(self, sizes: Sizes, settings: FixMatchSettings) -> None:
        super().__init__()
        self.settings = settings
        self.head = target_head(sizes.feature_dim, sizes.num_known, xavier=sizes.xavier_head)
        self.views = ViewCounts(labeled=settings.labeled_views, weak=1, strong=1)

    def terms(self, views: Views, batch: Batch, clock: Clock) -> dict[str, Tensor]:
        s = self.settings
        terms = {"supervised": losses.supervised(self.logits(views.x), batch.y)}  # Eq. (2)
        if clock.epoch >= s.start_epoch:
            weak, strong = self.logits(views.u_weak), self.logits(views.u_strong)
            terms["unlabeled"] = s.lambda_u * losses.pseudo_label(  # Eq. (3)
                weak, strong, tau=s.tau, hard=s.hard_label
            )
        return terms

    def threshold(self, test_scores: Tensor) -> Tensor:
        return torch.tensor(self.settings.reject_below)
