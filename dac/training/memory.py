"""Whether a run can fit into memory, asked before it takes any.

What it needs is a lower bound: weights, gradients, momentum, averages and buffers, the images of a
GPU, and the views of one batch. Activations are left out, so a run may still turn out too large;
one that is refused surely is.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dac.config import PretrainRun, Run
from dac.data.run_data import RunData
from dac.io.errors import UserError
from dac.methods.base import Sizes
from dac.methods.network import build_method
from dac.models import build_backbone
from dac.models.simsiam import SimSiam
from dac.training.batches import views_of_step

FLOAT, INDEX = 4, 8  # bytes of a number in a view, of an image's position
LARGER_GPU = "use a GPU with more memory"


@dataclass(frozen=True)
class Need:
    what: str
    size: int
    """In bytes."""
    advice: str


class Unfilled(TorchFunctionMode):
    """Leave out what needs PyTorch's compiler on the meta device: importing it takes seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.Tensor.normal_, nn.init.normal_, F.normalize):
            return args[0]
        if func is torch.randn:
            return torch.empty(*args)
        if func is torch.cat:
            return torch.empty(sum(map(len, args[0])), *args[0][0].shape[1:])
        return func(*args, **(kwargs or {}))


def refuse_too_large(needs: Sequence[Need], device: torch.device) -> None:
    free, total = free_memory(device), sum(need.size for need in needs)
    if free is None or total <= free:
        return
    ordered = sorted(needs, key=lambda need: need.size, reverse=True)
    listed = ", ".join(f"{need.what} {need.size / 1e9:,.1f} GB" for need in ordered if need.size)
    raise UserError(
        f"this run needs at least {total / 1e9:,.1f} GB of memory ({listed}), and {device} has "
        f"{free / 1e9:,.1f} GB free; {ordered[0].advice}"
    )


# --- what is needed ---------------------------------------------------------------------------


def needs_of_run(run: Run, data: RunData, device: torch.device) -> list[Need]:
    train, view = run.train, 3 * data.policy.size**2 * FLOAT
    phases = [run.method.phase(epoch) for epoch in (0, train.epochs - 1)]
    views = max(views_of_step(train, phase) for phase in phases)
    draws_unlabeled = any(phase.drawn.weak or phase.drawn.strong for phase in phases)
    evaluated = min(train.evaluation_batch, len(data.test_images))
    return [
        Need("its network", _network_bytes(run, data), f"lower {_largest_setting(run)}"),
        Need("the images", _on_gpu(device, data.train_images, data.test_images), LARGER_GPU),
        Need(
            "the order of an epoch",
            train.steps_per_epoch * train.batch * (1 + draws_unlabeled * train.mu) * INDEX,
            "lower train.steps_per_epoch",
        ),
        max(
            Need("a batch", views * view, "lower train.batch or train.mu"),
            Need("a batch in evaluation", evaluated * view, "lower train.evaluation_batch"),
            key=lambda need: need.size,
        ),
    ]


def needs_of_pretraining(run: PretrainRun, images: np.ndarray, device: torch.device) -> list[Need]:
    with torch.device("meta"), Unfilled():
        network = SimSiam(build_backbone(run.backbone), run.settings)
    place, views = f"pretrain.by_data.{run.data_name}", 2 * run.settings.batch
    return [
        Need(
            "its network",
            _bytes(network, copies=2 + (run.settings.momentum > 0)),
            f"lower hidden, projection or prediction_hidden of {place}",
        ),
        Need("the images", _on_gpu(device, images), LARGER_GPU),
        Need("a batch", views * 3 * run.data.size**2 * FLOAT, f"lower {place}.batch"),
    ]


def _largest_setting(run: Run) -> str:
    """The largest size among the settings of the method, which is likely what is too large."""
    settings = [run.method, *([] if run.objective is None else [run.objective])]
    numbers = [pair for one in settings for pair in one if type(pair[1]) is int]
    sizes = [(value, name) for name, value in numbers if "epoch" not in name]
    largest = [f"{name} ({value})" for value, name in sorted(sizes)[-1:]] or ["the sizes"]
    return f"{largest[0]} of the method {run.method_name}"


def _network_bytes(run: Run, data: RunData) -> int:
    try:
        return _bytes(_sketch(run, data), copies=3 + (run.train.momentum > 0))
    except Exception as error:  # a method of one's own may need numbers; building it will tell
        return sys.maxsize if "overflow" in str(error).lower() else 0


def _sketch(run: Run, data: RunData) -> nn.Module:
    """The network without its numbers: it takes no memory, and no generator of the run draws."""
    unlabeled, draws = run.train.mu * run.train.batch, torch.Generator()
    with torch.device("meta"), Unfilled():
        backbone = build_backbone(run.train.backbone)
        sizes = Sizes(
            feature_dim=int(backbone.feature_dim),  # type: ignore[arg-type]
            num_known=data.num_known,
            num_labeled=len(data.labeled_index),
            pool=len(data.pool_index),
            batch=run.train.batch,
            unlabeled_batch=unlabeled,
            xavier_head=bool(backbone.xavier_head),
        )
        return nn.ModuleList([backbone, build_method(run.method, sizes, draws)])


def _bytes(network: nn.Module, copies: int) -> int:
    """`copies` of every weight that is trained: itself, its gradient, momentum and average."""
    trained = [p for p in network.parameters() if p.requires_grad]
    fixed = [p for p in network.parameters() if not p.requires_grad]
    once = sum(t.numel() * t.element_size() for t in (*fixed, *network.buffers()))
    return once + copies * sum(p.numel() * p.element_size() for p in trained)


def _on_gpu(device: torch.device, *parts: np.ndarray) -> int:
    """Bytes of the images that are copied there: those that are not read from a memory map."""
    kept = [part.nbytes for part in parts if not isinstance(part, np.memmap)]
    return sum(kept) if device.type == "cuda" else 0


# --- what is there ----------------------------------------------------------------------------


def free_memory(device: torch.device) -> int | None:
    """Bytes that a run can still get; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_ram()


def free_ram(root: Path = Path("/")) -> int | None:
    """What Linux considers available, swap included, and no more than a control group allows."""
    lines = [line.split() for line in _text(root / "proc/meminfo").splitlines()]
    kilobytes = {words[0]: int(words[1]) for words in lines if len(words) == 3}
    if "MemAvailable:" not in kilobytes:
        return None
    free = 1024 * (kilobytes["MemAvailable:"] + kilobytes.get("SwapFree:", 0))
    return min([free, *_limits(root)])


def _limits(root: Path) -> list[int]:
    """Memory limits of the control groups of this process and of those above them."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        top, name = root / "sys/fs/cgroup", "memory.max"  # version 2
        if controllers:
            top, name = top / "memory", "memory.limit_in_bytes"
        if not controllers or "memory" in controllers.split(","):
            folder = top / group.lstrip("/")
            above = [one for one in (folder, *folder.parents) if one.is_relative_to(top)]
            found += [_text(one / name).strip() for one in above]
    return [int(limit) for limit in found if limit.isdigit()]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
