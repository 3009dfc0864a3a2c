"""What a run needs at least, against what the machine has."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import toy
from torch import nn
from toy import TASK, toy_data
from toy_runs import PARAMS

from dac.data.run_data import load_data
from dac.io.errors import UserError
from dac.methods.step import Clock
from dac.training import memory
from dac.training.batches import Batches
from dac.training.memory import Need, needs_of_pretraining, needs_of_run
from dac.training.pretraining import start as start_pretraining
from dac.training.run import start, train
from dac.training.state import StopRequest

TOP = Path(__file__).parents[2]
GPU = torch.device("cuda")


def sizes(needs):
    return {need.what: need.size for need in needs}


def views_of(batch):
    more = [view for one in batch.more.values() for view in (*one.weak, *one.strong)]
    return [*batch.x, *batch.x_strong, *batch.u_weak, *batch.u_strong, *more]


# --- what is needed -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", toy.METHODS)
def test_the_bound_is_what_the_network_and_a_batch_really_take(method, root, tmp_path):
    params = toy.toy_params(tmp_path, evaluation_batch=1)
    run, data = params.run(TASK, method, 1), toy_data(params, method, root)
    state, needs = start(run, data, toy.CPU), sizes(needs_of_run(run, data, toy.CPU))
    weights = sum(p.nbytes for p in state.network.parameters())
    real = 4 * weights + sum(b.nbytes for b in state.network.buffers())
    assert needs["its network"] == real
    assert needs["the images"] == 0, "they are in memory already"

    batches = Batches(data, run.train, state.network.method, state.streams, toy.CPU)
    drawn = [views_of(batches.at(step)) for step in (0, run.train.steps - 1)]
    assert needs["a batch"] == max(sum(view.nbytes for view in views) for views in drawn)
    unlabeled = batches.pool_streams.get(("unlabeled", "unlabeled", False))
    orders = [stream.order.nbytes for stream in (batches.labeled, unlabeled) if stream is not None]
    assert needs["the order of an epoch"] == sum(orders)


def kept_in_step(state, batch, clock):
    """Bytes that stay for the backward pass."""
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        terms = state.network.terms(batch, clock, state.ema)
    assert terms
    return sum(kept.values())


@pytest.mark.parametrize("method", toy.METHODS)
def test_a_step_keeps_at_least_the_activations_that_are_counted(method, root, tmp_path):
    params = toy.toy_params(tmp_path, evaluation_batch=1)
    run, data = params.run(TASK, method, 1), toy_data(params, method, root)
    state, train = start(run, data, toy.CPU), run.train
    batches = Batches(data, train, state.network.method, state.streams, toy.CPU)
    clocks = [Clock(step, train.steps_per_epoch, train.steps) for step in (0, train.steps - 1)]
    kept = max(kept_in_step(state, batches.at(clock.step), clock) for clock in clocks)
    counted = sizes(needs_of_run(run, data, toy.CPU))["the activations of a step"]
    assert 0 < counted <= kept


def test_activations_halve_in_bf16_and_a_compiler_may_keep_none(root, tmp_path):
    def activations(**changes):
        params = toy.toy_params(tmp_path, evaluation_batch=1, **changes)
        run, data = params.run(TASK, "fixmatch", 1), toy_data(params, "fixmatch", root)
        return sizes(needs_of_run(run, data, toy.CPU))["the activations of a step"]

    assert activations(precision="bf16") == activations() // 2
    assert activations(compile=True) == 0


def test_what_a_small_network_keeps_is_counted_by_hand():
    network = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Tanh())
    two, three = (memory._kept_bytes(network, torch.zeros(n, 3, 4, 4)) for n in (2, 3))
    assert three - two == 4 * (3 * 16 + 5 * 16)  # the input, and what tanh returns


def test_evaluation_may_take_more_than_a_step(root, params):
    data = toy_data(params, "labeled-only", root)
    update = {"evaluation_batch": 10**6, "batch": 1}
    train = params.run(TASK, "labeled-only", 1).train.model_copy(update=update)
    run = replace(params.run(TASK, "labeled-only", 1), train=train)
    needs = sizes(needs_of_run(run, data, toy.CPU))
    assert needs["a batch in evaluation"] == data.test_images.size * 4
    assert "a batch" not in needs, "they take turns"


def test_a_gpu_also_takes_the_images_that_are_not_read_from_a_file(root, params, tmp_path):
    run, data = params.run(TASK, "fixmatch", 1), toy_data(params, "fixmatch", root)
    needs = sizes(needs_of_run(run, data, GPU))
    assert needs["the images"] == data.train_images.nbytes + data.test_images.nbytes
    np.save(tmp_path / "images.npy", data.train_images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    pretraining = params.pretrain("digits", "small-cnn")
    assert sizes(needs_of_pretraining(pretraining, mapped, GPU))["the images"] == 0
    in_memory = needs_of_pretraining(pretraining, data.train_images, GPU)
    assert sizes(in_memory)["the images"] == data.train_images.nbytes


def test_pretraining_needs_its_network_and_two_views(root, params):
    run, images = params.pretrain("digits", "small-cnn"), np.zeros((9, 3, 16, 16), np.uint8)
    network = start_pretraining(run, toy.CPU).network
    trained = [p for p in network.parameters() if p.requires_grad]
    once = {*network.parameters()} - {*trained}
    real = 3 * sum(p.nbytes for p in trained) + sum(t.nbytes for t in (*once, *network.buffers()))
    needs = sizes(needs_of_pretraining(run, images, toy.CPU))
    assert needs["its network"] == real
    assert needs["a batch"] == 2 * run.settings.batch * 3 * run.data.size**2 * 4


def test_no_generator_draws(root, params):
    run, data = params.run(TASK, "dac", 1), toy_data(params, "dac", root)
    before = torch.get_rng_state()
    needs_of_run(run, data, toy.CPU)
    needs_of_pretraining(params.pretrain("digits", "small-cnn"), data.train_images, toy.CPU)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_no_method_imports_the_compiler(root):
    """Some operations without values do, which takes seconds at the start of every run."""
    code = f"""
