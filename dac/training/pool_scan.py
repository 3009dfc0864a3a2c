"""A pass of a method over its pool at the start of an epoch."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from dac import augment
from dac.data.images import Images
from dac.data.run_data import RunData
from dac.evaluation.inference import read_pool
from dac.methods.network import Network
from dac.models.ema import Ema


@dataclass(frozen=True)
class PoolScan:
    """`Scan` of dac/methods/base.py. Weak views are drawn from `views`, a saved generator."""

    network: Network
    ema: Ema
    images: Images
    data: RunData
    views: torch.Generator
    batch: int

    def __call__(
        self,
        read: Callable[[Tensor], Tensor],
        *,
        averaged: bool = False,
        weak: bool = True,
        index: Tensor | None = None,
    ) -> Tensor:
        policy, rows = self.data.policy, torch.from_numpy(self.data.pool_index)
        if index is not None:
            rows = rows[index.cpu()]

        def view(images: Tensor) -> Tensor:
            if weak:
                return augment.weak(images, policy, self.views)
            return augment.evaluation(images, policy)

        with self.ema.swapped_in() if averaged else nullcontext():
            return read_pool(self.network, self.images, rows, read, view, batch=self.batch)
