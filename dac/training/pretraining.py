"""SimSiam on all training images of a data set, from its first step or its last checkpoint."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dac.augment import Policy
from dac.augment.simsiam import view
from dac.config import Pretrain, PretrainRun
from dac.data.images import Images
from dac.data.run_data import policy
from dac.io.device import set_precision
from dac.io.errors import UserError
from dac.io.progress import Progress, say
from dac.io.seeds import generator, seeded
from dac.models import build_backbone
from dac.models.simsiam import SimSiam, make_optimizer, set_rates, spread, symmetric_loss
from dac.runs.folder import RunFolder
from dac.training.batches import ImageStream
from dac.training.memory import needs_of_pretraining, refuse_too_large
from dac.training.state import TrainState, finish, keep, resume, save_when_due
from dac.training.stop import StopRequest

STREAMS = ("pretrain/weights", "pretrain/views")
COLLAPSED = 0.1  # share of the spread of outputs that fill the sphere


@dataclass
class PretrainState(TrainState):
    network: SimSiam


def pretrain(
    run: PretrainRun, images: np.ndarray, out: Path, device: torch.device, stop: StopRequest
) -> None:
    """Pre-train (or resume) into `out`; a finished network is left alone."""
    folder = RunFolder(out, run.identity())
    if folder.is_finished():
        return
    set_precision("fp32")
    refuse_too_large(needs_of_pretraining(run, images, device), device)
    batches = all_images(images, run, device)
    steps = run.settings.epochs * batches.steps_per_epoch
    state, saved = start(run, device), folder.newest()
    if saved is not None:
        resume(state, saved, folder, steps, device)
    save = partial(keep, folder=folder, device=device)
    label = f"{run.data_name}/{run.backbone}"
    began = time.time()
    fit(state, batches, policy(run.data), run.settings, save=save, stop=stop, label=label)
    finish(
        state,
        folder,
        run=run.identity() | {"pretrain": run.settings.model_dump(mode="json")},
        model={"backbone": state.network.backbone.state_dict()},
        views=2 * run.settings.batch * steps,
        device=device,
        began=began,
    )


def all_images(images: np.ndarray, run: PretrainRun, device: torch.device) -> ImageStream:
    """All images, labeled or not; an epoch drops the last incomplete batch."""
    batch = run.settings.batch
    if len(images) < batch:
        raise UserError(
            f"data set {run.data_name} has {len(images)} training images, less than a batch of "
            f"{batch}; lower pretrain.by_data.{run.data_name}.batch"
        )
    return ImageStream(
        Images(images, device, run.settings.workers),
        np.arange(len(images)),
        batch=batch,
        steps_per_epoch=len(images) // batch,
    )


def start(run: PretrainRun, device: torch.device) -> PretrainState:
    streams = {name: generator(run.settings.seed, name) for name in STREAMS}
    with seeded(streams["pretrain/weights"]):
        model = SimSiam(build_backbone(run.backbone, zero_residuals=True), run.settings)
    model.to(device)
    if device.type == "cuda":
        model.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return PretrainState(model, make_optimizer(model, run.settings), ema=None, streams=streams)


def fit(
    state: PretrainState,
    batches: ImageStream,
    policy: Policy,
    settings: Pretrain,
    *,
    save: Callable[[PretrainState], None],
    stop: StopRequest,
    label: str,
) -> None:
    """Train from `state.step` to the end."""
    model, optimizer, meter = state.network, state.optimizer, state.meter
    steps = settings.epochs * batches.steps_per_epoch
    shown = Progress(label, steps, done=state.step, unit=" steps")
    warn = partial(warn_of_collapse, target=1 / math.sqrt(settings.projection))
    model.train()
    state.resumed_at = time.monotonic()
    stop.begin()
    while state.step < steps:
        step = state.step
        rate = set_rates(optimizer, settings, epoch=step // batches.steps_per_epoch)
        _, images = batches.at(step)
        draws = state.streams["pretrain/views"]
        x1, x2 = (view(images, policy, settings.crop_scale, draws) for _ in range(2))
        p1, p2, z1, z2 = model(x1, x2)
        loss = symmetric_loss(p1, p2, z1, z2)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        meter.add(step, {"loss": loss, "spread": spread(z1)})
        state.step = done = step + 1

        if done % settings.log_every == 0 or done == steps:
            meter.check()
            row = {"step": float(done), "lr": rate, **meter.row()}
            state.history.append(row)
            warn(row)
            shown.update(done, f"loss {row['loss']:.3f}, spread {row['spread']:.4f}")
        save_when_due(state, steps=steps, every=settings.checkpoint_every, save=save, stop=stop)


def warn_of_collapse(row: dict[str, float], target: float) -> None:
    if row["spread"] < COLLAPSED * target:
        say(
            f"warning: at step {row['step']:.0f} the outputs of all images are nearly equal "
            f"(spread {row['spread']:.5f}, expected about {target:.5f}); the network has collapsed"
        )
