"""Toy runs for integration tests: digits, a small network, a dozen steps.

Runs are stopped, killed and compared here, and stages are called as commands.
"""

import copy
import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from toy_runs import PARAMS, PHASES

from dac.config import Params, load
from dac.data import prepared, split_file, splits
from dac.data.prepare import prepare
from dac.data.run_data import RunData, load_data
from dac.io.device import choose_device
from dac.io.errors import exit_code_of
from dac.runs import checkpoint
from dac.training.meter import Meter
from dac.training.run import train
from dac.training.state import StopRequest

TASK = "digits-6-30"
METHODS = (
    "labeled-only",
    "fixmatch",
    "mixmatch",
    "comatch",
    "simmatch",
    "simmatch-released",
    "softmatch",
    "mtcf",
    "openmatch",
    "safe-student",
    "osp",
    "ssb",
    "iomatch-aligned",
    "uagreg",
    "dac",
    "dac-released",
    "mixmatch+dac",
    "simmatch+dac",
    "softmatch+dac",
)
TRAIN = {
    "steps_per_epoch": 4,
    "epochs": 3,
    "batch": 6,
    "mu": 2,
    "evaluate_every": 5,
    "checkpoint_every": 3,
    "log_every": 2,
}
# Every memory holds something that decides a later step, so that a resume must restore it.
FILLED: dict[str, dict[str, Any]] = {
    "mtcf": {"history": 2},  # targets move in the third epoch, the last of the shortest runs
    "comatch": {"tau": 0.3, "graph_tau": 0.2, "queue_batches": 2, "alignment_batches": 3},
    "softmatch": {"momentum": 0.5},
    "osp": {"out_share": 1.0, "out_below": 1.0, "bank_confidence": 1.0},
}
CPU = torch.device("cpu")


def toy_params(folder: Path, **train: Any) -> Params:
    """The project's parameters with a digits budget of twelve steps."""
    raw = copy.deepcopy(_written())
    raw["train"]["by_data"]["digits"] |= TRAIN | train
    for entry in raw["methods"].values():
        entry.get("train_by_data", {}).pop("digits", None)
        name = entry.get("method", "")
        if changes := PHASES.get(name, {}) | FILLED.get(name, {}):
            entry.setdefault("by_data", {}).setdefault("digits", {}).update(changes)
    path = folder / "params.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.dump(raw, Dumper=yaml.CSafeDumper))
    return load(path)


@cache
def _written() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(PARAMS.path.read_text(), yaml.CSafeLoader)
    return found


def toy_root(folder: Path) -> Path:
    """A data folder with digits prepared and the split of seed 1."""
    root, settings = folder / "data", PARAMS.file
    prepare(root, "digits", settings.prepare["digits"], settings.download.sets["digits"])
    add_split(root, TASK, PARAMS)
    return root


def add_split(root: Path, task: str, params: Params) -> None:
    labels = split_file.train_labels(prepared.load(root, "digits"))
    made = splits.make(task, params.task(task), 1, labels)
    split_file.save(made, split_file.default_path(root, task, 1))


def toy_data(params: Params, method: str, root: Path) -> RunData:
    choose_device("cpu")
    return load_data(params.run(TASK, method, 1), root)


def train_here(params: Params, method: str, root: Path, out: Path) -> None:
    """The whole run in this process."""
    data = toy_data(params, method, root)
    train(params.run(TASK, method, 1), data, out, CPU, StopRequest())


def finished(params: Params, method: str, root: Path) -> Path:
    """The folder of an undisturbed run, trained when first asked for; copy it before a change."""
    folder = root.parent / "finished" / params.path.parent.name / method
    if not (folder / "model.pt").exists():
        train_here(params, method, root, folder)
    return folder


# --- stops and kills ----------------------------------------------------------------------------


@contextmanager
def stopping(done: int, name: str = "SIGTERM") -> Iterator[StopRequest]:
    """A stop that is asked for when exactly this many steps are done."""
    stop, add = StopRequest(), Meter.add

    def add_and_stop(self: Meter, step: int, terms: dict[str, torch.Tensor]) -> None:
        add(self, step, terms)
        stop.received = name if step + 1 == done else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Meter, "add", add_and_stop)
        yield stop


def train_and_kill(params: Params, method: str, root: Path, out: Path, at_step: int) -> bool:
    """Train in a child that kill -9 hits within 10 ms after step `at_step` was saved.

    The child carries the timer itself: a parent that polls could come too late on a busy machine.
    """
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(120, exit=True, file=os.dup(2))  # a child that hangs
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        save, delay = checkpoint.save, random.Random(at_step).uniform(0, 0.01)

        def save_and_die_soon(folder: Path, step: int, state: dict[str, Any]) -> Path:
            path = save(folder, step, state)
            if step >= at_step:
                threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return path

        checkpoint.save = save_and_die_soon
        try:
            train_here(params, method, root, out)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def code_when_signalled(command: Callable[[], int], out: Path, log: Path, number: int) -> int:
    """Run a command in a child, send it a signal after its first checkpoint: its exit code."""
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(120, exit=True, file=os.dup(2))
        code = 99
        try:
            sys.stderr = log.open("w", buffering=1)
            code = command()
        finally:
            os._exit(code)
    while not list(out.glob("work/*/last-*.pt")):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), log.read_text()
        time.sleep(0.02)
    os.kill(child, number)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def called(main: Callable[[], None], *options: object) -> int:
    """Call a stage as a command, in this process: its exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["a stage", *map(str, options)])
        try:
            return exit_code_of(main)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


# --- comparing runs -----------------------------------------------------------------------------


def same(a: Any, b: Any, path: str = "") -> None:
    """Bit-equality of nested states; says where they differ."""
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for index, pair in enumerate(zip(a, b, strict=True)):
            same(*pair, f"{path}[{index}]")
    else:
        assert a == b, path


def same_run(a: Path, b: Path) -> None:
    same(checkpoint.from_file(a / "model.pt"), checkpoint.from_file(b / "model.pt"))
    assert (a / "model.pt").read_bytes() == (b / "model.pt").read_bytes()
    assert (a / "history.csv").read_text() == (b / "history.csv").read_text()


def working(out: Path) -> Path:
    """The only folder of working state in a run folder."""
    (folder,) = (path for path in (out / "work").iterdir() if path.is_dir())
    return folder
