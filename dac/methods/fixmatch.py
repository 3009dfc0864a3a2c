"""FixMatch (Sohn et al. 2020): confident predictions on weak views label the strong views.

L = L_s + lambda_u L_u, Eqs. (1)-(3). The release's configs use soft pseudo-labels
(`hard_label: false`), although FixMatch and the paper's Eq. (3) say one-hot
(docs/protocol/baselines.md, "FixMatch and labeled-only").
"""

import torch
from torch import Tensor

from dac import losses
from dac.config import FixMatchSettings
from dac.methods.base import Method
from dac.methods.step import Step


class FixMatch(Method):
    settings: FixMatchSettings

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views = self.settings, step.views
        x = self.logits(torch.cat(views.x))
        terms = {"supervised": losses.supervised(x, step.batch.y)}  # Eq. (2)
        if step.clock.epoch >= s.start_epoch:
            weak, strong = self.logits(views.u_weak[0]), self.logits(views.u_strong[0])
            unlabeled = losses.pseudo_label(weak, strong, tau=s.tau, hard=s.hard_label)
            terms["unlabeled"] = s.lambda_u * step.weigh(unlabeled)  # Eq. (3), Eq. (4)
        return terms
