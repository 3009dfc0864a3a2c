"""What a run leaves behind, its faults (signals, losses, full disks), and the command."""

import json
import os
import signal

import pandas as pd
import pytest
import torch
import toy
from full_disk import fill_disk
from toy import TASK, called, same_run, working

from dac.data.run_data import load_data
from dac.io.errors import RunFailed, UserError
from dac.io.files import locked, write_text
from dac.methods.dac import Dac
from dac.models.ema import Ema
from dac.runs import checkpoint
from dac.train import main

# --- a finished run -----------------------------------------------------------------------------


def test_a_finished_run_is_left_alone(root, params, undisturbed, capsys):
    folder = undisturbed("fixmatch")
    before = (folder / "model.pt").stat().st_mtime_ns
    toy.train_here(params, "fixmatch", root, folder)
    assert (folder / "model.pt").stat().st_mtime_ns == before
    assert "finished; nothing to do" in capsys.readouterr().err


def test_a_finished_model_of_another_run_is_refused(root, undisturbed, tmp_path):
    other = toy.toy_params(tmp_path, weight_decay=0.1)
    with pytest.raises(UserError, match=r"train\.weight_decay: 0\.0005 there, 0\.1 asked for"):
        toy.train_here(other, "fixmatch", root, undisturbed("fixmatch"))


def test_run_json_says_where_the_numbers_come_from(undisturbed):
    record = json.loads((undisturbed("dac") / "run.json").read_text())
    assert record["run"]["task"]["name"] == TASK
    assert len(record["run"]["split_hash"]) == 64
    assert record["provenance"]["packages"]["torch"] == torch.__version__
    assert record["views_per_second"] > 0 and record["peak_memory_bytes"] > 0


def test_history_has_losses_and_evaluations(undisturbed):
    history = pd.read_csv(undisturbed("dac") / "history.csv")
    assert list(history["step"]) == [2, 4, 5, 6, 8, 10, 12]
    assert history.loc[history["step"] >= 6, "distillation"].notna().all()
    evaluated = history.dropna(subset="closed_accuracy")
    assert list(evaluated["step"]) == [5, 10, 12]
    assert evaluated["closed_accuracy"].between(0, 1).all()


# --- faults -------------------------------------------------------------------------------------


def test_weights_that_overflow_are_not_saved(root, params, tmp_path, monkeypatch):
    update, calls = Ema.update, []

    def overflow(self):
        calls.append(None)
        if len(calls) == 6:  # the last thing before step 6 is saved; its losses were finite
            next(iter(self.live.values())).data.fill_(float("inf"))
        update(self)

    monkeypatch.setattr(Ema, "update", overflow)
    with pytest.raises(RunFailed, match=r"weights 'backbone.* are not finite after step 6"):
        toy.train_here(params, "fixmatch", root, tmp_path)
    assert checkpoint.newest(working(tmp_path))["step"] == 3


@pytest.mark.parametrize("term", ["supervised", "distillation"])
def test_a_loss_that_is_not_finite_stops_with_step_and_term(
    term, root, params, tmp_path, monkeypatch
):
    terms = Dac.terms

    def poisoned(self, step):
        found = terms(self, step)
        if step.clock.step >= 7:
            found[term] = found[term] * float("nan")
        return found

    monkeypatch.setattr(Dac, "terms", poisoned)
    with pytest.raises(RunFailed, match=f"'{term}' is not finite at step 7"):
        toy.train_here(params, "dac", root, tmp_path)
    assert checkpoint.newest(working(tmp_path))["step"] == 6, "the last good checkpoint stays"
    assert not (tmp_path / "model.pt").exists()


def test_a_full_disk_leaves_nothing_that_looks_finished(
    root, params, tmp_path, undisturbed, monkeypatch
):
    fill_disk(monkeypatch, lambda path: "last-" in path.name)
    with pytest.raises(UserError, match=r"no space left while writing .*Free some space"):
        toy.train_here(params, "dac", root, tmp_path)
    assert not any(p.is_file() for p in tmp_path.rglob("*"))
    monkeypatch.undo()
    toy.train_here(params, "dac", root, tmp_path)
    same_run(tmp_path, undisturbed("dac"))


