"""Consensus of the divergent heads: scores, open-set targets and soft rejection (Eqs. 7-10, 13)."""

# B batch, K heads, C known classes, N pool items

import math
from typing import Literal

import torch
from torch import Tensor, nn


def pairwise_l1(probs: Tensor) -> Tensor:
    """L1 distance between the predictions of all head pairs: B x K x C -> B x K x K."""
    return torch.cdist(probs, probs, p=1)


def consensus(probs: Tensor, form: Literal["paper", "released"] = "paper") -> Tensor:
    """How much the heads agree on each sample, 1 if completely: B x K x C -> B.

    `paper`: mean over pairs i != j of exp(-L1), Eq. (7). `released`: exp of minus the mean absolute
    difference over all ordered pairs (i = j included) and classes, a narrow band below 1.
    """
    _, num_heads, num_known = probs.shape
    distance = pairwise_l1(probs.float())
    if form == "released":
        return torch.exp(-distance.sum(dim=(1, 2)) / (num_heads * num_heads * num_known))
    if num_heads == 1:
        return torch.ones_like(distance[:, 0, 0])  # no pair disagrees
    without_diagonal = torch.exp(-distance).sum(dim=(1, 2)) - num_heads
    return without_diagonal / (num_heads * (num_heads - 1))


def open_set_targets(probs: Tensor, score: Tensor) -> Tensor:
    """q = [p s; 1 - s], Eq. (10): B x C and B -> B x (C + 1); each row sums to one."""
    score = score[:, None]
    return torch.cat([probs * score, 1 - score], dim=1)


def soft_rejection(score: Tensor, threshold: Tensor | float, temperature: float) -> Tensor:
    """omega, Eq. (13): 1 at or above the threshold, below it (s / tau_open)^t_w; `inf` is hard."""
    threshold = torch.as_tensor(threshold, dtype=score.dtype, device=score.device)
    is_inlier = score >= threshold
    if math.isinf(temperature):
        return is_inlier.to(score.dtype)
    ratio = (score / threshold).clamp(0, 1)
    return torch.where(is_inlier, 1.0, ratio**temperature)


class ScoreMemory(nn.Module):
    """The queue S: the last raw consensus and the smoothed score of every pool item (Eqs. 8-9)."""

    consensus: Tensor
    score: Tensor
    visited: Tensor

    def __init__(
        self,
        size: int,
        momentum: float = 0.9,
        *,
        visited_only: bool = True,
        eps: float = 0.0,
    ) -> None:
        super().__init__()
        self.momentum, self.visited_only, self.eps = momentum, visited_only, eps
        self.register_buffer("consensus", torch.zeros(size))
        self.register_buffer("score", torch.zeros(size))
        self.register_buffer("visited", torch.zeros(size, dtype=torch.bool))

    @torch.no_grad()
    def update(self, index: Tensor, consensus: Tensor) -> Tensor:
        """Store the consensus of a batch and return its new scores."""
        self.consensus[index] = consensus.float()
        self.visited.index_fill_(0, index, True)  # an assignment would wait for the device
        normalized = self.normalize(self.consensus[index])
        old = self.score[index]
        self.score[index] = self.momentum * old + (1 - self.momentum) * normalized  # Eq. (9)
        return self.score[index]  # read back: an item drawn twice in a batch has one score

    def normalize(self, consensus: Tensor) -> Tensor:
        """Min-max over the pool, Eq. (8); 1 if all are equal and eps is 0: none is suspicious."""
        low, high = self.range()
        width = high - low + self.eps
        return torch.where(width > 0, (consensus - low) / width, 1.0)

    def range(self) -> tuple[Tensor, Tensor]:
        if not self.visited_only:
            return self.consensus.amin(), self.consensus.amax()
        low = torch.where(self.visited, self.consensus, torch.inf).amin()
        return low, torch.where(self.visited, self.consensus, -torch.inf).amax()

    def counted(self) -> Tensor | None:
        """Which items Otsu's threshold looks at; None for all."""
        return self.visited if self.visited_only else None
