"""One detector per known class: does an image belong to it or not (OpenMatch, SSB, IOMatch).

A head gives 2 C logits; row 0 says "not mine", row 1 "mine", and the two sum to one per class.
"""

# B batch, C known classes

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.methods.base import Method

CLAIMED = 0.5  # above this, "mine" is the larger of a detector's two probabilities


@dataclass(frozen=True)
class Detectors:
    """Logarithms of both probabilities of every detector: B x C each."""

    log_out: Tensor
    log_in: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> "Detectors":
        """B x 2 C logits."""
        log_out, log_in = logits.float().unflatten(1, (2, -1)).log_softmax(dim=1).unbind(dim=1)
        return cls(log_out, log_in)

    def split(self, *rows: int) -> list["Detectors"]:
        parts = zip(self.log_out.split(rows), self.log_in.split(rows), strict=True)
        return [Detectors(*part) for part in parts]

    def inlier(self, classes: Tensor) -> Tensor:
        """Probability that an image belongs to the class given for it: B."""
        return self.log_in.gather(1, classes[:, None]).squeeze(1).exp()


def claims(method: Method, detectors: nn.Module, features: Tensor) -> Tensor:
    """a_in of the predicted class, the score of OpenMatch and SSB: B x d -> B."""
    predicted = method.logits(features).argmax(dim=1)
    return Detectors.of(detectors(features)).inlier(predicted)


def hard_negative(found: Detectors, y: Tensor) -> Tensor:
    """-log a_in^y + max over wrong classes of -log a_out, mean over rows (OpenMatch)."""
    is_own = F.one_hot(y, found.log_out.shape[1]).bool()
    # Zero is below every other entry, so the true class never wins.
    hardest = (-found.log_out).masked_fill(is_own, 0).amax(dim=1)
    return positives(found, y) + hardest.mean()


def all_negatives(found: Detectors, y: Tensor) -> Tensor:
    """-log a_out over wrong classes, mean over rows and all C classes (SSB)."""
    is_own = F.one_hot(y, found.log_out.shape[1]).bool()
    return (-found.log_out).masked_fill(is_own, 0).mean()


def positives(found: Detectors, y: Tensor) -> Tensor:
    """-log a_in of the true class, mean over rows."""
    return F.nll_loss(found.log_in, y)


def entropy(found: Detectors) -> Tensor:
    """Entropy of every detector, mean over classes: B."""
    each = found.log_out.exp() * found.log_out + found.log_in.exp() * found.log_in
    return -each.mean(dim=1)


def squared_difference(first: Detectors, second: Detectors) -> Tensor:
    """Squared difference between two views, summed over classes and both rows (OpenMatch): B."""
    out = (first.log_out.exp() - second.log_out.exp()).square()
    inside = (first.log_in.exp() - second.log_in.exp()).square()
    return (out + inside).sum(dim=1)


def open_set_distribution(p: Tensor, found: Detectors) -> Tensor:
    """q = [p_c a_in^c; sum_c p_c a_out^c], B x (C + 1); rows sum to one (IOMatch)."""
    outlier = (p * found.log_out.exp()).sum(dim=1, keepdim=True)
    return torch.cat([p * found.log_in.exp(), outlier], dim=1)
