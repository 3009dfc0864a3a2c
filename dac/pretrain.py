"""Stage `pretrain`: a backbone that has seen all training images of a data set and no label.

    python -m dac.pretrain --data semi-inat-2021 --backbone resnet18 \
        --out pretrained/semi-inat-2021/resnet18

Leaves model.pt (the backbone), history.csv and run.json in --out; stopped and started again it
goes on to the same bits, as `train` does. Runs with `train.initial: simsiam` start from model.pt.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from dac.augment import Policy
from dac.batches import Stream, policy
from dac.checkpoint import RunFolder
from dac.course import Course, StopRequest, save_when_due
from dac.data import prepared
from dac.errors import UserError, exit_code_of
from dac.files import locked
from dac.images import Images
from dac.logs import Progress, say
from dac.models import build_backbone
from dac.params import DEFAULT_PATH, PretrainRun, load
from dac.recording import finish, keep, resume
from dac.seeds import generator, seeded
from dac.settings import Backbone, DataName, Pretrain
from dac.simsiam import SimSiam, make_optimizer, set_rates, spread, symmetric_loss
from dac.simsiam_views import view
from dac.train import choose_device

STREAMS = ("pretrain/weights", "pretrain/views")
COLLAPSED = 0.1  # share of the spread of outputs that fill the sphere


@dataclass
class Pretraining(Course):
    network: SimSiam


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.pretrain", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data", required=True, choices=get_args(DataName))
    parser.add_argument("--backbone", required=True, choices=get_args(Backbone))
    parser.add_argument("--out", type=Path, required=True, help="folder of the network")
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the data")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    options = parser.parse_args()

    run = load(options.params).pretrain(options.data, options.backbone)
    device = choose_device(options.device)
    images = prepared.load(options.root, options.data).part("train").images
    stop = StopRequest()
    stop.listen()
    with locked(options.out / "work", "run folder"):
        pretrain(run, images, options.out, device, stop)


def pretrain(
    run: PretrainRun, images: np.ndarray, out: Path, device: torch.device, stop: StopRequest
) -> None:
    """Pre-train (or go on) into `out`; a finished network is left alone."""
    folder = RunFolder(out, run.identity())
    if folder.is_finished():
        return
    batches = all_images(images, run, device)
    steps = run.settings.epochs * batches.steps_per_epoch
    course, state = start(run, device), folder.newest()
    if state is not None:
        resume(course, state, folder, steps, device)
    save = partial(keep, folder=folder, device=device)
    label = f"{run.data_name}/{run.backbone}"
    began = time.time()
    fit(course, batches, policy(run.data), run.settings, save=save, stop=stop, label=label)
    finish(
        course,
        folder,
        run=run.identity() | {"pretrain": run.settings.model_dump(mode="json")},
        model={"backbone": course.network.backbone.state_dict()},
        views=2 * run.settings.batch * steps,
        device=device,
        began=began,
    )


def all_images(images: np.ndarray, run: PretrainRun, device: torch.device) -> Stream:
    """Labeled or not, known or not; an epoch passes over all but the last incomplete batch."""
    batch = run.settings.batch
    if len(images) < batch:
        raise UserError(
            f"data set {run.data_name} has {len(images)} training images, less than a batch of "
            f"{batch}; lower pretrain.by_data.{run.data_name}.batch"
        )
    return Stream(
        Images(images, device, run.settings.workers),
        np.arange(len(images)),
        batch=batch,
        steps_per_epoch=len(images) // batch,
    )


def start(run: PretrainRun, device: torch.device) -> Pretraining:
    streams = {name: generator(run.settings.seed, name) for name in STREAMS}
    with seeded(streams["pretrain/weights"]):
        model = SimSiam(build_backbone(run.backbone, zero_residuals=True), run.settings)
    model.to(device)
    if device.type == "cuda":
        model.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Pretraining(model, make_optimizer(model, run.settings), ema=None, streams=streams)


def fit(
    course: Pretraining,
    batches: Stream,
    policy: Policy,
    settings: Pretrain,
    *,
    save: Callable[[Pretraining], None],
    stop: StopRequest,
    label: str,
) -> None:
    """Train from `course.step` to the end."""
    model, optimizer, meter = course.network, course.optimizer, course.meter
    steps = settings.epochs * batches.steps_per_epoch
    shown = Progress(label, steps, done=course.step, unit=" steps")
    warn = partial(warn_of_collapse, target=1 / math.sqrt(settings.projection))
    model.train()
    course.resumed_at = time.monotonic()
    while course.step < steps:
        step = course.step
        rate = set_rates(optimizer, settings, epoch=step // batches.steps_per_epoch)
        _, images = batches.at(step)
        draws = course.streams["pretrain/views"]
        x1, x2 = (view(images, policy, settings.crop_scale, draws) for _ in range(2))
        p1, p2, z1, z2 = model(x1, x2)
        loss = symmetric_loss(p1, p2, z1, z2)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        meter.add(step, {"loss": loss, "spread": spread(z1)})
        course.step = done = step + 1

        if done % settings.log_every == 0 or done == steps:
            meter.check()
            row = {"step": float(done), "lr": rate, **meter.row()}
            course.history.append(row)
            warn(row)
            shown.update(done, f"loss {row['loss']:.3f}, spread {row['spread']:.4f}")
        save_when_due(course, steps=steps, every=settings.checkpoint_every, save=save, stop=stop)


def warn_of_collapse(row: dict[str, float], target: float) -> None:
    if row["spread"] < COLLAPSED * target:
        say(
            f"warning: at step {row['step']:.0f} the outputs of all images are nearly equal "
            f"(spread {row['spread']:.5f}, expected about {target:.5f}); the network has collapsed"
        )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
