"""Parts of the training loop: learning rate, parameter groups, meter, averaging, what evaluation is
given."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from toy_runs import PARAMS, Toy, fitted, toy_run

from dac.io.errors import RunFailed
from dac.io.seeds import generators
from dac.methods.network import build_network
from dac.methods.step import Clock
from dac.training.loop import (
    MethodState,
    _keep_best,
    evaluated_state,
    learning_rate,
    make_optimizer,
)
from dac.training.meter import Meter

CIFAR = PARAMS.run("cifar-50-500", "dac-released", 1)

# --- learning rate ------------------------------------------------------------------------------


def test_learning_rate_by_hand() -> None:
    steps = CIFAR.train.steps
    assert steps == 262_144
    assert learning_rate(CIFAR.train, 0) == 0.03
    assert learning_rate(CIFAR.train, steps // 2) == pytest.approx(0.023190, abs=5e-7)
    assert learning_rate(CIFAR.train, steps) == pytest.approx(0.005853, abs=5e-7)


@given(st.integers(0, 262_143))
def test_learning_rate_falls_with_every_step_and_equals_its_formula(step: int) -> None:
    rate = learning_rate(CIFAR.train, step)
    assert rate == pytest.approx(0.03 * math.cos(7 * math.pi * step / (16 * 262_144)))
    assert learning_rate(CIFAR.train, step + 1) < rate


@pytest.mark.parametrize(("cosine", "last"), [(0.0, 0.03), (0.5, 0.0)])
def test_cosine_of_zero_is_constant_and_of_a_half_ends_at_zero(cosine: float, last: float) -> None:
    settings = CIFAR.train.model_copy(update={"cosine": cosine})
    assert learning_rate(settings, settings.steps) == pytest.approx(last, abs=1e-12)


# --- parameter groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["cifar-50-500", "imagenet-20-p1"])
def test_exactly_the_one_dimensional_parameters_are_not_decayed(task: str) -> None:
    run = PARAMS.run(task, "dac-released", 1)
    run = replace(run, method=run.method.model_copy(update={"bank_batches": 1}))  # quicker
    network = build_network(run, num_known=20, num_labeled=9, pool=9)
    decayed, plain = make_optimizer(network, run.train).param_groups
    assert decayed["weight_decay"] == run.train.weight_decay > 0
    assert plain["weight_decay"] == 0
    names = {id(p): name for name, p in network.named_parameters()}
    one_dimensional = {name for name, p in network.named_parameters() if p.ndim <= 1}
    assert {names[id(p)] for p in plain["params"]} == one_dimensional
    assert {names[id(p)] for p in decayed["params"]} == set(names.values()) - one_dimensional
    assert len(plain["params"]) + len(decayed["params"]) == len(names)
    assert {name for name in names.values() if name.endswith("bias")} <= one_dimensional


def test_optimizer_steps_like_nesterov_sgd_written_out() -> None:
    module = nn.Linear(1, 1).double()
    nn.init.constant_(module.weight, 2.0)
    nn.init.constant_(module.bias, 3.0)
    settings = CIFAR.train
    optimizer = make_optimizer(module, settings)
    expected = {"weight": 2.0, "bias": 3.0}
    velocity = {"weight": 0.0, "bias": 0.0}
    for gradient in (0.5, -1.0, 0.25):
        for name, decay in (("weight", settings.weight_decay), ("bias", 0.0)):
            g = gradient + decay * expected[name]
            velocity[name] = 0.9 * velocity[name] + g
            expected[name] -= 0.03 * (g + 0.9 * velocity[name])
            getattr(module, name).grad = torch.full_like(getattr(module, name), gradient)
        optimizer.step()
        assert module.weight.item() == pytest.approx(expected["weight"], rel=1e-12)
        assert module.bias.item() == pytest.approx(expected["bias"], rel=1e-12)


def test_frozen_parameters_are_not_optimised() -> None:
    module = nn.Linear(2, 2)
    module.weight.requires_grad_(False)
    groups = make_optimizer(module, CIFAR.train).param_groups
    assert [len(group["params"]) for group in groups] == [0, 1]


# --- meter --------------------------------------------------------------------------------------


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value)


def test_row_is_the_mean_since_the_last_row() -> None:
    meter = Meter()
    meter.add(0, {"a": scalar(1.0), "b": scalar(5.0)})
    meter.add(1, {"a": scalar(3.0)})  # a term may be absent from a step
    assert meter.row() == {"a": 2.0, "b": 5.0}
    meter.add(2, {"a": scalar(7.0)})
    assert meter.row() == {"a": 7.0}
    assert meter.row() == {}


def test_meter_keeps_no_graph() -> None:
    meter = Meter()
    meter.add(0, {"a": torch.ones((), requires_grad=True) * 2})
    assert not meter.sums["a"].requires_grad


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_check_names_the_first_term_that_was_not_finite(bad: float) -> None:
    meter = Meter()
    meter.add(10, {"a": scalar(1.0), "b": scalar(1.0)})
    meter.check()
    meter.add(11, {"a": scalar(1.0), "b": scalar(bad)})
    meter.add(12, {"a": scalar(bad), "b": scalar(1.0)})  # a finite value later hides nothing
    with pytest.raises(RunFailed, match=r"'b' is not finite at step 11\b"):
        meter.check()


def test_failure_is_remembered_across_rows() -> None:
    meter = Meter()
    meter.add(0, {"a": scalar(math.nan)})
    meter.row()
    meter.add(1, {"a": scalar(1.0)})
    with pytest.raises(RunFailed, match="step 0"):
        meter.check()


def test_late_steps_are_named_exactly() -> None:
    meter = Meter()
    meter.add(2**24 + 1, {"a": scalar(math.nan)})  # which float32 rounds
    with pytest.raises(RunFailed, match="step 16777217"):
        meter.check()


def test_empty_meter_is_fine() -> None:
    Meter().check()


def test_meter_goes_on_after_a_restart() -> None:
    whole, first, second = Meter(), Meter(), Meter()
    for meter in (whole, first):
        meter.add(0, {"a": scalar(1.5)})
    second.load_state_dict(first.state_dict(), torch.device("cpu"))
    for meter in (whole, second):
        meter.add(1, {"a": scalar(2.5)})
    assert whole.row() == second.row() == {"a": 2.0}


# --- averaging ----------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup_epochs", [0, 1, 2])
def test_average_equals_the_live_weights_in_a_warm_up_and_lags_behind_from_its_end(
    warmup_epochs: int,
) -> None:
    toy = Toy(toy_run("safe-student", warmup_epochs=warmup_epochs))
    weights = nn.utils.parameters_to_vector
    live = [weights(toy.ema.live.values())]  # before the first step and after each
    average = list(live)

    def note(progress: MethodState) -> None:
        live.append(weights(progress.ema.live.values()))
        average.append(weights(progress.ema.average.values()))

    fitted(toy, save=note, checkpoint_every=1)
    assert not any(torch.equal(before, after) for before, after in pairwise(live))
    first = 1 + 6 * warmup_epochs
    assert all(map(torch.equal, average[:first], live[:first]))
    for step in range(first, 1 + 12):
        expected = torch.lerp(average[step - 1], live[step], 1 - toy.ema.decay)
        assert torch.allclose(average[step], expected, rtol=1e-6, atol=1e-8)
        assert not torch.equal(average[step], live[step])


# --- clock, best, evaluated state ---------------------------------------------------------------


@pytest.mark.parametrize(("step", "epoch"), [(0, 0), (1023, 0), (1024, 1), (262_143, 255)])
def test_epoch_is_a_counter_of_steps(step: int, epoch: int) -> None:
    assert Clock(step, 1024, 262_144).epoch == epoch


def progression(method: str, steps: int) -> tuple[Toy, MethodState]:
    toy = Toy(toy_run(method))
    for step in range(10, 10 + steps):
        toy.step(step)
    return toy, MethodState(toy.network, toy.optimizer, toy.ema, generators(1))


def test_evaluated_state_is_averaged_weights_with_current_buffers_and_no_bank() -> None:
    toy, progress = progression("dac", 3)
    state = evaluated_state(progress)
    everything = toy.network.state_dict()
    assert set(everything) - set(state) == {f"method.bank.{n}" for n in ("z", "q", "position")}
    for name, tensor in state.items():
        source = toy.ema.average if name in toy.ema.average else everything
        assert torch.equal(tensor, source[name])
    weight = next(name for name in everything if name.startswith("backbone."))
    assert not torch.equal(state[weight], everything[weight])  # the average lags behind
    statistics = [state[name] for name in state if name.endswith("running_mean")]
    assert statistics and all(mean.abs().sum() > 0 for mean in statistics)


def test_evaluated_state_does_not_change_when_training_goes_on() -> None:
    toy, progress = progression("fixmatch", 2)
    state = evaluated_state(progress)
    kept = {name: tensor.clone() for name, tensor in state.items()}
    toy.step(12)
    assert all(torch.equal(state[name], kept[name]) for name in kept)


def test_best_must_be_strictly_better_than_every_earlier_evaluation() -> None:
    _, progress = progression("labeled-only", 1)
    for step, accuracy in enumerate([0.5, 0.7, 0.7, 0.6, 0.71], start=1):
        _keep_best(progress, {"step": float(step), "closed_accuracy": accuracy})
        best = max(np.array([0.5, 0.7, 0.7, 0.6, 0.71])[:step])
        assert progress.best["closed_accuracy"] == best
        assert progress.best["step"] == (1, 2, 2, 2, 5)[step - 1]
