"""The supervised loss L_s, Eq. (2)."""

from torch import Tensor
from torch.nn import functional as F

from dac.losses.precision import wide


def supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """L_s, Eq. (2); several views of the batch may follow one another."""
    return F.cross_entropy(wide(logits), labels.repeat(len(logits) // len(labels)))
