"""Mutual information of heads, Eq. (6): by hand, against the textbook form, bounds, extremes."""

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
from dac.losses import textbook_mutual_information

MODULE = import_module("dac.losses.mutual_information")  # the package has a function of this name


def one_hot_logits(classes: Tensor, num_classes: int, size: float = 1e3) -> Tensor:
    return size * F.one_hot(classes, num_classes).double()


@pytest.mark.parametrize("form", [losses.mutual_information, losses.textbook_mutual_information])
def test_mutual_information_by_hand(form: Callable[[Tensor], Tensor]) -> None:
    # Two samples, two heads, two classes. Head 1 says (3/4, 1/4) then (1/4, 3/4); head 2 the same.
    # J = [[10, 6], [6, 10]] / 32, uniform marginals: sum J log 4J.
    a = math.log(3)
    logits = torch.tensor([[[a, 0], [a, 0]], [[0, a], [0, a]]], dtype=torch.float64)
    expected = 2 * (10 / 32 * math.log(40 / 32) + 6 / 32 * math.log(24 / 32))
    assert form(logits).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("B", "K", "C"), [(6, 2, 3), (5, 4, 3), (9, 3, 6), (1, 3, 4)])
def test_mutual_information_equals_the_textbook_form(B: int, K: int, C: int) -> None:
    ours = normal(B, K, C, seed=B, scale=2).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    value, expected = losses.mutual_information(ours), textbook_mutual_information(theirs)
    assert value.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-14)
    (3 * value).backward()
    (3 * expected).backward()
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-9, atol=1e-13)


def test_gradient_of_mutual_information_is_that_of_finite_differences() -> None:
    logits = normal(5, 3, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(losses.mutual_information, (logits,))


@pytest.mark.parametrize("heads_per_block", [1, 2, 3])
def test_blocks_of_heads_give_the_same_as_one_block(
    monkeypatch: pytest.MonkeyPatch, heads_per_block: int
) -> None:
    K, C = 5, 3
    whole, parts = (normal(8, K, C, seed=4).requires_grad_() for _ in range(2))
    losses.mutual_information(whole).backward()
    monkeypatch.setattr(MODULE, "GRAM_ELEMENTS", heads_per_block * C * K * C)
    value = losses.mutual_information(parts)
    value.backward()
    assert value.item() == pytest.approx(textbook_mutual_information(parts).item(), rel=1e-12)
    assert torch.allclose(whole.grad, parts.grad, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("C", [2, 5])
@pytest.mark.parametrize("K", [2, 3])
def test_identical_one_hot_heads_that_use_all_classes_have_log_c(K: int, C: int) -> None:
    classes = torch.arange(4 * C) % C
    logits = one_hot_logits(classes[:, None].expand(-1, K), C)
    assert losses.mutual_information(logits).item() == pytest.approx(math.log(C))


def test_independent_heads_have_none() -> None:
    grid = torch.cartesian_prod(torch.arange(3), torch.arange(3))  # every pair of classes once
    assert losses.mutual_information(one_hot_logits(grid, 3)).item() == pytest.approx(0, abs=1e-9)
    constant = normal(1, 4, 3).expand(7, 4, 3)  # predictions that do not depend on the sample
    assert losses.mutual_information(constant).item() == pytest.approx(0, abs=1e-9)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(2, 4), st.integers(2, 5))
def test_mutual_information_lies_between_zero_and_log_c(seed: int, B: int, K: int, C: int) -> None:
    value = losses.mutual_information(normal(B, K, C, seed=seed, scale=5)).item()
    assert -1e-9 <= value <= math.log(C) + 1e-9


@settings(max_examples=25)
@given(st.permutations(range(4)), st.permutations(range(6)))
def test_order_of_heads_and_samples_changes_nothing(heads: list[int], samples: list[int]) -> None:
    logits = normal(6, 4, 3, seed=7, scale=2).requires_grad_()
    moved = logits.detach()[samples][:, heads].requires_grad_()
    value, same = losses.mutual_information(logits), losses.mutual_information(moved)
    assert value.item() == pytest.approx(same.item(), rel=1e-10)
    value.backward()
    same.backward()
    assert torch.allclose(logits.grad[samples][:, heads], moved.grad, rtol=1e-8, atol=1e-14)


def test_one_head_has_no_mutual_information_and_no_gradient() -> None:
    logits = normal(6, 1, 3).requires_grad_()
    value = losses.mutual_information(logits)
    value.backward()
    assert value.item() == textbook_mutual_information(logits).item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_descent_on_mutual_information_makes_heads_independent() -> None:
    logits = normal(12, 3, 3, seed=3, scale=0.5) + normal(12, 1, 3, seed=4, scale=2)
    logits.requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.1)
    before = losses.mutual_information(logits).item()
    for _ in range(100):
        optimizer.zero_grad()
        losses.mutual_information(logits).backward()
        optimizer.step()
    assert losses.mutual_information(logits).item() < 0.05 * before


@pytest.mark.parametrize("shape", [(1, 3, 4), (1, 1, 2), (5, 2, 1), (6, 4, 3)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_mutual_information_is_finite_in_float32(shape: tuple[int, ...], scale: float) -> None:
    logits = normal(*shape, seed=8, scale=scale, dtype=torch.float32)
    assert finite_with_gradient(losses.mutual_information, logits) >= -1e-5


def test_mutual_information_in_float32_agrees_with_float64_at_the_papers_size() -> None:
    logits = normal(448, 10, 20, seed=5, scale=3)
    exact = textbook_mutual_information(logits[:, :3]).item()
    assert losses.mutual_information(logits[:, :3].float()).item() == pytest.approx(exact, rel=1e-4)


def test_bfloat16_logits_are_widened_before_any_logarithm() -> None:
    logits = normal(6, 3, 4, dtype=torch.float32).bfloat16()
    assert losses.mutual_information(logits).dtype == torch.float32
    assert torch.equal(losses.mutual_information(logits), losses.mutual_information(logits.float()))
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.equal(
        losses.supervised(logits[:, 0], y), losses.supervised(logits[:, 0].float(), y)
    )


def test_autocast_does_not_reach_inside_the_mutual_information() -> None:
    logits = normal(32, 4, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = losses.mutual_information(logits)
    assert torch.equal(found, losses.mutual_information(logits))
