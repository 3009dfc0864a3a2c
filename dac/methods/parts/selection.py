"""Which images a stream draws from, chosen once per epoch and kept in the checkpoint."""

import torch
from torch import Tensor, nn


class Selection(nn.Module):
    """A mask over the pool for the stream of this name ("unlabeled" or one of `Phase.streams`).

    At first all images. Making it an attribute of the method is enough: the loop finds it.
    """

    mask: Tensor

    def __init__(self, stream: str, size: int) -> None:
        super().__init__()
        self.stream = stream
        self.register_buffer("mask", torch.ones(size, dtype=torch.bool))

    @torch.no_grad()
    def choose(self, mask: Tensor) -> None:
        """Draw from these images from now on. An empty mask changes nothing: some must be drawn."""
        self.mask.copy_(torch.where(mask.any(), mask, self.mask))
