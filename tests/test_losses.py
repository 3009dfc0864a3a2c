"""Eqs. (2), (3), (5), (6), (11), (12): numbers by hand, plain forms, gradients, extremes."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from dac import losses


def normal(
    *shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=draw, dtype=dtype)


def finite_with_gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """The value of `function`, after checking that it and its gradient are finite."""
    at = at.clone().requires_grad_()
    value = function(at)
    value.sum().backward()
    assert value.isfinite().all() and at.grad is not None and at.grad.isfinite().all()
    return value.detach()


# --- Eqs. (2) and (3) ---------------------------------------------------------------------------


def test_supervised_loss_by_hand() -> None:
    # softmax(log 3, 0) = (3/4, 1/4): the first image is right, the second is wrong.
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])
    expected = -(math.log(3 / 4) + math.log(1 / 4)) / 2
    assert losses.supervised(logits, torch.tensor([0, 1])).item() == pytest.approx(expected)


def test_supervised_loss_averages_over_views_that_lie_one_after_the_other() -> None:
    first, second, y = normal(5, 3, seed=1), normal(5, 3, seed=2), torch.tensor([0, 1, 2, 1, 0])
    both = losses.supervised(torch.cat([first, second]), y)
    apart = (losses.supervised(first, y) + losses.supervised(second, y)) / 2
    assert both.item() == pytest.approx(apart.item())


def test_pseudo_label_loss_by_hand() -> None:
    weak = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])  # confidences 3/4 and 1/2
    strong = torch.tensor([[0.0, math.log(4)], [0.0, math.log(4)]])  # p(class 0) = 1/5
    found = losses.pseudo_label(weak, strong, tau=0.7)
    assert found.tolist() == pytest.approx([math.log(5), 0.0])


def test_soft_pseudo_label_uses_the_weak_views_distribution() -> None:
    weak, strong = torch.tensor([[math.log(3), 0.0]]), torch.tensor([[0.0, math.log(4)]])
    expected = -(3 / 4 * math.log(1 / 5) + 1 / 4 * math.log(4 / 5))
    assert losses.pseudo_label(weak, strong, tau=0.7, hard=False).item() == pytest.approx(expected)


def test_confidence_equal_to_tau_is_enough() -> None:
    weak, strong = torch.zeros(1, 2), torch.zeros(1, 2)
    assert losses.pseudo_label(weak, strong, tau=0.5).item() == pytest.approx(math.log(2))
    assert losses.pseudo_label(weak, strong, tau=0.5 + 1e-6).item() == 0


@pytest.mark.parametrize("hard", [True, False])
def test_pseudo_label_loss_equals_plain_numpy(hard: bool) -> None:
    weak, strong = normal(40, 4, seed=3, scale=2), normal(40, 4, seed=4)
    p = np.exp(weak.numpy()) / np.exp(weak.numpy()).sum(1, keepdims=True)
    log_strong = np.log(np.exp(strong.numpy()) / np.exp(strong.numpy()).sum(1, keepdims=True))
    target = np.eye(4)[p.argmax(1)] if hard else p
    expected = (p.max(1) >= 0.6) * -(target * log_strong).sum(1)
    assert 0 < (expected > 0).sum() < 40  # both sides of the threshold occur
    assert losses.pseudo_label(weak, strong, tau=0.6, hard=hard).numpy() == pytest.approx(expected)


@pytest.mark.parametrize("hard", [True, False])
def test_pseudo_labels_carry_no_gradient(hard: bool) -> None:
    weak, strong = normal(6, 3, scale=9).requires_grad_(), normal(6, 3, seed=1).requires_grad_()
    losses.pseudo_label(weak, strong, tau=0.5, hard=hard).sum().backward()
    assert weak.grad is None
    assert strong.grad is not None and strong.grad.abs().sum() > 0


def test_head_losses_are_the_means_of_each_heads_own_loss() -> None:
    x, y = normal(6, 4, 3, seed=1), torch.tensor([0, 2, 1])  # two views of three images
    weak, strong = normal(7, 4, 3, seed=2, scale=3), normal(7, 4, 3, seed=3)
    supervised = [losses.supervised(x[:, i], y).item() for i in range(4)]
    unlabeled = [
        losses.pseudo_label(weak[:, i], strong[:, i], tau=0.8).mean().item() for i in range(4)
    ]
    assert len(set(unlabeled)) == 4  # every head follows its own labels
    assert losses.head_supervised(x, y).item() == pytest.approx(np.mean(supervised))
    found = losses.head_pseudo_label(weak, strong, tau=0.8).item()
    assert found == pytest.approx(np.mean(unlabeled))


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_saturated_logits_keep_cross_entropies_finite(size: float) -> None:
    logits = size * torch.eye(3)
    y = torch.tensor([1, 1, 2])
    finite_with_gradient(lambda at: losses.supervised(at, y), logits)
    for hard in (True, False):
        finite_with_gradient(
            lambda at, hard=hard: losses.pseudo_label(logits.flip(0), at, tau=0.9, hard=hard),
            logits,
        )


# --- Eq. (6) ------------------------------------------------------------------------------------


def textbook_mutual_information(logits: Tensor) -> Tensor:
    """Mean over pairs i < j of sum J log(J / m_i m_j), with all joints materialised: B K K C C."""
    p = logits.softmax(dim=2)
    K = p.shape[1]
    joint = (p[:, :, None, :, None] * p[:, None, :, None, :]).mean(dim=0)  # K K C C
    marginal = p.mean(dim=0)  # K C
    product = marginal[:, None, :, None] * marginal[None, :, None, :]
    pairs = (joint * (joint.log() - product.log())).sum(dim=(2, 3))
    upper = torch.triu_indices(K, K, offset=1)
    return pairs[upper[0], upper[1]].mean()


def one_hot_logits(classes: Tensor, num_classes: int, size: float = 1e3) -> Tensor:
    return size * F.one_hot(classes, num_classes).double()


def test_mutual_information_by_hand() -> None:
    # Two samples, two heads, two classes. Head 1 says (3/4, 1/4) then (1/4, 3/4); head 2 the same.
    # J = [[10, 6], [6, 10]] / 32, uniform marginals: sum J log 4J.
    a = math.log(3)
    logits = torch.tensor([[[a, 0], [a, 0]], [[0, a], [0, a]]], dtype=torch.float64)
    expected = 2 * (10 / 32 * math.log(40 / 32) + 6 / 32 * math.log(24 / 32))
    assert losses.mutual_information(logits).item() == pytest.approx(expected, rel=1e-12)


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
    monkeypatch.setattr(losses, "GRAM_ELEMENTS", heads_per_block * C * K * C)
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
    assert value.item() == 0
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


# --- Eqs. (11) and (12) -------------------------------------------------------------------------


def dense_distillation(
    z: Tensor, q: Tensor, bank_z: Tensor, bank_q: Tensor, temperature: float
) -> Tensor:
    """Eqs. (11)-(12) as they are written."""
    affinity = (z @ bank_z.T / temperature).softmax(dim=1)
    return -(q * (affinity @ bank_q).log()).sum(dim=1).mean()


def distillation_case(
    U: int = 6, M: int = 11, D: int = 5, C: int = 3, seed: int = 0
) -> list[Tensor]:
    return [
        F.normalize(normal(U, D, seed=seed)),
        normal(U, C + 1, seed=seed + 1).softmax(dim=1),
        F.normalize(normal(M, D, seed=seed + 2)),
        normal(M, C + 1, seed=seed + 3).softmax(dim=1),
    ]


def test_distillation_by_hand() -> None:
    # z = (1, 0); the bank holds (1, 0) and (0, 1): products 1 and 0, at t = 1 / log 3 the
    # affinities are 3/4 and 1/4. Aggregated target: 3/4 (1, 0) + 1/4 (1/2, 1/2) = (7/8, 1/8).
    z, bank_z = torch.tensor([[1.0, 0.0]]), torch.eye(2)
    bank_q = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    q = torch.tensor([[0.25, 0.75]])
    found = losses.distillation(z, q, bank_z, bank_q, 1 / math.log(3))
    expected = -(0.25 * math.log(7 / 8) + 0.75 * math.log(1 / 8))
    assert found.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_distillation_equals_the_dense_form(temperature: float) -> None:
    z, q, bank_z, bank_q = distillation_case()
    ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
    value = losses.distillation(ours, q, bank_z, bank_q, temperature)
    expected = dense_distillation(theirs, q, bank_z, bank_q, temperature)
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
    monkeypatch.setattr(losses, "BANK_BLOCK", block)
    ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
    value = losses.distillation(ours, q, bank_z, bank_q, 0.1)
    expected = dense_distillation(theirs, q, bank_z, bank_q, 0.1)
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
    expected = dense_distillation(z, q, opposite, bank_q, temperature)
    assert value.item() == pytest.approx(expected.item(), rel=1e-4)


def test_one_feature_and_one_bank_row_are_enough() -> None:
    z, q, bank_z, bank_q = (t.float() for t in distillation_case(U=1, M=1))
    value = finite_with_gradient(lambda at: losses.distillation(at, q, bank_z, bank_q, 0.1), z)
    assert value.item() == pytest.approx(-(q * bank_q.log()).sum().item(), rel=1e-5)


# --- precision ----------------------------------------------------------------------------------


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


def test_autocast_does_not_reach_inside_the_distillation() -> None:
    case = [tensor.float() for tensor in distillation_case()]
    with torch.autocast("cpu", torch.bfloat16):
        found = losses.distillation(*case, 0.1)
    assert torch.equal(found, losses.distillation(*case, 0.1))
