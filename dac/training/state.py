"""The state of a network in training and the files it leaves, for `train` and `pretrain`."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from dac.io.errors import RunFailed, Stopped, UserError, reason
from dac.io.files import csv_text, write_json, write_text
from dac.io.progress import say
from dac.models.ema import Ema
from dac.runs.checkpoint import misfit
from dac.runs.folder import RunFolder
from dac.runs.provenance import peak_memory_bytes, provenance
from dac.training.meter import Meter
from dac.training.stop import StopRequest


@dataclass
class TrainState:
    """Everything that changes during training; together with the settings, a whole checkpoint."""

    network: nn.Module
    optimizer: torch.optim.SGD
    ema: Ema | None
    """Averaged weights; None in pre-training."""
    streams: dict[str, torch.Generator]
    meter: Meter = field(default_factory=Meter)
    step: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    """Time spent in training steps. This and the next field are all that is not reproducible."""
    peak_memory: int = 0
    """In bytes, over all starts of the run."""
    resumed_at: float = field(default_factory=time.monotonic)
    """When the clock of `seconds` was last started; not saved."""

    @contextmanager
    def off_the_clock(self) -> Iterator[None]:
        """Stop the clock: evaluating and saving are not training."""
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
        self._check(state)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._check_optimizer()
        if self.ema is not None:
            self.ema.load_state_dict(state["ema"])
        for name, stream in self.streams.items():
            stream.set_state(state["streams"][name])
        self.meter.load_state_dict(state["meter"], device)
        self.step, self.history = state["step"], state["history"]
        self.best, self.seconds = state["best"], state["seconds"]
        self.peak_memory = state["peak_memory"]

    def _check(self, state: dict[str, Any]) -> None:
        """Raise if a part is missing, or is not of the shape or the type of ours."""
        own = self.state_dict()
        for part in own:
            if type(state.get(part)) is not type(own[part]) and part != "network":
                raise ValueError(f"{part} is missing, or no {type(own[part]).__name__}")
        for part in ("network", "ema", "streams"):
            if fault := misfit(state.get(part), own[part]):
                raise ValueError(f"{part}: {fault}")

    def _check_optimizer(self) -> None:
        """PyTorch would notice only in the next step."""
        for group in self.optimizer.param_groups:
            if missing := self.optimizer.defaults.keys() - group.keys():
                raise ValueError(f"optimizer: {min(missing)} is missing")
        for parameter, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if isinstance(value, torch.Tensor) and value.shape != parameter.shape:
                    shapes = f"{tuple(value.shape)}, expected {tuple(parameter.shape)}"
                    raise ValueError(f"optimizer: {name} is {shapes}")


AnyState = TypeVar("AnyState", bound=TrainState)


def save_when_due(
    state: AnyState,
    *,
    steps: int,
    every: int,
    save: Callable[[AnyState], None],
    stop: StopRequest,
) -> None:
    """Save a state that is safe to keep: regularly, at the end and when asked to stop."""
    done, is_last = state.step, state.step == steps
    if done % every == 0 or is_last or stop.received:
        state.meter.check()
        check_weights(state.network, done)
        with state.off_the_clock():
            save(state)
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


# --- files ------------------------------------------------------------------------------------


def resume(
    state: TrainState, saved: dict[str, Any], folder: RunFolder, steps: int, device: torch.device
) -> None:
    """Load what was saved. A state that does not fit stays: other code may have written it."""
    try:
        state.load_state_dict(saved, device)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(
            f"the state in {folder.work} does not fit this run ({reason(error)}); go back to the "
            "code that wrote it, or delete that folder to start over"
        ) from error
    say(f"resuming {folder.out} at step {state.step} of {steps}")


def keep(state: TrainState, folder: RunFolder, device: torch.device) -> None:
    state.peak_memory = max(state.peak_memory, peak_memory_bytes(device))
    folder.save(state.step, state.state_dict())
    write_text(folder.work / "history.csv", history_csv(state))


def finish(
    state: TrainState,
    folder: RunFolder,
    *,
    run: dict[str, Any],
    model: dict[str, Any],
    views: int,
    device: torch.device,
    began: float,
) -> None:
    """Write the results; model.pt comes last and marks the run as finished."""
    write_text(folder.out / "history.csv", history_csv(state))
    write_json(
        folder.out / "run.json",
        {
            "run": run,
            "provenance": provenance(device),
            "finished_unix": time.time(),
            "wall_seconds_of_last_start": time.time() - began,
            "training_seconds": state.seconds,
            "views_per_second": views / max(state.seconds, 1e-9),
            "peak_memory_bytes": state.peak_memory,
        },
    )
    folder.finish(model)


def history_csv(state: TrainState) -> str:
    """A row per log line; a column that a row lacks, and NaN, are empty."""
    columns = list(dict.fromkeys(name for row in state.history for name in row))

    def cell(row: dict[str, float], name: str) -> float | int | None:
        value = row.get(name)
        if value is None or math.isnan(value):
            return None
        return int(value) if name == "step" else value

    return csv_text(columns, [[cell(row, name) for name in columns] for row in state.history])
