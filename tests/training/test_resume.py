"""A run that was stopped, killed or damaged resumes and ends with the same bits."""

import os
import random
import shutil

import pytest
import torch
import toy
from toy import METHODS, TASK, same_run, working

from dac.io.errors import Stopped, UserError
from dac.methods import network
from dac.methods.fixmatch import FixMatch
from dac.runs import checkpoint
from dac.training.run import train

STAGE_2 = toy.TRAIN["steps_per_epoch"]  # the first step of whatever begins after one epoch


def train_and_stop(params, method, root, out, *, done):
    """Train until exactly this many steps are done; the state that was saved."""
    data, run = toy.toy_data(params, method, root), params.run(TASK, method, 1)
    with (
        toy.stopping(done) as stop,
        pytest.raises(Stopped, match=f"SIGTERM at step {done} of 12"),
    ):
        train(run, data, out, toy.CPU, stop)
    return checkpoint.newest(working(out))


# --- to the last bit ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_stopped_in_its_stages_a_run_ends_with_the_same_bits(
    method, root, params, tmp_path, undisturbed
):
    """Both stops are between two checkpoints and two rows of the history; the kills below also
    come where a stage begins."""
    draw = random.Random(method)
    for done in (draw.choice([1, 2]), draw.choice([7, 11])):
        train_and_stop(params, method, root, tmp_path, done=done)
    toy.train_here(params, method, root, tmp_path)
    same_run(tmp_path, undisturbed(method))


@pytest.mark.parametrize("method", ["dac", "osp"])
def test_killed_in_and_between_stages_a_run_ends_with_the_same_bits(
    method, root, tmp_path, undisturbed
):
    params, out = toy.toy_params(tmp_path, checkpoint_every=1), tmp_path / "killed"
    draw = random.Random(method)
    for at_step in (draw.randrange(1, STAGE_2), STAGE_2, draw.randrange(STAGE_2 + 1, 10)):
        assert toy.train_and_kill(params, method, root, out, at_step)
    assert not (out / "model.pt").exists()
    toy.train_here(params, method, root, out)
    same_run(out, undisturbed(method))


def test_osp_goes_on_with_its_outliers_and_their_bank(root, params, tmp_path, undisturbed):
    """Epoch 1 filters and fills the bank; epoch 2 fills it further with the same outliers."""
    assert params.run(TASK, "osp", 1).method.filter_every == 2
    memory = {f"method.bank.{name}" for name in ("features", "counts", "position")}
    for done in (STAGE_2, STAGE_2 + 1, 2 * STAGE_2, 2 * STAGE_2 + 1):
        state = train_and_stop(params, "osp", root, tmp_path, done=done)["network"]
        for name in memory | {"method.is_out"}:
            assert state[name].any() == (done > STAGE_2), name
    toy.train_here(params, "osp", root, tmp_path)
    same_run(tmp_path, undisturbed("osp"))


def test_draws_inside_a_step_go_on_where_they_were_after_a_stop(
    root, params, tmp_path, monkeypatch
):
    class Drawing(FixMatch):
        """FixMatch with a random weight per step, from the generator that methods are given."""

        def terms(self, step):
            weight = 0.5 + torch.rand((), generator=self.generator)
            return {name: weight * term for name, term in super().terms(step).items()}

    monkeypatch.setattr(network, "build_method", Drawing)
    toy.train_here(params, "fixmatch", root, tmp_path / "whole")
    train_and_stop(params, "fixmatch", root, tmp_path / "stopped", done=7)
    toy.train_here(params, "fixmatch", root, tmp_path / "stopped")
    same_run(tmp_path / "stopped", tmp_path / "whole")


def test_settings_that_do_not_change_the_result_do_not_block_a_resume(
    root, params, tmp_path, undisturbed
):
    train_and_stop(params, "dac", root, tmp_path / "run", done=3)
    other = toy.toy_params(tmp_path, checkpoint_every=2, workers=1)
    toy.train_here(other, "dac", root, tmp_path / "run")
    same_run(tmp_path / "run", undisturbed("dac"))


def test_the_checkpoint_holds_all_state_of_dac(root, params, tmp_path):
    state = train_and_stop(params, "dac", root, tmp_path, done=3)
    names = set(state["network"])
    memory = {f"method.memory.{n}" for n in ("score", "consensus", "visited")}
    assert memory | {"method.bank.z", "method.bank.q", "method.bank.position"} <= names
    assert {"optimizer", "ema", "streams", "meter", "history", "best", "step"} <= state.keys()
    assert state["network"]["method.memory.visited"].any()


# --- other runs, damage -------------------------------------------------------------------------


