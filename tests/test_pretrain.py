"""Pre-training: resume to the last bit, faults, and runs that start from its network."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy
import yaml
from test_train import same, same_run, working
from toy import CPU

from dac import checkpoint, split
from dac import pretrain as stage
from dac.course import Meter, StopRequest
from dac.data import prepared
from dac.errors import RunFailed, Stopped, UserError, exit_code_of
from dac.evaluate import main as evaluate_main
from dac.params import load
from dac.pretrain import all_images, pretrain, warn_of_collapse
from dac.pretrained import Pretrained, load_pretrained
from dac.train import choose_device, load_data, start, train
from dac.train import main as train_main

TASK = "digits-6-30-pretrained"
SETTINGS = {"epochs": 2, "batch": 200, "checkpoint_every": 3, "log_every": 2}  # 8 steps


def short_params(folder, **changes):
    """Eight steps of pre-training, twelve of training."""
    path = toy.toy_params(folder).path
    raw = yaml.safe_load(path.read_text())
    raw["pretrain"]["by_data"]["digits"] |= SETTINGS | changes
    path.write_text(yaml.safe_dump(raw))
    return load(path)


def pretrain_here(params, root, out, stop=None):
    choose_device("cpu")
    images = prepared.load(root, "digits").part("train").images
    pretrain(params.pretrain("digits", "small-cnn"), images, out, CPU, stop or StopRequest())


def pretrain_and_kill(params, root, out, at_step, monkeypatch):
    """toy's kill -9 with pre-training in place of the run that it starts."""
    with monkeypatch.context() as patch:
        patch.setattr(
            toy, "train_here", lambda params, _, root, out: pretrain_here(params, root, out)
        )
        return toy.train_and_kill(params, "", root, out, at_step)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return short_params(tmp_path_factory.mktemp("short"))


@pytest.fixture(scope="module")
def folder(short, root, tmp_path_factory):
    """Pre-trained networks as `--pretrained` takes them."""
    found = tmp_path_factory.mktemp("pretrained")
    pretrain_here(short, root, found / "digits" / "small-cnn")
    return found


@pytest.fixture(scope="module")
def whole(folder):
    return folder / "digits" / "small-cnn"


@pytest.fixture(scope="module")
def task_root(root, short):
    """The split of the task that starts from a pre-trained network."""
    labels = split.train_labels(prepared.load(root, "digits"))
    made = split.make(TASK, short.task(TASK), 1, labels)
    split.save(made, split.default_path(root, TASK, 1))
    return root


# --- the stage --------------------------------------------------------------------------------


def test_killed_at_random_steps_it_ends_with_the_same_bits(short, root, tmp_path, monkeypatch):
    params = short_params(tmp_path, checkpoint_every=1)
    pretrain_here(params, root, tmp_path / "reference")
    out = tmp_path / "killed"
    for at_step in sorted(random.Random(0).sample(range(1, 7), 3)):
        assert pretrain_and_kill(params, root, out, at_step, monkeypatch)
    assert not (out / "model.pt").exists()
    pretrain_here(params, root, out)
    same_run(out, tmp_path / "reference")


@pytest.mark.parametrize("last_step", [0, 2, 4, 6])
def test_stopped_anywhere_it_ends_with_the_same_bits(
    last_step, short, root, whole, tmp_path, monkeypatch
):
    stop, add = StopRequest(), Meter.add

    def stop_after(self, step, terms):
        add(self, step, terms)
        stop.received = "SIGUSR1" if step == last_step else None

    monkeypatch.setattr(Meter, "add", stop_after)
    with pytest.raises(Stopped, match=f"SIGUSR1 at step {last_step + 1} of 8"):
        pretrain_here(short, root, tmp_path, stop)
    monkeypatch.undo()
    pretrain_here(short, root, tmp_path)
    same_run(tmp_path, whole)


def test_it_leaves_the_backbone_a_history_and_a_record(short, whole):
    model = checkpoint.from_file(whole / "model.pt")
    assert model.keys() == {"run", "backbone"}
    assert model["run"] == short.pretrain("digits", "small-cnn").identity()
    assert "layers.1.running_mean" in model["backbone"]
    assert int(model["backbone"]["layers.1.num_batches_tracked"]) == 16, "two views, eight steps"
    assert list(pd.read_csv(whole / "history.csv")["step"]) == [2, 4, 6, 8]
    record = json.loads((whole / "run.json").read_text())
    assert record["run"]["pretrain"]["checkpoint_every"] == 3
    assert record["training_seconds"] > 0 and record["peak_memory_bytes"] > 0
    assert record["provenance"]["packages"]["torch"] == torch.__version__
    assert not checkpoint.saved(working(whole))


def test_a_finished_network_is_left_alone_and_another_one_refused(
    short, root, whole, tmp_path, capsys
):
    before = (whole / "model.pt").stat().st_mtime_ns
    pretrain_here(short_params(tmp_path, checkpoint_every=5), root, whole)
    assert "finished; nothing to do" in capsys.readouterr().err
    assert (whole / "model.pt").stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"pretrain\.base_lr: 0\.05 there, 0\.1 asked for"):
        pretrain_here(short_params(tmp_path, base_lr=0.1), root, whole)


