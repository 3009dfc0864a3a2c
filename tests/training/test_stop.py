"""A signal before training has begun: nothing is lost, and the exit code says so."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from toy import TASK, called, train_here

from dac import train
from dac.io.errors import Stopped
from dac.runs import checkpoint
from dac.training.stop import StopRequest

TOP = Path(__file__).parents[2]
LAZY = ("sklearn", "scipy", "pandas", "seaborn", "umap", "torchvision", "matplotlib", "snakemake")
SIGNALLED_WHILE_IMPORTING = """
import importlib.abc, os, runpy, signal, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Finder())
runpy.run_module("{module}", run_name="__main__")
"""
IMPORTED = """
import sys
from contextlib import suppress
from dac import pretrain, train

for command in (train, pretrain):
    with suppress(SystemExit):
        command.main()
print(*{name.split(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def in_a_process(code: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": str(TOP)}
    command = [sys.executable, "-c", code, "--help"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("module", "name"), [("dac.train", "SIGUSR1"), ("dac.pretrain", "SIGTERM")]
)
def test_a_signal_while_torch_is_imported_ends_with_the_code_for_stopped(
    module: str, name: str
) -> None:
    done = in_a_process(SIGNALLED_WHILE_IMPORTING.format(signal=name, module=module))
    assert done.returncode == 75, done.stderr
    assert done.stderr == f"stopped: {name} before training began; nothing is lost\n"


def test_what_the_commands_import_after_they_listen_is_what_they_use() -> None:
    done = in_a_process(IMPORTED)
    assert "torch" in done.stderr.split(), done.stderr
    assert not set(LAZY) & set(done.stderr.split())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_data_are_read_leaves_the_state_of_before(
    number, root, params, tmp_path, monkeypatch, capsys
) -> None:
    def signalled(*_):
        os.kill(os.getpid(), number)
        pytest.fail("went on")

    monkeypatch.setattr("dac.data.run_data.load_data", signalled)
    given = {"task": TASK, "method": "dac", "seed": 1, "root": root, "params": params.path}
    options = [part for name, value in given.items() for part in (f"--{name}", value)]
    assert called(train.main, *options, "--out", tmp_path / "run", "--device", "cpu") == 75
    told = capsys.readouterr().err
    assert told == f"stopped: {number.name} before training began; nothing is lost\n"
    assert not (tmp_path / "run").exists()


def test_before_the_loop_the_first_signal_raises_and_later_ones_wait() -> None:
    stop = StopRequest()
    with pytest.raises(Stopped, match="SIGUSR1 before training began"):
        stop._remember(signal.SIGUSR1, None)
    stop._remember(signal.SIGTERM, None)  # a second one must not break off the way out
    assert stop.received == "SIGTERM"


def test_in_the_loop_a_signal_is_remembered() -> None:
    stop = StopRequest()
    stop.begin()
    stop._remember(signal.SIGUSR1, None)
    assert stop.received == "SIGUSR1"


def test_a_signal_that_something_swallowed_still_stops_the_run(
    root, params, tmp_path, monkeypatch
) -> None:
    """A finalizer, for one, may run when the signal comes; what is raised there is lost."""
    stop = StopRequest()
    with pytest.raises(Stopped):
        stop._remember(signal.SIGTERM, None)
    monkeypatch.setattr("toy.StopRequest", lambda: stop)
    with pytest.raises(Stopped, match="SIGTERM at step 1 of 12; state saved"):
        train_here(params, "fixmatch", root, tmp_path)
    (state,) = tmp_path.glob("work/*/last-*.pt")
    assert checkpoint.from_file(state)["step"] == 1
