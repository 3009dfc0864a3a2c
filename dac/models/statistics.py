"""Forward passes in training mode that leave the running statistics of batch norm unchanged.

The batch is still normalized by its own mean and variance.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def frozen_statistics(module: nn.Module, *, when: bool = True) -> Iterator[None]:
    """Keep the running mean, variance and count of `module` unchanged inside the block."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm)] if when else []
    tracking = [norm.track_running_stats for norm in norms]
    try:
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm, was in zip(norms, tracking, strict=True):
            norm.track_running_stats = was
