"""The bank of open-set distillation: embeddings and targets, first in, first out (Sec. III-B)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Bank(nn.Module):
    """Q_z and Q_q. Starts with random unit vectors and uniform targets, so its logs are finite."""

    training_only = True  # evaluation does without; left out of the finished model file
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
        """Replace the oldest rows. Call after the backward pass, which still reads them."""
        size, count = len(self.z), len(z)
        rows = (self.position + torch.arange(count, device=z.device)) % size
        self.z.index_copy_(0, rows, z.to(self.z.dtype))
        self.q.index_copy_(0, rows, q.to(self.q.dtype))
        self.position.add_(count).remainder_(size)
