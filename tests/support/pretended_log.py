"""What a pretended CUDA device was asked to do: launches, and times the host had to wait for it."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import dac
from dac.training import pretraining
from dac.training.batches import Batches, ImageStream
from dac.training.meter import Meter

PACKAGE = dac.__file__.removesuffix("__init__.py")


@dataclass(frozen=True)
class Sync:
    """A moment at which the host waits for the device."""

    kind: str
    """`value` (read by the host, or a shape that depends on values), `to host`, `to device` (from
    memory that is not pinned, or a copy that waits) or `synchronize`."""
    operation: str
    place: str
    """File and line of the package."""


@dataclass
class Log:
    """Counts since it was made or last `reset`."""

    operations: Counter[Any] = field(default_factory=Counter)
    """How often each operation of `torch.ops` was launched. Views and allocations are none."""
    syncs: list[Sync] = field(default_factory=list)

    @property
    def launches(self) -> int:
        return self.operations.total()

    def reset(self) -> None:
        self.operations, self.syncs = Counter(), []

    def wait(self, kind: str, operation: str) -> None:
        self.syncs.append(Sync(kind, operation, _place()))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out what happens inside the block."""
        kept = self.operations, self.syncs
        self.reset()
        try:
            yield
        finally:
            self.operations, self.syncs = kept


def _place() -> str:
    """The innermost line of the package that is being run; backward passes have the loop's."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            return f"dac/{path.removeprefix(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside the package"


# --- steps ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepLog:
    """One training step, from drawing its batch to adding its losses to the meter."""

    launches: int
    drawing: int
    """How many of them draw the batch."""
    operations: Counter[Any]
    syncs: list[Sync]


class _Steps:
    """Turns calls of the package's functions into steps."""

    def __init__(self, log: Log) -> None:
        self.log, self.found = log, list[StepLog]()
        self.is_inside, self.drawing, self.depth = False, 0, 0

    def drawn(self, draw: Callable[..., Any]) -> Callable[..., Any]:
        """`draw`, which begins a step; draws may call one another."""

        def drawing(*given: Any, **named: Any) -> Any:
            if not self.is_inside:
                self.log.reset()
                self.is_inside, self.drawing = True, 0
            before, self.depth = self.log.launches, self.depth + 1
            try:
                return draw(*given, **named)
            finally:
                self.depth -= 1
                self.drawing += self.log.launches - before if self.depth == 0 else 0

        return drawing

    def aside(self, once: Callable[..., Any]) -> Callable[..., Any]:
        """What a draw does once per epoch, which may wait."""

        def apart(*given: Any) -> Any:
            with self.log.aside():
                return once(*given)

        return apart

    def ending(self, last: Callable[..., Any]) -> Callable[..., Any]:
        """`last`, which ends a step."""

        def end(*given: Any) -> Any:
            done = last(*given)
            log, self.is_inside = self.log, False
            step = StepLog(log.launches, self.drawing, log.operations, log.syncs)
            self.found.append(step)
            log.reset()
            return done

        return end


@contextmanager
def logged_steps(log: Log) -> Iterator[list[StepLog]]:
    """Every step of training and pre-training inside the block, as it ends."""
    steps = _Steps(log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImageStream, "_start", steps.aside(ImageStream._start))
        for place, name in ((Batches, "at"), (ImageStream, "at"), (pretraining, "view")):
            patch.setattr(place, name, steps.drawn(getattr(place, name)))
        patch.setattr(Meter, "add", steps.ending(Meter.add))
        yield steps.found
