"""Whether a run can fit into memory, asked before it takes any.

What it needs is a lower bound: weights, gradients, momentum, averages and buffers, the images of a
GPU, the views of one batch and what the backbone keeps of them for the backward pass. Heads and
temporary results are left out, so a run may still turn out too large; one that is refused surely
is.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dac.config import SIZE_MARK, Backbone, MethodSettings, Phase, PretrainRun, Run
from dac.data.run_data import RunData
from dac.io.errors import UserError, reason
from dac.io.free_memory import free_memory
from dac.io.progress import say
from dac.io.seeds import seeded
from dac.methods.network import assemble_network
from dac.models import build_backbone
from dac.models.simsiam import SimSiam
from dac.training.batches import views_of_step

FLOAT, INDEX = 4, 8  # bytes of a number in a view, of an image's position
LARGER_GPU = "use a GPU with more memory"
MEASURED_SIDE = 64
SMALLER_BATCH = "lower train.batch or train.mu"


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
    train = run.train
    phases = [run.method.phase(epoch) for epoch in (0, train.epochs - 1)]
    draws_unlabeled = any(phase.drawn.weak or phase.drawn.strong for phase in phases)
    return [
        Need("its network", _network_bytes(run, data), _advice(run)),
        Need("the images", _on_gpu(device, data.train_images, data.test_images), LARGER_GPU),
        Need(
            "the order of an epoch",
            train.steps_per_epoch * train.batch * (1 + draws_unlabeled * train.mu) * INDEX,
            "lower train.steps_per_epoch",
        ),
        *_at_once(run, data, phases),
    ]


def _at_once(run: Run, data: RunData, phases: Sequence[Phase]) -> list[Need]:
    """What a step takes, or an evaluation, whichever is more: they take turns."""
    view = 3 * data.policy.size**2 * FLOAT
    views = max(views_of_step(run.train, phase) for phase in phases)
    # Additional streams may be for a teacher, which keeps nothing.
    learned = max(views_of_step(run.train, replace(phase, streams={})) for phase in phases)
    # Compiled code may compute activations again instead of keeping them.
    kept = 0 if run.train.compile else kept_per_image(run.train.backbone, data.policy.size)
    if run.train.precision == "bf16":
        kept //= 2
    step = [
        Need("a batch", views * view, SMALLER_BATCH),
        Need("the activations of a step", learned * kept, SMALLER_BATCH),
    ]
    evaluated = min(run.train.evaluation_batch, len(data.test_images)) * view
    if evaluated > sum(need.size for need in step):
        return [Need("a batch in evaluation", evaluated, "lower train.evaluation_batch")]
    return step


def kept_per_image(backbone: Backbone, side: int) -> int:
    """Bytes that the backbone keeps of every image for the backward pass, in float32.

    Measured with small images: larger ones keep more by their area, and must not fill the memory
    that is asked about.
    """
    with seeded(torch.Generator()):
        network = build_backbone(backbone)
    small = min(side, MEASURED_SIDE)
    two, three = (_kept_bytes(network, torch.zeros(count, 3, small, small)) for count in (2, 3))
    return (three - two) * side**2 // small**2  # without what does not grow with the batch


def _kept_bytes(network: nn.Module, images: Tensor) -> int:
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        features = network(images)  # named, so that nothing is freed, and no place used twice
    assert features.requires_grad
    return sum(kept.values())


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
        Need(
            "the activations of a step",
            views * kept_per_image(run.backbone, run.data.size),
            f"lower {place}.batch",
        ),
    ]


def _advice(run: Run) -> str:
    """Lower the largest size among the settings of the method: likely it is what is too large."""
    settings = [run.method, *([] if run.objective is None else [run.objective])]
    sizes = [size for one in settings for size in _sizes(one)]
    if not sizes:
        return "choose a smaller train.backbone"
    value, name = max(sizes)
    return f"lower {name} ({value}) of the method {run.method_name}"


def _sizes(settings: MethodSettings) -> list[tuple[int, str]]:
    fields = type(settings).model_fields.items()
    names = [name for name, field in fields if SIZE_MARK in field.metadata]
    return [(getattr(settings, name), name) for name in names]


def _network_bytes(run: Run, data: RunData) -> int:
    """Build the network without its numbers, which takes no memory."""
    try:
        with torch.device("meta"), Unfilled():
            network = assemble_network(
                run,
                num_known=data.num_known,
                num_labeled=len(data.labeled_index),
                pool=len(data.pool_index),
            )
    except Exception as error:  # a method of one's own may need numbers; building it will tell
        if "overflow" in str(error).lower():
            return sys.maxsize
        say(f"how much memory {run.method_name} needs cannot be told in advance ({reason(error)})")
        return 0
    return _bytes(network, copies=3 + (run.train.momentum > 0))


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
