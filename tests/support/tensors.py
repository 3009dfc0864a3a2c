"""Random tensors for tests of the losses, and a check that no gradient overflows."""

from collections.abc import Callable

import torch
from torch import Tensor


def normal(
    *shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=draw, dtype=dtype)


def finite_with_gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """The value of `function`, after checking that it and its gradient are finite."""
    at = at.clone().requires_grad_()
    value = function(at)
    value.sum().backward()
    assert value.isfinite().all() and at.grad is not None and at.grad.isfinite().all()
    return value.detach()
