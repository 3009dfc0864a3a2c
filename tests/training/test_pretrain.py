"""Pre-training: resume to the last bit, faults, and runs that start from its network."""

import json
import random
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import toy
import yaml
from toy import CPU, called, same, same_run, working

from dac.config import load
from dac.data import prepared
from dac.data.run_data import load_data
from dac.evaluate import main as evaluate_main
from dac.io.device import choose_device
from dac.io.errors import RunFailed, Stopped, UserError
from dac.pretrain import main as pretrain_main
from dac.runs import checkpoint
from dac.runs.pretrained import Pretrained, load_pretrained
from dac.train import main as train_main
from dac.training import pretraining
from dac.training.pretraining import all_images, pretrain, warn_of_collapse
from dac.training.run import start, train
from dac.training.state import StopRequest

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
    toy.add_split(root, TASK, short)
    return root


# --- the stage --------------------------------------------------------------------------------


def test_killed_at_random_steps_it_ends_with_the_same_bits(root, whole, tmp_path, monkeypatch):
    params, out = short_params(tmp_path, checkpoint_every=1), tmp_path / "killed"
    for at_step in sorted(random.Random(0).sample(range(1, 7), 3)):
        assert pretrain_and_kill(params, root, out, at_step, monkeypatch)
    assert not (out / "model.pt").exists()
    pretrain_here(params, root, out)
    same_run(out, whole)


def test_stopped_anywhere_it_ends_with_the_same_bits(short, root, whole, tmp_path):
    for done in (1, 3, 5, 7):
        match = f"SIGUSR1 at step {done} of 8"
        with toy.stopping(done, "SIGUSR1") as stop, pytest.raises(Stopped, match=match):
            pretrain_here(short, root, tmp_path, stop)
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
        losses.append(pretraining.spread(outputs[2]))
        return outputs[0].sum() * float("nan" if len(losses) == 5 else 1e-6)

    monkeypatch.setattr(pretraining, "symmetric_loss", poisoned)
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


def test_a_signal_saves_and_leaves_with_the_code_for_stopped(root, tmp_path):
    params, out, log = short_params(tmp_path, epochs=5000), tmp_path / "run", tmp_path / "log"
    options = ("--data", "digits", "--backbone", "small-cnn", "--params", params.path)
    options += ("--root", root, "--out", out, "--device", "cpu")
    code = toy.code_when_signalled(
        lambda: called(pretrain_main, *options), out, log, signal.SIGTERM
    )
    assert code == 75, log.read_text()
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


@pytest.fixture(scope="module")
def started(short, task_root, folder, tmp_path_factory):
    """A finished run that started from the pre-trained network."""
    out = tmp_path_factory.mktemp("started")
    train_from(short, task_root, out, folder)
    return out


def test_a_run_records_the_hash_of_its_start(short, folder, started):
    expected = loaded(short, folder).hash
    assert checkpoint.from_file(started / "model.pt")["run"]["pretrained_hash"] == expected
    assert json.loads((started / "run.json").read_text())["run"]["pretrained_hash"] == expected


def test_random_runs_record_no_such_hash(undisturbed):
    run = checkpoint.from_file(undisturbed("labeled-only") / "model.pt")["run"]
    assert "pretrained_hash" not in run


def test_a_resumed_run_does_not_start_again(
    short, task_root, folder, started, tmp_path, monkeypatch
):
    with toy.stopping(5) as stop, pytest.raises(Stopped):
        train_from(short, task_root, tmp_path, folder, stop)
    monkeypatch.setattr("dac.training.run.load_backbone", lambda *_: pytest.fail("loaded again"))
    train_from(short, task_root, tmp_path, folder)
    same_run(tmp_path, started)


def altered(whole: Path, folder: Path, change) -> Path:
    """Another file of pre-trained weights, with the same identity."""
    model = checkpoint.from_file(whole / "model.pt")
    change(model["backbone"])
    path = folder / "digits" / "small-cnn" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save(model, path)
    return folder


def test_a_finished_run_from_other_weights_is_refused(short, task_root, started, whole, tmp_path):
    other = altered(whole, tmp_path / "other", lambda w: w["layers.1.running_var"].mul_(2))
    with pytest.raises(UserError, match=r"another run; these differ:\n  pretrained_hash: "):
        train_from(short, task_root, started, other)


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


@pytest.mark.parametrize("backbone", [None, "weights", {"layers.0.weight": 1.0}])
def test_a_model_without_a_backbone_names_the_command_that_makes_it(
    backbone, short, whole, tmp_path
):
    model = checkpoint.from_file(whole / "model.pt") | {"backbone": backbone}
    path = tmp_path / "digits" / "small-cnn" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save(model, path)
    with pytest.raises(UserError, match=r"holds no backbone; delete it and run `.*dac\.pretrain"):
        loaded(short, tmp_path)


def test_state_that_does_not_fit_is_one_message(short, root, tmp_path):
    with toy.stopping(3) as stop, pytest.raises(Stopped):
        pretrain_here(short, root, tmp_path, stop)
    state = checkpoint.newest(working(tmp_path))
    del state["network"]["backbone.layers.0.weight"]
    checkpoint.save(working(tmp_path), 4, state)
    with pytest.raises(UserError, match=r"does not fit this run \(network: backbone\.layers\.0\.w"):
        pretrain_here(short, root, tmp_path)


def test_a_network_that_cannot_fit_into_memory_is_refused(short, root, tmp_path, monkeypatch):
    monkeypatch.setattr("dac.training.memory.free_memory", lambda device: 10**6)
    told = r"needs at least .*lower pretrain\.by_data\.digits\.batch"
    with pytest.raises(UserError, match=told):
        pretrain_here(short, root, tmp_path)


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
    code = called(train_main, *chosen, *places, "--pretrained", absent)
    out = absent / "digits" / "small-cnn"
    making = f"python -m dac.pretrain --data digits --backbone small-cnn --out {out}"
    told = capsys.readouterr().err
    assert code == 2 and not (tmp_path / "run" / "model.pt").exists()
    assert f"does not exist; run `{making} --root {task_root} --params {short.path}`" in told


def test_evaluation_takes_the_hash_from_the_model(short, task_root, folder, tmp_path):
    """From the command to the metrics; evaluation has no folder of pre-trained networks."""
    out = tmp_path / "run"
    chosen = ("--task", TASK, "--method", "labeled-only", "--seed", 1, "--out", out)
    places = ("--root", task_root, "--params", short.path, "--device", "cpu")
    assert called(train_main, *chosen, *places, "--pretrained", folder) == 0
    assert called(evaluate_main, "--run", out, *places) == 0
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["run"]["pretrained_hash"] == loaded(short, folder).hash
