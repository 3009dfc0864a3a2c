"""Toy runs for integration tests: digits, a small network, a dozen steps."""

import faulthandler
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import torch
import yaml
from toy_runs import STAGES

from dac import checkpoint, split
from dac.batches import RunData
from dac.course import StopRequest
from dac.data import prepared
from dac.params import Params, load
from dac.prepare import prepare
from dac.train import choose_device, load_data, train

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
    raw = yaml.safe_load(Path("params.yaml").read_text())
    raw["train"]["by_data"]["digits"] |= TRAIN | train
    for entry in raw["methods"].values():
        entry.get("train_by_data", {}).pop("digits", None)
        name = entry.get("method", "")
        if changes := STAGES.get(name, {}) | FILLED.get(name, {}):
            entry.setdefault("by_data", {}).setdefault("digits", {}).update(changes)
    path = folder / "params.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(raw))
    return load(path)


def toy_root(folder: Path) -> Path:
    """A data folder with digits prepared and the split of seed 1."""
    root, params = folder / "data", load()
    settings = params.file
    prepare(root, "digits", settings.prepare["digits"], settings.download.sets["digits"])
    labels = split.train_labels(prepared.load(root, "digits"))
    split.save(split.make(TASK, params.task(TASK), 1, labels), split.default_path(root, TASK, 1))
    return root


def toy_data(params: Params, method: str, root: Path) -> RunData:
    choose_device("cpu")
    return load_data(params.run(TASK, method, 1), root)


def train_here(params: Params, method: str, root: Path, out: Path) -> None:
    """The whole run in this process."""
    data = toy_data(params, method, root)
    train(params.run(TASK, method, 1), data, out, CPU, StopRequest())


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