def test_a_run_that_was_killed_while_writing_leaves_nothing_when_it_has_finished(
    root, params, tmp_path
):
    toy.train_and_kill(toy.toy_params(tmp_path, checkpoint_every=1), "dac", root, tmp_path, 2)
    for name in ("history.csv", "run.json", "model.pt"):
        (tmp_path / f".{name}.7.0123abcd.partial").write_bytes(b"half")
    (working(tmp_path) / ".last-000000009-0123456789abcdef.pt.7.0123abcd.partial").write_bytes(b"")
    toy.train_here(params, "dac", root, tmp_path)
    assert not list(tmp_path.rglob(".*.partial"))


def test_a_disk_that_fills_at_the_end_keeps_the_state_and_no_model(
    root, params, tmp_path, undisturbed, monkeypatch
):
    fill_disk(monkeypatch, lambda path: "model.pt" in path.name)
    with pytest.raises(UserError, match=r"no space left while writing .*model\.pt"):
        toy.train_here(params, "dac", root, tmp_path)
    assert not (tmp_path / "model.pt").exists()
    assert checkpoint.newest(working(tmp_path))["step"] == 12
    monkeypatch.undo()
    toy.train_here(params, "dac", root, tmp_path)
    same_run(tmp_path, undisturbed("dac"))


def test_a_place_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*give another folder"):
        write_text(tmp_path / "file" / "below" / "x.csv", "content")


def test_a_missing_split_names_the_command_that_makes_it(root, params):
    with pytest.raises(UserError, match=r"does not exist; run `python -m dac\.split --task digits"):
        load_data(params.run(TASK, "dac", 77), root)


# --- the command (the workflow's tests start it as a process of its own) ------------------------


def options(**changes):
    """Options of the command, as a flat list."""
    given = {"task": TASK, "method": "dac", "seed": 1, "device": "cpu"} | changes
    return [part for name, value in given.items() for part in (f"--{name}", value)]


def test_two_processes_cannot_write_one_run_folder(root, params, tmp_path, capsys):
    out = tmp_path / "run"
    with locked(out / "work", "run folder"):
        assert called(main, *options(params=params.path, root=root, out=out)) == 2
    told = capsys.readouterr().err
    assert f"in use by process {os.getpid()}" in told and "Traceback" not in told
    assert not (out / "model.pt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_leaves_with_the_code_for_stopped(number, root, tmp_path):
    params = toy.toy_params(tmp_path, epochs=5000, checkpoint_every=20)
    out, log = tmp_path / "run", tmp_path / "log"
    given = options(params=params.path, root=root, out=out)
    assert toy.code_when_signalled(lambda: called(main, *given), out, log, number) == 75
    told = log.read_text()
    assert f"stopped: {number.name} at step" in told and "Traceback" not in told
    assert f"at step {checkpoint.newest(working(out))['step']} of" in told


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("task", "digits-6-31", "did you mean 'digits-6-30'"),
        ("method", "dacc", "did you mean 'dac'"),
        ("seed", "-1", "seed -1"),
        ("device", "tpu9", "try --device cpu"),
        ("device", "meta", "accepted are auto, cpu, cuda"),
        ("root", "nowhere", "python -m dac.prepare --data digits"),
        ("params", "absent.yaml", "absent.yaml does not exist"),
        ("out", "params.yaml/run", "cannot write params.yaml/run/work/lock"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(
    option, value, told, root, params, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(params.path.parent)
    given = {"root": root, "out": tmp_path / "run", "params": params.path} | {option: value}
    assert called(main, *options(**given)) == 2
    said = capsys.readouterr().err
    assert told in said and said.startswith("error: ")
    assert "Traceback" not in said
