"""Resume to the last bit, and every fault of a run: kills, signals, damage, full disks."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
import toy
from full_disk import fill_disk
from toy import METHODS, TASK

from dac import checkpoint
from dac.course import Meter, StopRequest
from dac.errors import RunFailed, Stopped, UserError
from dac.files import locked, write_text
from dac.train import load_data, train

STAGE_2 = toy.TRAIN["steps_per_epoch"]  # the first step of whatever begins after one epoch


@pytest.fixture(scope="module")
def undisturbed(root, params, tmp_path_factory):
    """Folder of an uninterrupted run per method, made when first asked for."""
    made = {}

    def folder(method):
        if method not in made:
            made[method] = tmp_path_factory.mktemp("undisturbed") / method
            toy.train_here(params, method, root, made[method])
        return made[method]

    return folder


def same(a, b, path=""):
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


def working(out: Path) -> Path:
    """The only folder of working state in a run folder."""
    (folder,) = (path for path in (out / "work").iterdir() if path.is_dir())
    return folder


def same_run(a: Path, b: Path):
    same(checkpoint.from_file(a / "model.pt"), checkpoint.from_file(b / "model.pt"))
    assert (a / "history.csv").read_text() == (b / "history.csv").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_killed_in_and_between_stages_a_run_ends_with_the_same_bits(method, root, tmp_path):
    params = toy.toy_params(tmp_path, checkpoint_every=1, epochs=6)
    reference = tmp_path / "reference"
    toy.train_here(params, method, root, reference)
    out = tmp_path / "killed"
    draw = random.Random(method)
    for at_step in (draw.randrange(1, STAGE_2), STAGE_2, draw.randrange(STAGE_2 + 1, 20)):
        assert toy.train_and_kill(params, method, root, out, at_step)
    assert not (out / "model.pt").exists()
    toy.train_here(params, method, root, out)
    same_run(out, reference)


def train_and_stop(params, method, root, out, *, done):
    """Train until exactly this many steps are done; the state that was saved."""
    data, run = toy.toy_data(params, method, root), params.run(TASK, method, 1)
    stop, add = StopRequest(), Meter.add

    def add_and_stop(self, step, terms):
        add(self, step, terms)
        stop.received = "SIGTERM" if step + 1 == done else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Meter, "add", add_and_stop)
        with pytest.raises(Stopped, match=f"SIGTERM at step {done} of 12"):
            train(run, data, out, toy.CPU, stop)
    return checkpoint.newest(working(out))


@pytest.mark.parametrize("method", METHODS)
def test_stopping_between_checkpoints_and_log_rows_changes_no_bit(
    method, root, params, tmp_path, undisturbed
):
    train_and_stop(params, method, root, tmp_path, done=7)
    toy.train_here(params, method, root, tmp_path)
    same_run(tmp_path, undisturbed(method))


@pytest.mark.parametrize("done", [STAGE_2, STAGE_2 + 1, 2 * STAGE_2, 2 * STAGE_2 + 1])
def test_osp_goes_on_with_its_outliers_and_their_bank(done, root, params, tmp_path, undisturbed):
    """Epoch 1 filters and fills the bank; epoch 2 fills it further with the same outliers."""
    assert params.run(TASK, "osp", 1).method.filter_every == 2
    state = train_and_stop(params, "osp", root, tmp_path, done=done)["network"]
    memory = {f"method.bank.{name}" for name in ("features", "counts", "position")}
    for name in memory | {"method.is_out"}:
        assert state[name].any() == (done > STAGE_2), name
    toy.train_here(params, "osp", root, tmp_path)
    same_run(tmp_path, undisturbed("osp"))


def test_the_checkpoint_holds_all_state_of_dac(root, params, tmp_path):
    assert toy.train_and_kill(params, "dac", root, tmp_path, 3)
    state = checkpoint.newest(working(tmp_path))
    names = set(state["network"])
    memory = {f"method.memory.{n}" for n in ("score", "consensus", "visited")}
    assert memory | {"method.bank.z", "method.bank.q", "method.bank.position"} <= names
    assert {"optimizer", "ema", "streams", "meter", "history", "best", "step"} <= state.keys()
    assert state["network"]["method.memory.visited"].any()


def test_a_finished_run_is_left_alone(root, params, undisturbed, capsys):
    folder = undisturbed("fixmatch")
    before = (folder / "model.pt").stat().st_mtime_ns
    toy.train_here(params, "fixmatch", root, folder)
    assert (folder / "model.pt").stat().st_mtime_ns == before
    assert "finished; nothing to do" in capsys.readouterr().err


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


def test_an_interrupted_run_waits_while_another_one_uses_its_folder(
    root, params, tmp_path, undisturbed, capsys
):
    out = tmp_path / "run"
    assert toy.train_and_kill(params, "dac", root, out, 6)
    states = {path: path.read_bytes() for path in checkpoint.saved(working(out))}
    other = toy.toy_params(tmp_path, lr=0.01)
    assert toy.train_and_kill(other, "dac", root, out, 3)
    toy.train_here(other, "dac", root, out)
    assert "at step 3 of 12" in capsys.readouterr().err, "the other one went on with its own state"
    assert {path: path.read_bytes() for path in states} == states, "the first one's are untouched"
    with pytest.raises(UserError, match=r"train\.lr: 0\.01 there, 0\.03 asked for"):
        toy.train_here(params, "dac", root, out)
    (out / "model.pt").unlink()
    toy.train_here(params, "dac", root, out)
    assert "at step 6 of 12" in capsys.readouterr().err
    same_run(out, undisturbed("dac"))
    assert not list(out.glob("work/*/last-*.pt"))


def test_state_that_was_moved_from_another_run_is_refused(root, params, tmp_path):
    out, other = tmp_path / "run", tmp_path / "other"
    assert toy.train_and_kill(params, "dac", root, out, 3)
    assert toy.train_and_kill(params, "fixmatch", root, other, 3)
    target = working(out)
    shutil.rmtree(target)
    working(other).rename(target)
    with pytest.raises(UserError, match=r"another run.*\n(.*\n)*  method\.name: "):
        toy.train_here(params, "dac", root, out)


def test_a_finished_model_of_another_run_is_refused(root, undisturbed, tmp_path):
    other = toy.toy_params(tmp_path, weight_decay=0.1)
    with pytest.raises(UserError, match=r"train\.weight_decay: 0\.0005 there, 0\.1 asked for"):
        toy.train_here(other, "fixmatch", root, undisturbed("fixmatch"))


@pytest.mark.parametrize("damage", ["flip a byte", "truncate", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    damage, root, params, tmp_path, undisturbed, capsys
):
    assert toy.train_and_kill(params, "dac", root, tmp_path, 6)
    newest, older = checkpoint.saved(working(tmp_path))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes({"flip a byte": content, "truncate": content[:-100], "empty": b""}[damage])
    toy.train_here(params, "dac", root, tmp_path)
    told = capsys.readouterr().err
    assert f"{newest} is damaged" in told and f"at step {int(older.name[5:14])} of" in told
    same_run(tmp_path, undisturbed("dac"))


class Evil:
    """A pickle that runs a command when it is loaded carelessly."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_a_malicious_checkpoint_is_refused_and_runs_nothing(root, params, tmp_path):
    out, trace = tmp_path / "run", tmp_path / "trace"
    out.mkdir()
    torch.save({"run": Evil(trace)}, out / "model.pt")
    with pytest.raises(UserError, match=r"model\.pt cannot be read"):
        toy.train_here(params, "dac", root, out)
    assert not trace.exists()


