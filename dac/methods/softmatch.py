"""SoftMatch (Chen et al. 2023): every pseudo-label counts, weighted by its confidence.

L = L_s + lambda_u L_u, the weight being a Gaussian of the confidence below its running mean.
"""

# U unlabeled batch, C known classes

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac import losses
from dac.config import SoftMatchSettings
from dac.methods.base import Method, Sizes
from dac.methods.parts.alignment import MovingAlignment
from dac.methods.step import Step


class SoftMatch(Method):
    settings: SoftMatchSettings

    def __init__(
        self, settings: SoftMatchSettings, sizes: Sizes, generator: torch.Generator
    ) -> None:
        super().__init__(settings, sizes, generator)
        self.alignment = MovingAlignment(settings.momentum, sizes.num_known)
        self.confidence = ConfidenceWeight(
            settings.momentum, settings.num_sigma, start=1 / sizes.num_known
        )

    def terms(self, step: Step) -> dict[str, Tensor]:
        views = step.views
        x = self.logits(torch.cat(views.x))
        weak, strong = self.logits(views.u_weak[0]), self.logits(views.u_strong[0])
        with torch.no_grad():
            aligned = self.alignment(weak.float().softmax(dim=1))  # uniform alignment
            weight = self.confidence(aligned.amax(dim=1))  # truncated Gaussian
            pseudo = weak.argmax(dim=1)  # of the original prediction, not the aligned one
        unlabeled = weight * F.cross_entropy(strong.float(), pseudo, reduction="none")
        return {
            "supervised": losses.supervised(x, step.batch.y),  # Eq. (2)
            "unlabeled": self.settings.lambda_u * step.weigh(unlabeled),  # SoftMatch L_u
        }


class ConfidenceWeight(nn.Module):
    """lambda(c): 1 above the running mean of confidence, a Gaussian of its deviation below it."""

    training_only = True
    mean: Tensor
    variance: Tensor

    def __init__(self, momentum: float, num_sigma: float, start: float) -> None:
        super().__init__()
        self.momentum, self.num_sigma = momentum, num_sigma
        self.register_buffer("mean", torch.tensor(start))
        self.register_buffer("variance", torch.ones(()))

    @torch.no_grad()
    def forward(self, confidence: Tensor) -> Tensor:
        """U -> U; the batch enters the running mean and variance first."""
        self.mean.lerp_(confidence.mean(), 1 - self.momentum)
        is_several = len(confidence) > 1  # one sample has no unbiased variance
        self.variance.lerp_(confidence.var(correction=int(is_several)), 1 - self.momentum)
        variance = self.variance.clamp_min(losses.LOG_FLOOR)
        below = (confidence - self.mean).clamp(max=0)
        return torch.exp(-below.square() * self.num_sigma**2 / (2 * variance))
