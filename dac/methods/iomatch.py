"""IOMatch (Li et al. 2023): inliers and outliers in one soft target of C + 1 classes.

L = L_s + L_mb + L_ui + L_op. Detectors split a prediction into known classes and one for outliers;
an open-set head learns it on all unlabeled images, the target head on confident inliers only. Both
targets stay soft. Alignment is off in the benchmark and on in IOMatch's own CIFAR-100 configs
(docs/protocol/baselines.md, "IOMatch").
"""

# B labeled batch, U unlabeled batch, C known classes

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac import losses
from dac.config import IOMatchSettings
from dac.methods.base import Method, Sizes
from dac.methods.parts.alignment import QueueAlignment
from dac.methods.parts.one_vs_all import Detectors, hard_negative, open_set_distribution
from dac.methods.parts.rules import Rule, accepted
from dac.methods.step import Step
from dac.models.heads import projection, xavier


class IOMatch(Method):
    settings: IOMatchSettings

    def __init__(self, settings: IOMatchSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.projection = projection(sizes.feature_dim, settings.proj_dim)
        self.detectors = xavier(nn.Linear(settings.proj_dim, 2 * sizes.num_known, bias=False))
        self.open_head = xavier(nn.Linear(settings.proj_dim, sizes.num_known + 1))
        self.alignment = (
            QueueAlignment(settings.alignment_batches, sizes.num_known)
            if settings.alignment_batches
            else None
        )
        if self.alignment is not None:
            self.alignment.training_only = False  # `keeps` reads it

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views, y = self.settings, step.views, step.batch.y
        x, weak, strong = torch.cat(views.x), views.u_weak[0], views.u_strong[0]
        z_x, z_weak, z_strong = self.projection(torch.cat([x, weak, strong])).split(
            [len(x), len(weak), len(strong)]
        )
        with torch.no_grad():
            p = self.logits(weak).float().softmax(dim=1)
            if self.alignment is not None:
                p = self.alignment(p)
            q = open_set_distribution(p, Detectors.of(self.detectors(z_weak)))
        of_inliers = is_inlier(q) * losses.confident_cross_entropy(
            p, self.logits(strong), tau=s.tau
        )
        labels = y.repeat(s.labeled_views)
        terms = {
            "supervised": losses.supervised(self.logits(x), y),  # Eq. (2)
            "detectors": hard_negative(Detectors.of(self.detectors(z_x)), labels),  # L_mb
            "unlabeled": s.lambda_u * of_inliers,  # L_ui
        }
        if step.clock.epoch >= s.open_start_epoch:
            open_set = losses.confident_cross_entropy(q, self.open_head(z_strong), tau=s.open_tau)
            terms["open_set"] = s.lambda_open * open_set  # L_op
        return terms

    def score(self, features: Tensor) -> Tensor:
        """1 - q_(C+1) of the open-set head."""
        return 1 - self.open_set(features)[:, -1]

    def rules(self) -> dict[str, Rule]:
        return {"published": accepted(self.is_known), "kept": accepted(self.keeps)}

    def is_known(self, features: Tensor, index: Tensor) -> Tensor:
        """Whether the open-set head's argmax is a known class."""
        return self.open_set(features).argmax(dim=1) < self.sizes.num_known

    def open_set(self, features: Tensor) -> Tensor:
        logits: Tensor = self.open_head(self.projection(features))
        return logits.float().softmax(dim=1)

    def keeps(self, features: Tensor, index: Tensor) -> Tensor:
        """Like L_ui: less than half of the target is for outliers."""
        p = self.logits(features).float().softmax(dim=1)
        if self.alignment is not None:
            p = self.alignment.read(p)
        return is_inlier(
            open_set_distribution(p, Detectors.of(self.detectors(self.projection(features))))
        )

    def embedding(self, features: Tensor) -> Tensor:
        return F.normalize(self.projection(features).float(), dim=1)


def is_inlier(q: Tensor) -> Tensor:
    """Whether less than half of the target is for outliers: U x (C + 1) -> U."""
    return q[:, -1] < 0.5
