"""Choose the device of a run, and copy to it without waiting."""

import os
import re

import torch
from torch import Tensor

from dac.io.errors import UserError, reason

ACCEPTED = re.compile(r"cpu|cuda(:\d+)?")  # not mps: it has no float64, in which losses are checked


def choose_device(name: str) -> torch.device:
    """Return the device, set up so that a run repeated on it gives the same bits."""
    chosen = _automatic() if name == "auto" else name
    if not ACCEPTED.fullmatch(chosen):
        raise UserError(
            f"device {name!r} cannot be used (accepted are auto, cpu, cuda, cuda:0, cuda:1 ...); "
            "try --device cpu"
        )
    try:
        device = torch.device(chosen)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"device {name!r} cannot be used ({reason(error)}); try --device cpu"
        ) from None
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # As use_deterministic_algorithms(True), which also imports the compiler: 2 s.
    torch.set_deterministic_debug_mode("error")
    # Filling new memory took a third of a step on a CPU, and nothing here reads it unwritten.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    return device


def set_precision(precision: str) -> None:
    """Say how a GPU multiplies float32 numbers, which PyTorch would choose by itself.

    Its own choice is TF32 in convolutions and IEEE in matrix products. Under bf16 the numbers that
    autocast leaves in float32 are those that need it.
    """
    kind = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cudnn.conv.fp32_precision = kind  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = kind


def _automatic() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def send(host: Tensor, device: torch.device) -> Tensor:
    """Copy to the device without waiting for it; only pinned memory allows that."""
    if device.type == "cuda":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)
