"""One run of one method on one task, from its first step or its last checkpoint to its files."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dac.config import Run
from dac.data.run_data import RunData
from dac.io.device import set_precision
from dac.io.seeds import generators
from dac.methods.network import build_network
from dac.models.ema import Ema
from dac.runs.folder import RunFolder
from dac.runs.pretrained import Pretrained, load_backbone
from dac.training.batches import Batches
from dac.training.loop import MethodState, evaluated_state, fit, make_optimizer
from dac.training.memory import needs_of_run, refuse_too_large
from dac.training.state import finish, keep, resume
from dac.training.stop import StopRequest


def train(
    run: Run,
    data: RunData,
    out: Path,
    device: torch.device,
    stop: StopRequest,
    pretrained: Pretrained | None = None,
) -> None:
    """Train (or resume training) into `out`; finished runs are left alone."""
    assert (pretrained is None) == (run.train.initial == "random"), run.train.initial
    sources = {"split_hash": data.split_hash}
    if pretrained is not None:
        sources["pretrained_hash"] = pretrained.hash
    folder = RunFolder(out, run.identity() | sources)
    if folder.is_finished():
        return
    set_precision(run.train.precision)
    refuse_too_large(needs_of_run(run, data, device), device)
    saved = folder.newest()
    state = start(run, data, device, pretrained if saved is None else None)
    if saved is not None:
        resume(state, saved, folder, run.train.steps, device)
    batches = Batches(data, run.train, state.network.method, state.streams, device)
    label = f"{run.task_name}/{run.method_name}/seed{run.seed}"
    save = partial(keep, folder=folder, device=device)
    began = time.time()
    fit(state, batches, data, run.train, device=device, save=save, stop=stop, label=label)
    finish(
        state,
        folder,
        run=run.as_dict() | sources,
        model=trained(state),
        views=batches.num_views(),
        device=device,
        began=began,
    )


def start(
    run: Run, data: RunData, device: torch.device, pretrained: Pretrained | None = None
) -> MethodState:
    streams = generators(run.seed)
    network = build_network(
        run,
        num_known=data.num_known,
        num_labeled=len(data.labeled_index),
        pool=len(data.pool_index),
        streams=streams,
    ).to(device)
    if pretrained is not None:
        load_backbone(network.backbone, pretrained)
    if device.type == "cuda":
        network.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if run.train.compile:
        torch.use_deterministic_algorithms(True)  # the compiler reads it, too
        network.backbone.compile()
    return MethodState(
        network=network,
        optimizer=make_optimizer(network, run.train),
        ema=Ema(network, run.train.ema_decay),
        streams=streams,
    )


def trained(state: MethodState) -> dict[str, Any]:
    return {
        "best": state.best,
        "last": {"step": state.step, "network": evaluated_state(state)},
        "closed_accuracies": [
            row["closed_accuracy"] for row in state.history if "closed_accuracy" in row
        ],
    }