def test_an_interrupted_run_waits_while_another_one_uses_its_folder(
    root, params, tmp_path, undisturbed, capsys
):
    out = tmp_path / "run"
    train_and_stop(params, "dac", root, out, done=6)
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
    train_and_stop(params, "dac", root, out, done=1)
    train_and_stop(params, "fixmatch", root, other, done=1)
    target = working(out)
    shutil.rmtree(target)
    working(other).rename(target)
    with pytest.raises(UserError, match=r"another run.*\n(.*\n)*  method\.name: "):
        toy.train_here(params, "dac", root, out)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    root, params, tmp_path, undisturbed, capsys
):
    train_and_stop(params, "dac", root, tmp_path, done=6)
    newest, older = checkpoint.saved(working(tmp_path))
    content = newest.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (b"", content[:-100], bytes(flipped)):
        newest.write_bytes(damaged)
        assert checkpoint.newest(working(tmp_path))["step"] == 3
        assert f"{newest} is damaged" in capsys.readouterr().err
    newest.write_bytes(b"")  # it was set aside
    toy.train_here(params, "dac", root, tmp_path)
    told = capsys.readouterr().err
    assert f"{newest} is damaged" in told and f"at step {int(older.name[5:14])} of" in told
    same_run(tmp_path, undisturbed("dac"))


def pop(*path):
    """A change of a saved state: without the part at this place."""

    def change(state):
        for step in path[:-1]:
            state = state[step]
        del state[path[-1]]

    return change


def flatten(*path):
    """A change of a saved state: the tensor at this place has one dimension and a row too many."""

    def change(state):
        for step in path[:-1]:
            state = state[step]
        state[path[-1]] = torch.cat([state[path[-1]].flatten(), torch.zeros(1)])

    return change


WEIGHT = "backbone.layers.0.weight"


@pytest.fixture(scope="module")
def stopped(root, params, tmp_path_factory):
    """A run with a best network, and with losses that are not yet in its history."""
    out = tmp_path_factory.mktemp("stopped")
    train_and_stop(params, "dac", root, out, done=7)
    return out


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *((pop(part), f"{part}") for part in ("network", "optimizer", "ema", "streams", "meter")),
        *((pop(part), f"{part} is") for part in ("step", "history", "best", "seconds")),
        (pop("network", WEIGHT), f"network: {WEIGHT} is missing"),
        (pop("network", "method.bank.z"), "network: method.bank.z is missing"),
        (pop("ema", WEIGHT), f"ema: {WEIGHT} is missing"),
        (pop("streams", "method"), "streams: method is missing"),
        (pop("meter", "counts"), "'counts' is missing"),
        (pop("optimizer", "param_groups"), "'param_groups' is missing"),
        (pop("optimizer", "param_groups", 0), "parameter groups"),
        (pop("optimizer", "param_groups", 1, "momentum"), "optimizer: momentum is missing"),
        (pop("best", "closed_accuracy"), "best: step or closed_accuracy is missing"),
        (pop("best", "network"), "best: no tensors"),
        (pop("best", "network", WEIGHT), f"best: {WEIGHT} is missing"),
        (flatten("network", WEIGHT), f"network: {WEIGHT} is "),
        (flatten("network", "method.bank.q"), "network: method.bank.q is "),
        (flatten("ema", WEIGHT), f"ema: {WEIGHT} is "),
        (flatten("best", "network", WEIGHT), f"best: {WEIGHT} is "),
        (flatten("streams", "weights"), "streams: weights is "),
        (flatten("optimizer", "state", 0, "momentum_buffer"), "optimizer: momentum_buffer is "),
        (flatten("meter", "sums", "supervised"), "meter: supervised is "),
    ],
)
def test_a_whole_checkpoint_with_missing_or_misshapen_parts_is_one_message_and_stays(
    change, told, root, params, tmp_path, stopped
):
    """Its hash is right: no damage, but other code, whose hours of training must not be lost."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    folder = working(tmp_path)
    state = checkpoint.newest(folder)
    change(state)
    newest = checkpoint.save(folder, 8, state)
    before = checkpoint.saved(folder)
    with pytest.raises(UserError, match=f"the state in {folder} does not fit this run") as caught:
        toy.train_here(params, "dac", root, tmp_path)
    assert told in str(caught.value) and "delete that folder to start over" in str(caught.value)
    assert checkpoint.saved(folder) == before and before[0] == newest


def test_a_folder_in_place_of_the_newest_checkpoint_falls_back_to_the_one_before(
    root, params, tmp_path, undisturbed, capsys
):
    train_and_stop(params, "dac", root, tmp_path, done=6)
    newest, _ = checkpoint.saved(working(tmp_path))
    newest.unlink()
    newest.mkdir()
    toy.train_here(params, "dac", root, tmp_path)
    told = capsys.readouterr().err
    assert f"{newest} is damaged (Is a directory)" in told and "at step 3 of 12" in told
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


@pytest.mark.parametrize("content", [b"", b"no model", None])
def test_a_file_that_is_no_checkpoint_is_one_message(content, root, params, tmp_path):
    if content is None:
        torch.save({"weights": torch.zeros(1)}, tmp_path / "model.pt")
    else:
        (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.pt .*delete it and train again"):
        toy.train_here(params, "dac", root, tmp_path)
