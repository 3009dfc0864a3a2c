"""Which images a method draws from, chosen once an epoch and kept in the checkpoint."""

import torch
from torch import Tensor, nn


class Selection(nn.Module):
    """A mask over a set of images; at first all of them."""

    mask: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(size, dtype=torch.bool))

    @torch.no_grad()
    def choose(self, mask: Tensor) -> None:
        """Take these from now on. An empty choice changes nothing: something must be drawn."""
        self.mask.copy_(torch.where(mask.any(), mask, self.mask))