def test_the_seed_decides_the_network(short, root, whole, tmp_path):
    pretrain_here(short_params(tmp_path, seed=1), root, tmp_path / "other")
    first, other = (checkpoint.from_file(p / "model.pt") for p in (whole, tmp_path / "other"))
    assert not torch.equal(
        first["backbone"]["layers.0.weight"], other["backbone"]["layers.0.weight"]
    )


def test_a_loss_that_is_not_finite_stops_with_its_step(short, root, tmp_path, monkeypatch):
    losses = []

    def poisoned(*outputs):
        losses.append(stage.spread(outputs[2]))
        return outputs[0].sum() * float("nan" if len(losses) == 5 else 1e-6)

    monkeypatch.setattr(stage, "symmetric_loss", poisoned)
    with pytest.raises(RunFailed, match="'loss' is not finite at step 4"):
        pretrain_here(short, root, tmp_path)
    assert checkpoint.newest(working(tmp_path))["step"] == 3, "the last good checkpoint stays"


def test_digits_lower_their_loss_and_do_not_collapse(root, tmp_path, params):
    """The project's own settings with fewer epochs."""
    out = tmp_path / "run"
    pretrain_here(short_params(tmp_path, epochs=6, batch=128, log_every=7), root, out)
    history = pd.read_csv(out / "history.csv")
    assert history["loss"].iloc[-1] < history["loss"].iloc[0] - 0.05
    assert history["loss"].iloc[0] > -0.1, "nothing is alike before training"
    target = 1 / np.sqrt(params.pretrain("digits", "small-cnn").settings.projection)
    assert history["spread"].between(0.9 * target, 1.01 * target).all()


def test_a_collapse_is_said(capsys):
    warn_of_collapse({"step": 20.0, "spread": 0.0021}, target=0.02)
    assert not capsys.readouterr().err
    warn_of_collapse({"step": 20.0, "spread": 0.0019}, target=0.02)
    assert "warning: at step 20" in capsys.readouterr().err


def test_a_batch_larger_than_the_data_is_one_message(root, tmp_path):
    with pytest.raises(UserError, match=r"899 training images, less than a batch of 1000; lower"):
        pretrain_here(short_params(tmp_path, batch=1000), root, tmp_path / "run")


def test_an_epoch_is_every_image_but_the_last_incomplete_batch(short, root, tmp_path):
    images = prepared.load(root, "digits").part("train").images
    batches = all_images(images, short.pretrain("digits", "small-cnn"), CPU)
    assert batches.steps_per_epoch == 899 // 200
    epochs = [torch.cat([batches.at(4 * e + i)[0] for i in range(4)]) for e in range(8)]
    assert all(len(epoch.unique()) == 800 for epoch in epochs)
    assert len(torch.cat(epochs).unique()) == 899, "labeled or not, known or not"


