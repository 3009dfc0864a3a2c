"""Where a number comes from: commit, versions, machine."""

import platform
import resource
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "torchvision", "numpy", "scikit-learn", "pillow")


def provenance(device: torch.device) -> dict[str, Any]:
    return {
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "host": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
    }


def commit() -> str:
    """Commit of the code that runs, `+` if files were changed; `unknown` outside a checkout."""
    here = Path(__file__).parents[1]  # the package
    try:
        head = _git(here, "rev-parse", "HEAD")
        return head + ("+" if _git(here, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def peak_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _processor() -> str:
    """Name, vector instructions and threads of the CPU: sums depend on all three."""
    instructions, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return f"{_processor_name()}, {instructions}, {threads} thread{'s' * (threads > 1)}"


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "CPU"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "CPU"
