"""A pretended CUDA device, for tests on machines without one.

    with pretended_cuda() as log:
        train(run, data, out, choose_device("cuda"), StopRequest())

The code under test runs as it would on a GPU, and `log` (pretended_log.py) tells what it launched
and when the host had to wait. Kernels are the CPU's: gaps of CUDA's (data types, atomics) are not
seen.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch
from pretended_device import Device, OnDevice
from pretended_log import Log

MEMORY = 48 << 30  # bytes, as an A40
NAME = "pretended CUDA device"
SOURCE = Path(__file__).with_suffix(".cpp")


@contextmanager
def pretended_cuda() -> Iterator[Log]:
    """Inside the block there is one CUDA device; afterwards the process is as it was.

    Skips where there is no C++ compiler, unless DAC_REQUIRE_COMPILER=1, and where there is a GPU.
    """
    if torch.cuda.is_available():
        pytest.skip("there is a real CUDA device, which need not be pretended")
    log = Log()
    device = Device(log)
    with (
        pytest.MonkeyPatch.context() as patch,
        _switches(_library()),
        torch.autograd.set_multithreading_enabled(False),
        device,
    ):
        _patch_cuda(patch, device)
        yield log


@contextmanager
def _switches(library: ctypes.PyDLL) -> Iterator[None]:
    """Settings of the process that let tensors of another kind stand for those of CUDA."""
    # Autograd starts its threads now, for no device: a process that has any could not fork.
    torch.zeros((), requires_grad=True).backward()
    replaces = torch.__future__.get_overwrite_module_params_on_conversion()
    lifts_first = torch._C._only_lift_cpu_tensors()
    library.begin_pretending()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # nn.Module.to
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda")
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifts_first)
        torch.__future__.set_overwrite_module_params_on_conversion(replaces)
        library.end_pretending()


def _patch_cuda(patch: pytest.MonkeyPatch, device: Device) -> None:
    properties = SimpleNamespace(name=NAME, total_memory=MEMORY, major=8, minor=6)
    answers = {
        "_lazy_init": None,
        "is_available": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": NAME,
        "get_device_capability": (8, 6),
        "get_device_properties": properties,
        "mem_get_info": (MEMORY, MEMORY),
        "max_memory_allocated": MEMORY // 2,
        "reset_peak_memory_stats": None,
    }
    for name, answer in answers.items():
        patch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    patch.setattr(torch.cuda, "synchronize", lambda *_: device.log.wait("synchronize", "cuda"))
    patch.setattr(torch.Tensor, "pin_memory", lambda tensor: device.pin(tensor))
    patch.setattr(torch.Tensor, "is_pinned", lambda tensor: device.is_pinned(tensor))
    optimizer = sys.modules[torch.optim.Optimizer.__module__]
    kinds = [*optimizer._foreach_supported_types, OnDevice]
    patch.setattr(optimizer, "_foreach_supported_types", kinds)


@cache
def _library() -> ctypes.PyDLL:
    """The device guard, built and loaded once per process."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        unavailable("no C++ compiler: install Debian's g++ (apt-get install g++)")
    folder = Path(torch.__file__).parent
    with TemporaryDirectory() as build:
        built = Path(build) / "pretended_cuda.so"
        command = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", str(SOURCE), "-o", str(built)]
        command += [f"-I{folder / 'include'}", f"-L{folder / 'lib'}"]
        command += ["-lc10", "-ltorch_cpu", "-ltorch_python"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            unavailable(f"the C++ compiler failed: {done.stderr[-2000:]}")
        return ctypes.PyDLL(str(built))


def unavailable(reason: str) -> NoReturn:
    if os.environ.get("DAC_REQUIRE_COMPILER") == "1":
        pytest.fail(f"{reason}; DAC_REQUIRE_COMPILER=1 demands it")
    pytest.skip(reason)
