"""The unlabeled loss L_u of FixMatch, Eq. (3), for every sample, so that Eq. (4) can weigh it."""

# U unlabeled batch, C known classes

from torch import Tensor
from torch.nn import functional as F

from dac.losses.precision import wide


def pseudo_label(weak: Tensor, strong: Tensor, *, tau: float, hard: bool = True) -> Tensor:
    """FixMatch's term for every sample, Eq. (3): U x C logits of both views -> U."""
    p = wide(weak.detach()).softmax(dim=-1)
    return confident_cross_entropy(p, strong, tau=tau, hard=hard)


def confident_cross_entropy(p: Tensor, strong: Tensor, *, tau: float, hard: bool = False) -> Tensor:
    """1[max p >= tau] H(p, strong) for every sample, `hard` with a one-hot target: U x C -> U."""
    confidence, pseudo = p.max(dim=-1)
    target = pseudo if hard else p
    return (confidence >= tau) * F.cross_entropy(wide(strong), target, reduction="none")
