"""What every divergent head learns on its own: the first two terms of L_div, Eq. (5)."""

# B batch, U unlabeled batch, K heads, C known classes

from torch import Tensor
from torch.nn import functional as F

from dac.losses.precision import wide
from dac.losses.pseudo_label import pseudo_label


def head_supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """L_s of every head, mean over heads: B x K x C logits."""
    rows, num_heads, _ = logits.shape
    labels = labels.repeat(rows // len(labels))[:, None].expand(rows, num_heads)
    return F.cross_entropy(wide(logits).flatten(0, 1), labels.flatten())


def head_pseudo_label(weak: Tensor, strong: Tensor, *, tau: float) -> Tensor:
    """Self-training of every head on its own labels, mean over heads and samples: U x K x C."""
    return pseudo_label(weak.flatten(0, 1), strong.flatten(0, 1), tau=tau).mean()