def test_draws_inside_a_step_go_on_where_they_were_after_a_stop(
    root, params, tmp_path, monkeypatch
):
    from dac import methods
    from dac.methods.fixmatch import FixMatch

    class Drawing(FixMatch):
        """FixMatch with a random weight per step, from the generator that methods are given."""

        def __init__(self, sizes, settings, generator):
            super().__init__(sizes, settings)
            self.generator = generator

        def terms(self, step):
            weight = 0.5 + torch.rand((), generator=self.generator)
            return {name: weight * term for name, term in super().terms(step).items()}

    monkeypatch.setattr(methods, "build_method", lambda s, sizes, g, _: Drawing(sizes, s, g))
    toy.train_here(params, "fixmatch", root, tmp_path / "whole")
    assert toy.train_and_kill(params, "fixmatch", root, tmp_path / "killed", 6)
    toy.train_here(params, "fixmatch", root, tmp_path / "killed")
    same_run(tmp_path / "killed", tmp_path / "whole")


def test_weights_that_overflow_are_not_saved(root, params, tmp_path, monkeypatch):
    from dac.models.ema import Ema

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


def test_settings_that_do_not_change_the_result_do_not_block_a_resume(
    root, params, tmp_path, undisturbed
):
    assert toy.train_and_kill(params, "dac", root, tmp_path / "run", 3)
    other = toy.toy_params(tmp_path, checkpoint_every=2, workers=1)
    toy.train_here(other, "dac", root, tmp_path / "run")
    same_run(tmp_path / "run", undisturbed("dac"))


