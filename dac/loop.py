"""The training loop and its parts: optimizer, schedule, meter, stopping. No callbacks, no paths."""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dac.batches import Batches, RunData
from dac.errors import RunFailed, Stopped
from dac.inference import predict
from dac.logs import Progress
from dac.methods.base import Clock, Network
from dac.metrics import auroc, closed_set_accuracy
from dac.models.ema import Ema
from dac.settings import Train


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


class StopRequest:
    """Slurm sends SIGUSR1 or SIGTERM before it ends a job; the loop then saves and leaves."""

    def __init__(self) -> None:
        self.received: str | None = None

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._remember)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name


class Meter:
    """Sums of the loss terms and the first non-finite step of each, kept on the device.

    Nothing is copied to the host until `row` or `check`; a step costs no synchronisation.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.first_bad: dict[str, Tensor] = {}

    def add(self, step: int, terms: dict[str, Tensor]) -> None:
        for name, term in terms.items():
            term = term.detach()
            if name not in self.first_bad:
                self.first_bad[name] = torch.full_like(term, torch.inf, dtype=torch.float64)
            if name not in self.sums:
                self.sums[name], self.counts[name] = torch.zeros_like(term), 0
            self.sums[name] += term
            self.counts[name] += 1
            bad = torch.where(term.isfinite(), torch.inf, float(step))
            self.first_bad[name] = torch.minimum(self.first_bad[name], bad)

    def check(self) -> None:
        """Raise if any term was not finite, naming the first."""
        steps = {name: float(step) for name, step in self.first_bad.items()}
        name = min(steps, key=lambda name: steps[name], default="")
        if name and math.isfinite(steps[name]):
            raise RunFailed(
                f"the loss term {name!r} is not finite at step {int(steps[name])}; the run stops, "
                "the last good checkpoint stays. Lower the learning rate or that term's weight"
            )

    def row(self) -> dict[str, float]:
        """Means since the last row."""
        means = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.sums = {name: total.to(device) for name, total in state["sums"].items()}
        self.counts = dict(state["counts"])


def check_weights(network: nn.Module, step: int) -> None:
    """A finite loss can still overflow the weights; such a state must not become a checkpoint."""
    finite = torch.stack([p.isfinite().all() for p in network.parameters()])
    if not finite.all():
        names = [name for name, _ in network.named_parameters()]
        name = names[int((~finite).nonzero()[0])]
        raise RunFailed(
            f"the weights {name!r} are not finite after step {step}; the run stops, the last good "
            "checkpoint stays. Lower the learning rate"
        )


@dataclass
class Progression:
    """Everything that changes while a run trains: with the settings, the whole of a checkpoint."""

    network: Network
    optimizer: torch.optim.SGD
    ema: Ema
    streams: dict[str, torch.Generator]
    meter: Meter = field(default_factory=Meter)
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """Spent in training steps so far. This and the next are all that is not reproducible."""
    peak_memory: int = 0
    """Bytes, over all starts of the run."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema.state_dict(),
            "streams": {name: stream.get_state() for name, stream in self.streams.items()},
            "meter": self.meter.state_dict(),
            "step": self.step,
            "history": self.history,
            "best": self.best,
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.ema.load_state_dict(state["ema"])
        for name, stream in self.streams.items():
            stream.set_state(state["streams"][name])
        self.meter.load_state_dict(state["meter"], device)
        self.step, self.history = state["step"], state["history"]
        self.best, self.seconds = state["best"], state["seconds"]
        self.peak_memory = state["peak_memory"]


def evaluated_state(progress: Progression) -> dict[str, Tensor]:
    """What evaluation needs: averaged weights, current buffers, without the training-only ones."""
    state = progress.network.state_dict() | progress.ema.state_dict()
    needed = progress.network.needed_for_evaluation
    return {name: t.detach().clone() for name, t in state.items() if needed(name)}


def evaluate_closed(
    progress: Progression, data: RunData, settings: Train, device: torch.device
) -> dict[str, float]:
    """Closed-set accuracy and AUROC of the averaged weights on the test part.

    docs/protocol.md, "Model selection".
    """
    with progress.ema.swapped_in():
        out = predict(
            progress.network,
            data.test_images,
            data.policy,
            batch=settings.evaluation_batch,
            device=device,
        )
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
    network.train()
    started = time.monotonic()
    while progress.step < settings.steps:
        step = progress.step
        clock = Clock(step, settings.steps_per_epoch, settings.steps)
        if step % settings.steps_per_epoch == 0:
            network.method.start_epoch(clock)
        rate = learning_rate(settings, step)
        for group in optimizer.param_groups:
            group["lr"] = rate

        batch = batches.at(step)
        with autocast:
            terms = {name: term.mean() for name, term in network.terms(batch, clock).items()}
        total = torch.stack(list(terms.values())).sum()  # for DAC Eq. (14)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        optimizer.step()
        progress.ema.update()
        network.method.finish_step()
        meter.add(step, terms)
        progress.step = done = step + 1

        is_last = done == settings.steps
        is_evaluated = done % settings.evaluate_every == 0 or is_last
        if done % settings.log_every == 0 or is_evaluated:
            meter.check()
            row = {"step": float(done), "lr": rate, **meter.row()}
            progress.seconds += time.monotonic() - started
            if is_evaluated:
                row |= evaluate_closed(progress, data, settings, device)
                _keep_best(progress, row)
            started = time.monotonic()
            progress.history.append(row)
            shown.update(done, _note(row))
        if done % settings.checkpoint_every == 0 or is_last or stop.received:
            meter.check()
            check_weights(network, done)
            progress.seconds += time.monotonic() - started
            save(progress)
            started = time.monotonic()
        if stop.received and not is_last:
            raise Stopped(f"{stop.received} at step {done} of {settings.steps}; state saved")


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
