"""The state of a network that learns, and when it is saved: shared by `train` and `pretrain`."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from dac.errors import RunFailed, Stopped
from dac.models.ema import Ema


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


@dataclass
class Course:
    """Everything that changes while a network learns: with the settings, a whole checkpoint."""

    network: nn.Module
    optimizer: torch.optim.SGD
    ema: Ema | None
    """Averaged weights, where they are kept: pre-training has none."""
    streams: dict[str, torch.Generator]
    meter: Meter = field(default_factory=Meter)
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """Spent in training steps so far. This and the next are all that is not reproducible."""
    peak_memory: int = 0
    """Bytes, over all starts of the run."""
    resumed_at: float = field(default_factory=time.monotonic)
    """When the clock of `seconds` was last set going; not saved."""

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Evaluating and saving are not training."""
        self.seconds += time.monotonic() - self.resumed_at
        yield
        self.resumed_at = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": {} if self.ema is None else self.ema.state_dict(),
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
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        for name, stream in self.streams.items():
            stream.set_state(state["streams"][name])
        self.meter.load_state_dict(state["meter"], device)
        self.step, self.history = state["step"], state["history"]
        self.best, self.seconds = state["best"], state["seconds"]
        self.peak_memory = state["peak_memory"]


AnyCourse = TypeVar("AnyCourse", bound=Course)


def save_when_due(
    course: AnyCourse,
    *,
    steps: int,
    every: int,
    save: Callable[[AnyCourse], None],
    stop: StopRequest,
) -> None:
    """Save a state that is safe to keep every so often, at the end and when told to stop."""
    done, is_last = course.step, course.step == steps
    if done % every == 0 or is_last or stop.received:
        course.meter.check()
        check_weights(course.network, done)
        with course.off_the_clock():
            save(course)
    if stop.received and not is_last:
        raise Stopped(f"{stop.received} at step {done} of {steps}; state saved")


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