@pytest.mark.parametrize("content", [b"", b"no model", None])
def test_a_file_that_is_no_checkpoint_is_one_message(content, root, params, tmp_path):
    if content is None:
        torch.save({"weights": torch.zeros(1)}, tmp_path / "model.pt")
    else:
        (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.pt .*delete it and train again"):
        toy.train_here(params, "dac", root, tmp_path)


def test_two_processes_cannot_write_one_run_folder(root, params, tmp_path):
    command = [sys.executable, "-m", "dac.train", "--task", TASK, "--method", "dac", "--seed", "1"]
    command += ["--params", str(params.path), "--root", str(root), "--out", str(tmp_path / "run")]
    with locked(tmp_path / "run" / "work", "run folder"):
        second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2
    assert f"in use by process {os.getpid()}" in second.stderr
    assert "Traceback" not in second.stderr
    assert not (tmp_path / "run" / "model.pt").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_leaves_with_the_code_for_stopped(number, root, tmp_path):
    params = toy.toy_params(tmp_path, epochs=5000, checkpoint_every=20)
    out = tmp_path / "run"
    command = [sys.executable, "-m", "dac.train", "--task", TASK, "--method", "dac", "--seed", "1"]
    command += ["--params", str(params.path), "--root", str(root), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("work/*/last-*.pt")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 75
    assert f"stopped: {number.name} at step" in told and "Traceback" not in told
    step = checkpoint.newest(working(out))["step"]
    assert f"at step {step} of" in told


@pytest.mark.parametrize("term", ["supervised", "mutual_information", "distillation"])
def test_a_loss_that_is_not_finite_stops_with_step_and_term(
    term, root, params, tmp_path, monkeypatch
):
    from dac.methods.dac import Dac

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


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--task", "digits-6-31", "did you mean 'digits-6-30'"),
        ("--method", "dacc", "did you mean 'dac'"),
        ("--seed", "-1", "seed -1"),
        ("--device", "tpu9", "try --device cpu"),
        ("--root", "nowhere", "python -m dac.prepare --data digits"),
        ("--params", "absent.yaml", "absent.yaml does not exist"),
        ("--out", "params.yaml/run", "cannot write params.yaml/run/work/lock"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_two(option, value, told, root, tmp_path):
    options = {"--task": TASK, "--method": "dac", "--seed": "1", "--root": str(root)}
    options |= {"--out": str(tmp_path / "run"), option: value}
    flat = [part for pair in options.items() for part in pair]
    done = subprocess.run(
        [sys.executable, "-m", "dac.train", *flat], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert told in done.stderr and done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_one_message(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*give another folder"):
        write_text(tmp_path / "file" / "below" / "x.csv", "content")


def test_a_missing_split_names_the_command_that_makes_it(root, params):
    with pytest.raises(UserError, match=r"does not exist; run `python -m dac\.split --task digits"):
        load_data(params.run(TASK, "dac", 77), root)