def main_here(main, stage, *options):
    """A stage called as a command, in this process; the exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [f"dac.{stage}", *map(str, options)])
        return exit_code_of(main)


def test_a_signal_saves_and_leaves_with_the_code_for_stopped(root, tmp_path):
    params, out, log = short_params(tmp_path, epochs=5000), tmp_path / "run", tmp_path / "log"
    options = ("--data", "digits", "--backbone", "small-cnn", "--params", params.path)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            sys.stderr = log.open("w", buffering=1)
            places = ("--root", root, "--out", out, "--device", "cpu")
            code = main_here(stage.main, "pretrain", *options, *places)
        finally:
            os._exit(code)
    while not list(out.glob("work/*/last-*.pt")):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), log.read_text()
        time.sleep(0.02)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 75, log.read_text()
    step = checkpoint.newest(working(out))["step"]
    assert f"stopped: SIGTERM at step {step} of 20000; state saved" in log.read_text()


# --- runs that start from it ------------------------------------------------------------------


def loaded(params, folder) -> Pretrained:
    return load_pretrained(params.pretrain("digits", "small-cnn"), folder)


def train_from(params, root, out, folder, stop=None, method="fixmatch"):
    choose_device("cpu")
    run = params.run(TASK, method, 1)
    train(run, load_data(run, root), out, CPU, stop or StopRequest(), loaded(params, folder))


def test_a_run_starts_with_exactly_these_weights_and_its_usual_heads(
    short, task_root, folder, whole
):
    run = short.run(TASK, "dac", 1)
    data = load_data(run, task_root)
    begun, random_start = start(run, data, CPU, loaded(short, folder)), start(run, data, CPU)
    weights = checkpoint.from_file(whole / "model.pt")["backbone"]
    same(dict(begun.network.backbone.state_dict()), weights)
    for name, tensor in begun.network.state_dict().items():
        if not name.startswith("backbone."):
            assert torch.equal(tensor, random_start.network.state_dict()[name]), name
    for name, average in begun.ema.average.items():
        assert torch.equal(average, begun.ema.live[name].detach()), name


def test_a_run_records_the_hash_of_its_start(short, task_root, folder, tmp_path):
    train_from(short, task_root, tmp_path, folder)
    expected = loaded(short, folder).hash
    assert checkpoint.from_file(tmp_path / "model.pt")["run"]["pretrained_hash"] == expected
    assert json.loads((tmp_path / "run.json").read_text())["run"]["pretrained_hash"] == expected


def test_random_runs_record_no_such_hash(params, root, tmp_path):
    toy.train_here(params, "labeled-only", root, tmp_path)
    assert "pretrained_hash" not in checkpoint.from_file(tmp_path / "model.pt")["run"]


def test_a_resumed_run_does_not_start_again(short, task_root, folder, tmp_path, monkeypatch):
    train_from(short, task_root, tmp_path / "whole", folder)
    stop, add = StopRequest(), Meter.add

    def stop_after(self, step, terms):
        add(self, step, terms)
        stop.received = "SIGTERM" if step == 4 else None

    monkeypatch.setattr(Meter, "add", stop_after)
    with pytest.raises(Stopped):
        train_from(short, task_root, tmp_path / "stopped", folder, stop)
    monkeypatch.undo()
    monkeypatch.setattr("dac.train.load_backbone", lambda *_: pytest.fail("loaded again"))
    train_from(short, task_root, tmp_path / "stopped", folder)
    same_run(tmp_path / "stopped", tmp_path / "whole")


def altered(whole: Path, folder: Path, change) -> Path:
    """Another file of pre-trained weights, with the same identity."""
    model = checkpoint.from_file(whole / "model.pt")
    change(model["backbone"])
    path = folder / "digits" / "small-cnn" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save(model, path)
    return folder


def test_a_finished_run_from_other_weights_is_refused(short, task_root, folder, whole, tmp_path):
    train_from(short, task_root, tmp_path / "run", folder)
    other = altered(whole, tmp_path / "other", lambda w: w["layers.1.running_var"].mul_(2))
    with pytest.raises(UserError, match=r"another run; these differ:\n  pretrained_hash: "):
        train_from(short, task_root, tmp_path / "run", other)


def test_the_hash_is_of_the_weights_and_not_of_the_file(short, folder, whole, tmp_path):
    copied = altered(whole, tmp_path / "copy", lambda w: None)
    assert loaded(short, copied).hash == loaded(short, folder).hash
    other = altered(whole, tmp_path / "other", lambda w: w["layers.0.weight"][0, 0, 0, 0].add_(1))
    assert loaded(short, other).hash != loaded(short, folder).hash


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: w.pop("layers.1.running_mean"), "Missing key"),
        (lambda w: w.update({"fc.weight": torch.zeros(1)}), "Unexpected key"),
    ],
)
def test_weights_with_a_tensor_too_few_or_too_many_are_refused(
    change, told, short, task_root, whole, tmp_path
):
    other = altered(whole, tmp_path / "other", change)
    with pytest.raises(UserError, match=f"does not hold the tensors.*(\n.*)*{told}"):
        train_from(short, task_root, tmp_path / "run", other)


def test_a_network_of_other_parameters_or_another_backbone_is_refused(
    short, folder, whole, tmp_path
):
    other = short_params(tmp_path, crop_scale=0.3)
    with pytest.raises(UserError, match=r"crop_scale: 0\.5 there, 0\.3 asked for\n.*dac\.pretrain"):
        loaded(other, folder)
    elsewhere = tmp_path / "digits" / "wrn-28-2"
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(whole)
    with pytest.raises(UserError, match="backbone: 'small-cnn' there, 'wrn-28-2' asked for"):
        load_pretrained(short.pretrain("digits", "wrn-28-2"), tmp_path)


def test_a_missing_network_names_the_command_that_makes_it(short, task_root, tmp_path, capsys):
    chosen = ("--task", TASK, "--method", "dac", "--seed", 1, "--out", tmp_path / "run")
    places = ("--root", task_root, "--params", short.path)
    absent = tmp_path / "absent"
    code = main_here(train_main, "train", *chosen, *places, "--pretrained", absent)
    out = absent / "digits" / "small-cnn"
    making = f"python -m dac.pretrain --data digits --backbone small-cnn --out {out}"
    told = capsys.readouterr().err
    assert code == 2 and not (tmp_path / "run" / "model.pt").exists()
    assert f"does not exist; run `{making} --root {task_root} --params {short.path}`" in told


def test_evaluation_takes_the_hash_from_the_model(short, task_root, folder, tmp_path, monkeypatch):
    """From the command to the metrics; evaluation has no folder of pre-trained networks."""
    out = tmp_path / "run"
    chosen = ("--task", TASK, "--method", "labeled-only", "--seed", 1, "--out", out)
    places = ("--root", task_root, "--params", short.path, "--device", "cpu")
    monkeypatch.setattr(StopRequest, "listen", lambda self: None)
    assert main_here(train_main, "train", *chosen, *places, "--pretrained", folder) == 0
    assert main_here(evaluate_main, "evaluate", "--run", out, *places) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["run"]["pretrained_hash"] == loaded(short, folder).hash