import sys; sys.path.insert(0, "{TOP / "tests/support"}")
from pathlib import Path
import toy; from toy_runs import PARAMS
from dac.training.memory import needs_of_pretraining, needs_of_run
from dac.data.run_data import load_data
data = load_data(PARAMS.run("{TASK}", "dac", 1), Path("{root}"))
for name in toy.METHODS:
    needs_of_run(PARAMS.run("{TASK}", name, 1), data, toy.CPU)
needs_of_pretraining(PARAMS.pretrain("digits", "small-cnn"), data.train_images, toy.CPU)
print("sympy" in sys.modules)
"""
    environment = {"PYTHONPATH": str(TOP), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=TOP, capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr


def test_a_method_that_cannot_be_built_without_values_is_left_to_the_run(root, params, monkeypatch):
    def build(*_):
        return float(torch.ones(3).sum())

    monkeypatch.setattr("dac.methods.network.build_method", build)
    run, data = params.run(TASK, "dac", 1), toy_data(params, "dac", root)
    assert sizes(needs_of_run(run, data, toy.CPU))["its network"] == 0


# --- refusals -----------------------------------------------------------------------------------


def test_what_fits_is_let_through_and_what_does_not_is_named(monkeypatch):
    needs = [Need("a batch", 3 * 10**9, "lower mu"), Need("its network", 10**9, "lower proj_dim")]
    monkeypatch.setattr(memory, "free_memory", lambda device: 4 * 10**9)
    memory.refuse_too_large(needs, toy.CPU)
    monkeypatch.setattr(memory, "free_memory", lambda device: 4 * 10**9 - 1)
    told = r"at least 4\.0 GB of memory \(a batch 3\.0 GB, its network 1\.0 GB\), and cpu has 4\.0 "
    with pytest.raises(UserError, match=told + "GB free; lower mu$"):
        memory.refuse_too_large(needs, toy.CPU)
    monkeypatch.setattr(memory, "free_memory", lambda device: None)
    memory.refuse_too_large(needs, toy.CPU)


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"batch": 10**6, "mu": 1000}, r"lower train\.batch or train\.mu"),
        ({"steps_per_epoch": 10**6, "batch": 10**5}, r"lower train\.steps_per_epoch"),
    ],
)
def test_a_run_that_cannot_fit_ends_before_it_takes_memory(
    changes, advice, root, tmp_path, monkeypatch
):
    params = toy.toy_params(tmp_path, **changes)
    data, run = toy_data(params, "fixmatch", root), params.run(TASK, "fixmatch", 1)
    monkeypatch.setattr("dac.training.run.start", lambda *_: pytest.fail("built"))
    with pytest.raises(UserError, match=rf"needs at least [\d,.]+ GB .*{advice}"):
        train(run, data, tmp_path / "run", toy.CPU, StopRequest())


@pytest.mark.parametrize("batches", [10**6, 10**17])
def test_a_bank_that_cannot_fit_is_named_however_large(batches, root, monkeypatch):
    run = PARAMS.run(TASK, "dac", 1)
    data = load_data(run, root)
    huge = run.method.model_copy(update={"bank_batches": batches, "proj_dim": 10**5})
    run = replace(run, method=huge.around(run.method.target))
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**12)
    with pytest.raises(UserError, match=rf"lower bank_batches \({batches}\) of the method dac"):
        memory.refuse_too_large(needs_of_run(run, data, toy.CPU), toy.CPU)
