"""Exponential moving average of the trainable parameters (docs/protocol/training.md, "Optimizer").

Batch-norm buffers are not averaged: evaluation uses averaged weights with the student's current
running statistics.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Ema:
    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.live = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """average <- decay average + (1 - decay) live, as one fused operation per device."""
        live = [p.detach() for p in self.live.values()]
        torch._foreach_lerp_(list(self.average.values()), live, 1 - self.decay)

    @torch.no_grad()
    def follow(self) -> None:
        """average <- live."""
        torch._foreach_copy_(list(self.average.values()), [p.detach() for p in self.live.values()])

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Give the module the averaged weights inside the block; storages are swapped, so the live
        weights come back bit for bit."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def _exchange(self) -> None:
        for name, parameter in self.live.items():
            parameter.data, self.average[name] = self.average[name], parameter.data

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.average)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        if state.keys() != self.average.keys():
            raise KeyError(f"EMA weights differ in {sorted(state.keys() ^ self.average.keys())}")
        for name, tensor in state.items():
            self.average[name].copy_(tensor)
