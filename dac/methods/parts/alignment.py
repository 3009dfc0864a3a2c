"""Distribution alignment: divide predictions by their running mean and normalize them.

If classes are assumed to be equally frequent, the mean prediction should be uniform.
"""

# U unlabeled batch, C known classes

import torch
from torch import Tensor, nn

EPS = 1e-6  # from the release; the divisor for a class that is never predicted


def align(p: Tensor, mean: Tensor) -> Tensor:
    """p_c (1/C) / mean_c, rows normalized to sum to one: U x C and C -> U x C."""
    aligned = p * (1 / p.shape[1] + EPS) / (mean + EPS)
    return aligned / aligned.sum(dim=1, keepdim=True)


class QueueAlignment(nn.Module):
    """Align with the mean of the last batches, this one included (CoMatch, SimMatch, IOMatch).

    The release also averages over slots not written yet, a common factor that `align` cancels
    except for classes about as rare as EPS.
    """

    training_only = True
    means: Tensor
    position: Tensor

    def __init__(self, batches: int, num_known: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(batches, num_known))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def forward(self, p: Tensor) -> Tensor:
        """U x C -> U x C; the mean of the batch replaces the oldest one first."""
        oldest = (self.position % len(self.means)).view(1)
        self.means.index_copy_(0, oldest, p.mean(dim=0, keepdim=True))
        self.position.add_(1)
        return self.read(p)

    def read(self, p: Tensor) -> Tensor:
        """U x C -> U x C, with the stored means, without adding to them."""
        written = self.position.clamp(1, len(self.means))
        return align(p, self.means.sum(dim=0) / written)


class MovingAlignment(nn.Module):
    """Align with a moving average that starts with the first batch's mean (SoftMatch)."""

    training_only = True
    mean: Tensor
    is_started: Tensor

    def __init__(self, momentum: float, num_known: int) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(num_known))
        self.register_buffer("is_started", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def forward(self, p: Tensor) -> Tensor:
        """U x C -> U x C."""
        of_batch = p.mean(dim=0)
        moved = self.momentum * self.mean + (1 - self.momentum) * of_batch
        self.mean.copy_(torch.where(self.is_started, moved, of_batch))
        self.is_started.fill_(True)
        return align(p, self.mean)
