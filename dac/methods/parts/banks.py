"""Banks of features, first in, first out: with targets (DAC, CoMatch) or by class (OSP)."""

# B batch, C known classes, d feature

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.io.device import send


class StagedBank(nn.Module):
    """A bank that is written after the backward pass of a step, which still reads the old rows.

    `stage` keeps the arguments of `write` until the training loop calls `commit`.
    """

    training_only = True  # not needed for evaluation, and left out of the finished model file

    def __init__(self) -> None:
        super().__init__()
        self.staged: tuple[Any, ...] | None = None

    def stage(self, *rows: Any) -> None:
        self.staged = rows

    @torch.no_grad()
    def commit(self) -> None:
        if self.staged is not None:
            self.write(*self.staged)
            self.staged = None

    def write(self, *rows: Any) -> None:
        raise NotImplementedError


class Bank(StagedBank):
    """Q_z and Q_q (Sec. III-B). Starts with random unit vectors and uniform targets, so that logs
    are finite."""

    z: Tensor
    q: Tensor
    position: Tensor

    def __init__(self, size: int, dim: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.register_buffer("z", F.normalize(torch.randn(size, dim, generator=generator)))
        self.register_buffer("q", torch.full((size, classes), 1 / classes))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def write(self, z: Tensor, q: Tensor) -> None:
        """Replace the oldest rows."""
        size, count = len(self.z), len(z)
        rows = (self.position + torch.arange(count, device=z.device)) % size
        self.z.index_copy_(0, rows, z.to(self.z.dtype))
        self.q.index_copy_(0, rows, q.to(self.q.dtype))
        self.position.add_(count).remainder_(size)


class ClassBank(nn.Module):
    """Features of outliers by the known class they resemble, at most `size` per class (OSP)."""

    training_only = True
    features: Tensor
    counts: Tensor
    position: Tensor

    def __init__(self, num_known: int, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.zeros(num_known, size, dim))
        self.register_buffer("counts", torch.zeros(num_known, dtype=torch.long))
        self.register_buffer("position", torch.zeros(num_known, dtype=torch.long))

    @torch.no_grad()
    def write(self, features: Tensor, classes: Tensor) -> None:
        """Replace the oldest of each class; of more than `size`, keep the last."""
        num_known, size, _ = self.features.shape
        order = classes.argsort(stable=True)
        added = classes.bincount(minlength=num_known)
        first = added.cumsum(dim=0) - added  # where a class begins in `order`
        sorted_classes = classes[order]
        rank = torch.arange(len(order), device=order.device) - first[sorted_classes]
        stays = rank >= added[sorted_classes] - size
        sorted_classes, rank, order = sorted_classes[stays], rank[stays], order[stays]
        slot = (self.position[sorted_classes] + rank) % size
        self.features[sorted_classes, slot] = features[order].to(self.features.dtype)
        self.position.add_(added).remainder_(size)
        self.counts.add_(added).clamp_(max=size)

    @torch.no_grad()
    def draw(self, own: Tensor, classes: Tensor, generator: torch.Generator) -> Tensor:
        """Return a random feature of each given class; of the first class that has any if that
        class has none, and `own` if no class has any: B x d."""
        filled = self.counts > 0
        classes = torch.where(filled[classes], classes, filled.long().argmax())
        uniform = send(torch.rand(len(own), generator=generator), own.device)
        counts = self.counts[classes]
        slot = (uniform * counts).long().minimum(counts - 1).clamp_min(0)
        return torch.where(filled.any(), self.features[classes, slot], own)
