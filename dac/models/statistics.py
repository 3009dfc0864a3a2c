"""Forwards in training mode that leave the running statistics of batch norm alone.

The batch is still normalised by its own mean and variance.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def frozen_statistics(module: nn.Module, *, when: bool = True) -> Iterator[None]:
    """No running mean, variance or count of `module` changes inside the block."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm)] if when else []
    tracking = [norm.track_running_stats for norm in norms]
    try:
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm, was in zip(norms, tracking, strict=True):
            norm.track_running_stats = was
