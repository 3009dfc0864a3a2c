"""The training loop, its optimizer and schedule. No callbacks, no paths."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dac.config import Train
from dac.data.images import Images
from dac.data.run_data import RunData
from dac.evaluation.inference import predict
from dac.io.progress import Progress
from dac.methods.network import Network
from dac.methods.step import Clock
from dac.metrics import auroc, closed_set_accuracy
from dac.models.ema import Ema
from dac.runs.checkpoint import misfit
from dac.training.batches import Batches
from dac.training.pool_scan import PoolScan
from dac.training.state import TrainState, save_when_due
from dac.training.stop import StopRequest


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
class MethodState(TrainState):
    """The state of one run of a method."""

    network: Network
    ema: Ema

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        super().load_state_dict(state, device)
        if self.best and not {"step", "closed_accuracy"} <= self.best.keys():
            raise ValueError("best: step or closed_accuracy is missing")
        if self.best and (fault := misfit(self.best.get("network"), evaluated_state(self))):
            raise ValueError(f"best: {fault}")


def evaluated_state(state: MethodState) -> dict[str, Tensor]:
    """What evaluation needs, on the host: averaged weights, buffers but those for training only."""
    tensors = state.network.state_dict() | state.ema.state_dict()
    needed = state.network.needed_for_evaluation
    return {name: t.detach().to("cpu", copy=True) for name, t in tensors.items() if needed(name)}


def evaluate_closed(
    state: MethodState, test_images: Images, data: RunData, batch: int
) -> dict[str, float]:
    """Closed-set accuracy and AUROC of the averaged weights on the test part.

    docs/protocol/training.md, "Model selection".
    """
    with state.ema.swapped_in():
        out = predict(state.network, test_images, data.policy, batch=batch)
    return {
        "closed_accuracy": closed_set_accuracy(data.test_labels, out.predictions, data.num_known),
        "auroc": auroc(data.is_known_test, out.scores),
    }


def fit(
    state: MethodState,
    batches: Batches,
    data: RunData,
    settings: Train,
    *,
    device: torch.device,
    save: Callable[[MethodState], None],
    stop: StopRequest,
    label: str = "training",
) -> None:
    """Train from `state.step` to the end. `save` is called with a state that is safe to keep."""
    network, optimizer, meter = state.network, state.optimizer, state.meter
    shown = Progress(label, settings.steps, done=state.step, unit=" steps")
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16")
    views, evaluated_at_once = state.streams["unlabeled_views"], settings.evaluation_batch
    scan = PoolScan(network, state.ema, batches.images, data, views, evaluated_at_once)
    test_images = Images(data.test_images, device, settings.workers)
    network.train()
    state.resumed_at = time.monotonic()
    stop.begin()
    while state.step < settings.steps:
        step = state.step
        clock = Clock(step, settings.steps_per_epoch, settings.steps)
        if step % settings.steps_per_epoch == 0:
            with torch.no_grad():
                network.method.start_epoch(clock, scan)
        phase = network.method.settings.phase(clock.epoch)
        rate = learning_rate(settings, step)
        for group in optimizer.param_groups:
            group["lr"] = rate

        batch = batches.at(step)
        with autocast:
            terms = {
                name: term.mean() for name, term in network.terms(batch, clock, state.ema).items()
            }
        total = torch.stack(list(terms.values())).sum()  # for DAC Eq. (14)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        optimizer.step()
        state.ema.update() if phase.averages else state.ema.follow()
        network.finish_step()
        meter.add(step, terms)
        state.step = done = step + 1

        is_evaluated = done % settings.evaluate_every == 0 or done == settings.steps
        if done % settings.log_every == 0 or is_evaluated:
            meter.check()
            row = {"step": float(done), "lr": rate, **meter.row()}
            if is_evaluated:
                with state.off_the_clock():
                    row |= evaluate_closed(state, test_images, data, evaluated_at_once)
                    is_last_chance = done == settings.steps and not state.best
                    if phase.selectable or is_last_chance:
                        _keep_best(state, row)
            state.history.append(row)
            shown.update(done, _note(row))
        save_when_due(
            state, steps=settings.steps, every=settings.checkpoint_every, save=save, stop=stop
        )


def _keep_best(state: MethodState, row: dict[str, float]) -> None:
    """Best is strictly better than all before it (docs/protocol/training.md, "Model selection")."""
    accuracy = row["closed_accuracy"]
    if not state.best or accuracy > state.best["closed_accuracy"]:
        state.best = {
            "step": int(row["step"]),
            "closed_accuracy": accuracy,
            "network": evaluated_state(state),
        }


def _note(row: dict[str, float]) -> str:
    losses = [v for k, v in row.items() if k not in ("step", "lr", "closed_accuracy", "auroc")]
    note = f"loss {sum(losses):.3f}"
    if "closed_accuracy" in row:
        note += f", closed {100 * row['closed_accuracy']:.1f}%, AUROC {row['auroc']:.3f}"
    return note
