"""Constants and casts that keep logarithms and sums of probabilities finite and exact."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

LOG_FLOOR = 1e-12  # logs are clamped here: a saturated softmax makes exact zeros
UNDERFLOW = 80  # exp(-80) and exp(80) are still normal float32


def wide(tensor: Tensor) -> Tensor:
    """Cast to at least float32: sums over classes and logarithms do not survive bf16."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """Keep products in the block in float32; autocast would use bf16, which has three digits."""
    kind = tensor.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)
