"""Distillation from the bank, Eqs. (11) and (12): by hand, the textbook form, bounds, extremes."""

import math
from collections.abc import Callable
from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import finite_with_gradient, normal
from torch import Tensor
from torch.nn import functional as F

from dac import losses
from dac.losses import textbook_distillation

MODULE = import_module("dac.losses.distillation")  # the package has a function of this name


def distillation_case(
    U: int = 6, M: int = 11, D: int = 5, C: int = 3, seed: int = 0
) -> list[Tensor]:
    return [
        F.normalize(normal(U, D, seed=seed)),
        normal(U, C + 1, seed=seed + 1).softmax(dim=1),
        F.normalize(normal(M, D, seed=seed + 2)),
        normal(M, C + 1, seed=seed + 3).softmax(dim=1),
    ]


@pytest.mark.parametrize("form", [losses.distillation, losses.textbook_distillation])
def test_distillation_by_hand(form: Callable[..., Tensor]) -> None:
    # z = (1, 0); the bank holds (1, 0) and (0, 1): products 1 and 0, at t = 1 / log 3 the
    # affinities are 3/4 and 1/4. Aggregated target: 3/4 (1, 0) + 1/4 (1/2, 1/2) = (7/8, 1/8).
    z, bank_z = torch.tensor([[1.0, 0.0]]), torch.eye(2)
    bank_q = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    q = torch.tensor([[0.25, 0.75]])
    found = form(z, q, bank_z, bank_q, 1 / math.log(3))
    expected = -(0.25 * math.log(7 / 8) + 0.75 * math.log(1 / 8))
    assert found.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_distillation_equals_the_textbook_form(temperature: float) -> None:
    z, q, bank_z, bank_q = distillation_case()
    ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
    value = losses.distillation(ours, q, bank_z, bank_q, temperature)
    expected = textbook_distillation(theirs, q, bank_z, bank_q, temperature)
    assert value.item() == pytest.approx(expected.item(), rel=1e-10)
    (2 * value).backward()
    (2 * expected).backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-8, atol=1e-12)


def test_gradient_of_distillation_is_that_of_finite_differences() -> None:
    z, q, bank_z, bank_q = distillation_case(U=3, M=5)

    def of(features: Tensor) -> Tensor:
        return losses.distillation(features, q, bank_z, bank_q, 0.3)

    assert torch.autograd.gradcheck(of, (z.requires_grad_(),))


@pytest.mark.parametrize("block", [1, 4, 11])
def test_blocks_of_the_bank_give_the_same_as_one(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    z, q, bank_z, bank_q = distillation_case()
    monkeypatch.setattr(MODULE, "BANK_BLOCK", block)
    ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
    value = losses.distillation(ours, q, bank_z, bank_q, 0.1)
    expected = textbook_distillation(theirs, q, bank_z, bank_q, 0.1)
    value.backward()
    expected.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-10)
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-8, atol=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_uniform_bank_targets_give_the_log_of_all_classes(seed: int, C: int) -> None:
    z, q, bank_z, _ = distillation_case(C=C, seed=seed)
    uniform = torch.full((len(bank_z), C + 1), 1 / (C + 1), dtype=torch.float64)
    ours = z.requires_grad_()
    value = losses.distillation(ours, q, bank_z, uniform, 0.1)
    value.backward()
    assert value.item() == pytest.approx(math.log(C + 1))
    assert ours.grad.abs().max() < 1e-9  # every neighbour says the same


@settings(max_examples=25)
@given(st.permutations(range(11)))
def test_order_of_the_bank_changes_nothing(order: list[int]) -> None:
    z, q, bank_z, bank_q = distillation_case()
    value = losses.distillation(z, q, bank_z, bank_q, 0.1)
    moved = losses.distillation(z, q, bank_z[order], bank_q[order], 0.1)
    assert value.item() == pytest.approx(moved.item(), rel=1e-10)


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_distillation_is_at_least_the_entropy_of_its_targets(seed: int) -> None:
    z, q, bank_z, bank_q = distillation_case(seed=seed)
    entropy = -(q * q.log()).sum(dim=1).mean()
    assert losses.distillation(z, q, bank_z, bank_q, 0.1) >= entropy - 1e-12


def test_gradient_of_distillation_reaches_the_features_only() -> None:
    tensors = [tensor.requires_grad_() for tensor in distillation_case()]
    losses.distillation(*tensors, 0.1).backward()
    assert tensors[0].grad is not None and tensors[0].grad.abs().sum() > 0
    assert all(tensor.grad is None for tensor in tensors[1:])


def test_all_zero_bank_is_finite_and_pulls_nowhere() -> None:
    z, q, bank_z, bank_q = (t.float() for t in distillation_case())
    zero = z.clone().requires_grad_()
    value = losses.distillation(zero, q, torch.zeros_like(bank_z), torch.zeros_like(bank_q), 0.1)
    value.backward()
    assert value.item() == pytest.approx(-math.log(losses.LOG_FLOOR), rel=1e-5)
    assert torch.equal(zero.grad, torch.zeros_like(z))


def test_targets_below_the_floor_of_the_logarithm_pull_nowhere() -> None:
    z, q, bank_z, bank_q = distillation_case()
    bank_q[:, 0] *= 1e-16  # a class that the bank has all but never seen
    ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
    losses.distillation(ours, q, bank_z, bank_q, 0.1).backward()
    aggregated = (theirs @ bank_z.T / 0.1).softmax(dim=1) @ bank_q
    (-(q * aggregated.clamp_min(losses.LOG_FLOOR).log()).sum(dim=1).mean()).backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-8, atol=1e-12)


def test_bank_that_never_saw_a_class_is_finite() -> None:
    z, q, bank_z, _ = (t.float() for t in distillation_case())
    bank_q = torch.zeros(len(bank_z), q.shape[1])
    bank_q[:, 0] = 1
    finite_with_gradient(lambda at: losses.distillation(at, q, bank_z, bank_q, 0.1), z)


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.05, 0.01])
def test_bank_opposite_to_every_feature_is_finite(temperature: float) -> None:
    z, q, _, bank_q = (t.float() for t in distillation_case(U=4, M=7))
    z = z[:1].expand_as(z)
    opposite = -z[:1].expand(7, -1)  # the least affinity that two embeddings can have
    value = finite_with_gradient(
        lambda at: losses.distillation(at, q, opposite, bank_q, temperature), z
    )
    expected = textbook_distillation(z, q, opposite, bank_q, temperature)
    assert value.item() == pytest.approx(expected.item(), rel=1e-4)


def test_one_feature_and_one_bank_row_are_enough() -> None:
    z, q, bank_z, bank_q = (t.float() for t in distillation_case(U=1, M=1))
    value = finite_with_gradient(lambda at: losses.distillation(at, q, bank_z, bank_q, 0.1), z)
    assert value.item() == pytest.approx(-(q * bank_q.log()).sum().item(), rel=1e-5)


def test_autocast_does_not_reach_inside_the_distillation() -> None:
    case = [tensor.float() for tensor in distillation_case()]
    with torch.autocast("cpu", torch.bfloat16):
        found = losses.distillation(*case, 0.1)
    assert torch.equal(found, losses.distillation(*case, 0.1))
