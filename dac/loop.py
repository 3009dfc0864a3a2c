"""The training loop, its optimizer and schedule. No callbacks, no paths."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dac.batches import Batches, RunData
from dac.course import Course, StopRequest, save_when_due
from dac.images import Images
from dac.inference import predict
from dac.logs import Progress
from dac.methods.base import Network
from dac.metrics import auroc, closed_set_accuracy
from dac.models.ema import Ema
from dac.scan import PoolScan
from dac.settings import Train
from dac.step import Clock


def learning_rate(settings: Train, step: int) -> float:
    """lr cos(7 pi k / 16 T), as FixMatch: ends at a fifth, not at zero."""
    return settings.lr * max(0.0, math.cos(settings.cosine * math.pi * step / settings.steps))


def make_optimizer(network: nn.Module, settings: Train) -> torch.optim.SGD:
    """SGD; parameters of one dimension (norms, biases) are not decayed."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1]},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
    )


@dataclass
class Progression(Course):
    """The course of one run of a method."""

    network: Network
    ema: Ema


def evaluated_state(progress: Progression) -> dict[str, Tensor]:
    """What evaluation needs: averaged weights, current buffers, without the training-only ones."""
    state = progress.network.state_dict() | progress.ema.state_dict()
    needed = progress.network.needed_for_evaluation
    return {name: t.detach().clone() for name, t in state.items() if needed(name)}


def evaluate_closed(
    progress: Progression, test_images: Images, data: RunData, batch: int
) -> dict[str, float]:
    """Closed-set accuracy and AUROC of the averaged weights on the test part.

    docs/protocol.md, "Model selection".
    """
    with progress.ema.swapped_in():
        out = predict(progress.network, test_images, data.policy, batch=batch)
    return {
        "closed_accuracy": closed_set_accuracy(data.test_labels, out.predictions, data.num_known),
        "auroc": auroc(data.is_known_test, out.scores),
    }


def fit(
    progress: Progression,
    batches: Batches,
    data: RunData,
    settings: Train,
    *,
    device: torch.device,
    save: Callable[[Progression], None],
    stop: StopRequest,
    label: str = "training",
) -> None:
    """Train from `progress.step` to the end. `save` is called with a state that is safe to keep."""
    network, optimizer, meter = progress.network, progress.optimizer, progress.meter
    shown = Progress(label, settings.steps, done=progress.step, unit=" steps")
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16")
    views, evaluated_at_once = progress.streams["unlabeled_views"], settings.evaluation_batch
    scan = PoolScan(network, progress.ema, batches.images, data, views, evaluated_at_once)
    test_images = Images(data.test_images, device, settings.workers)
    network.train()
    progress.resumed_at = time.monotonic()
    while progress.step < settings.steps:
        step = progress.step
        clock = Clock(step, settings.steps_per_epoch, settings.steps)
        if step % settings.steps_per_epoch == 0:
            network.method.start_epoch(clock, scan)
        rate = learning_rate(settings, step)
        for group in optimizer.param_groups:
            group["lr"] = rate

        batch = batches.at(step)
        with autocast:
            terms = {
                name: term.mean()
                for name, term in network.terms(batch, clock, progress.ema).items()
            }
        total = torch.stack(list(terms.values())).sum()  # for DAC Eq. (14)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        optimizer.step()
        progress.ema.update() if network.method.averages(clock) else progress.ema.follow()
        network.method.finish_step()
        meter.add(step, terms)
        progress.step = done = step + 1

        is_evaluated = done % settings.evaluate_every == 0 or done == settings.steps
        if done % settings.log_every == 0 or is_evaluated:
            meter.check()
            row = {"step": float(done), "lr": rate, **meter.row()}
            if is_evaluated:
                with progress.off_the_clock():
                    row |= evaluate_closed(progress, test_images, data, evaluated_at_once)
                    is_last_chance = done == settings.steps and not progress.best
                    if network.method.is_selectable(clock) or is_last_chance:
                        _keep_best(progress, row)
            progress.history.append(row)
            shown.update(done, _note(row))
        save_when_due(
            progress, steps=settings.steps, every=settings.checkpoint_every, save=save, stop=stop
        )


def _keep_best(progress: Progression, row: dict[str, float]) -> None:
    """Best is strictly better than all before it (docs/protocol.md, "Model selection")."""
    accuracy = row["closed_accuracy"]
    if not progress.best or accuracy > progress.best["closed_accuracy"]:
        progress.best = {
            "step": int(row["step"]),
            "closed_accuracy": accuracy,
            "network": evaluated_state(progress),
        }


def _note(row: dict[str, float]) -> str:
    losses = [v for k, v in row.items() if k not in ("step", "lr", "closed_accuracy", "auroc")]
    note = f"loss {np.sum(losses):.3f}"
    if "closed_accuracy" in row:
        note += f", closed {100 * row['closed_accuracy']:.1f}%, AUROC {row['auroc']:.3f}"
    return note
