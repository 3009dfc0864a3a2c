"""UAGreg (Kong et al. 2024): unknown-aware graphs, and a second head for uncertainty.

L = L_s + L_o + lambda_u L_u + lambda_g L_g. Two moving thresholds on the second head's confidence
mark outliers and inliers; the average outlier is pushed to a flat prediction, inliers get
pseudo-labels, and a graph connects images of similar prediction and equal status.
"""

# B labeled batch, U unlabeled batch, C known classes

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac import losses
from dac.config import UAGregSettings
from dac.methods.base import Method, Scan, Sizes
from dac.methods.parts.graphs import graph_contrast, pseudo_label_graph
from dac.methods.parts.mixture import mixture_means
from dac.methods.parts.rules import Rule, at_least, otsu_of_test
from dac.methods.step import Clock, Step
from dac.models.heads import leaky_projection, xavier


class UAGreg(Method):
    thresholds: Tensor

    settings: UAGregSettings

    def __init__(self, settings: UAGregSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.open_head = xavier(nn.Linear(sizes.feature_dim, sizes.num_known))
        self.projection = leaky_projection(sizes.feature_dim, settings.proj_dim)
        self.register_buffer("thresholds", torch.ones(2))  # lower and upper

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        """th <- m th + (1 - m) means of two groups of confidences over the pool."""
        if clock.epoch >= 1:
            averaged = self.settings.threshold_weights == "averaged"
            means = mixture_means(scan(self.score, averaged=averaged))
            self.thresholds.lerp_(means.to(self.thresholds), 1 - self.settings.threshold_momentum)

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views, y = self.settings, step.views, step.batch.y
        x, weak, (strong, _) = torch.cat(views.x), views.u_weak[0], views.u_strong
        open_x, open_weak = self.open_head(torch.cat([x, weak])).split([len(x), len(weak)])
        with torch.no_grad():
            p = self.logits(weak).float().softmax(dim=1)
            confidence = self.confidence(open_weak)
            is_outlier, is_inlier = (
                confidence < self.thresholds[0],
                confidence >= self.thresholds[1],
            )
            graph = pseudo_label_graph(p, s.graph_tau, groups=is_outlier)
        confident = losses.confident_cross_entropy(p, self.logits(strong), tau=s.tau, hard=True)
        first, second = (
            F.normalize(z.float())
            for z in self.projection(torch.cat(views.u_strong)).split(len(weak))
        )
        contrast = graph_contrast(first, second, graph, s.temperature)
        return {
            "supervised": losses.supervised(self.logits(x), y),  # L_s, target head
            "open_supervised": losses.supervised(open_x, y),  # L_s, open-set head
            "outliers": mean_negative_entropy(open_weak, is_outlier),  # L_o
            "unlabeled": s.lambda_u * (is_inlier * confident),  # L_u
            "graph": s.lambda_g * contrast,  # L_g
        }

    def score(self, features: Tensor) -> Tensor:
        return self.confidence(self.open_head(features))

    def confidence(self, open_logits: Tensor) -> Tensor:
        """c, the open-set head's confidence: B x C -> B."""
        scaled = open_logits.float() / self.settings.open_temperature
        return scaled.softmax(dim=1).amax(dim=1)

    def rules(self) -> dict[str, Rule]:
        """No source has a rule (docs/protocol/baselines.md, "UAGreg"). In training, an image below
        the lower threshold is an outlier, at or above the upper one an inlier (as in L_u)."""
        lower, upper = at_least(self.thresholds[0]), at_least(self.thresholds[1])
        return {"published": otsu_of_test(), "memory": lower, "memory_upper": upper, "kept": upper}

    def embedding(self, features: Tensor) -> Tensor:
        return F.normalize(self.projection(features).float(), dim=1)


def mean_negative_entropy(logits: Tensor, mask: Tensor) -> Tensor:
    """sum_c m_c log m_c of the mean prediction over the masked rows; 0 if there are none: U x C."""
    p = logits.float().softmax(dim=1) * mask[:, None]
    mean = p.sum(dim=0) / mask.sum().clamp_min(1)
    return torch.xlogy(mean, mean.clamp_min(losses.LOG_FLOOR)).sum()
