"""One-vs-all detectors: row order, numbers by hand, plain loops, and what no term may do."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from dac.methods.parts.one_vs_all import (
    Detectors,
    all_negatives,
    entropy,
    hard_negative,
    open_set_distribution,
    positives,
    squared_difference,
)

SHAPES = given(st.integers(0, 1000), st.integers(1, 9), st.integers(2, 7))
LABELS = torch.tensor([0, 2])


def logits(B: int, C: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(B, 2 * C, generator=torch.Generator().manual_seed(seed))


def labels(B: int, C: int, seed: int = 0) -> Tensor:
    return torch.randint(C, (B,), generator=torch.Generator().manual_seed(seed))


def of_inlier(rows: list[list[float]]) -> Detectors:
    """Detectors that give these probabilities to "mine"."""
    inside = torch.tensor(rows)
    return Detectors.of(torch.cat([(1 - inside).log(), inside.log()], dim=1))


HAND = [[0.8, 0.4, 0.1], [0.5, 0.25, 0.2]]  # with LABELS: the true classes have 0.8 and 0.2


def plain(rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """a_out and a_in, entry by entry: the first C logits of a row say "not mine"."""
    values = rows.double().numpy()
    B, C = values.shape[0], values.shape[1] // 2
    out = np.zeros((B, C))
    for b in range(B):
        for c in range(C):
            out[b, c] = 1 / (1 + math.exp(values[b, C + c] - values[b, c]))
    return out, 1 - out


# --- detectors ----------------------------------------------------------------------------------


def test_first_half_of_the_logits_says_outlier_and_the_second_inlier() -> None:
    # Class 0: (out 4, in 0), class 1: (0, 4), class 2: (1, 1 + log 3).
    row = torch.tensor([[4.0, 0.0, 1.0, 0.0, 4.0, 1 + math.log(3)]])
    found, low = Detectors.of(row), 1 / (1 + math.exp(4))
    assert found.log_in.exp()[0].tolist() == pytest.approx([low, 1 - low, 0.75], rel=1e-5)
    assert found.log_out.exp()[0].tolist() == pytest.approx([1 - low, low, 0.25], rel=1e-5)


@settings(max_examples=40)
@SHAPES
def test_both_probabilities_sum_to_one_and_equal_plain_loops(seed: int, B: int, C: int) -> None:
    found, (out, inside) = Detectors.of(logits(B, C, seed)), plain(logits(B, C, seed))
    assert torch.allclose(found.log_out.exp() + found.log_in.exp(), torch.ones(B, C), atol=1e-6)
    assert found.log_out.exp().numpy() == pytest.approx(out, abs=1e-5)
    assert found.log_in.exp().numpy() == pytest.approx(inside, abs=1e-5)


def test_extreme_logits_stay_finite_and_half_precision_is_widened() -> None:
    found = Detectors.of(torch.tensor([[500.0, 0.0, 0.0, 500.0]], dtype=torch.bfloat16))
    assert found.log_in.tolist() == [[-500, 0]] and found.log_in.dtype == torch.float32
    assert entropy(found).tolist() == [0]


def test_split_gives_the_parts_in_their_order() -> None:
    whole = Detectors.of(logits(6, 3))
    first, second = whole.split(2, 4)
    assert torch.equal(first.log_in, whole.log_in[:2])
    assert torch.equal(second.log_in, whole.log_in[2:])
    assert torch.equal(second.log_out, whole.log_out[2:])


def test_inlier_reads_the_class_given_for_each_row() -> None:
    assert of_inlier(HAND).inlier(torch.tensor([1, 2])).tolist() == pytest.approx([0.4, 0.2])


# --- terms of the labels ------------------------------------------------------------------------


def test_terms_of_the_labels_by_hand() -> None:
    found = of_inlier(HAND)
    positive = -(math.log(0.8) + math.log(0.2)) / 2
    hardest = -(math.log(0.6) + math.log(0.5)) / 2  # wrong classes: 0.6, 0.9 and 0.5, 0.75
    wrong = -(math.log(0.6) + math.log(0.9) + math.log(0.5) + math.log(0.75))
    assert positives(found, LABELS).item() == pytest.approx(positive, rel=1e-5)
    assert hard_negative(found, LABELS).item() == pytest.approx(positive + hardest, rel=1e-5)
    assert all_negatives(found, LABELS).item() == pytest.approx(wrong / 6, rel=1e-5)


@settings(max_examples=40)
@SHAPES
def test_terms_of_the_labels_equal_plain_loops(seed: int, B: int, C: int) -> None:
    rows, y = logits(B, C, seed), labels(B, C, seed)
    found, (out, inside) = Detectors.of(rows), plain(rows)
    wrong = [[-math.log(out[b, c]) for c in range(C) if c != y[b]] for b in range(B)]
    positive = np.mean([-math.log(inside[b, y[b]]) for b in range(B)])
    hard = positive + np.mean([max(row) for row in wrong])
    assert positives(found, y).item() == pytest.approx(positive, rel=1e-4, abs=1e-6)
    assert hard_negative(found, y).item() == pytest.approx(hard, rel=1e-4, abs=1e-6)
    share = (C - 1) / C  # of the mean over wrong classes: the true one counts as zero
    assert all_negatives(found, y).item() == pytest.approx(
        share * np.mean(wrong), rel=1e-4, abs=1e-6
    )


@settings(max_examples=30)
@SHAPES
def test_hard_negative_falls_as_the_true_classes_inlier_logit_rises(
    seed: int, B: int, C: int
) -> None:
    y, losses = labels(B, C, seed), []
    for rise in (-10.0, 0.0, 1.0, 4.0):
        rows = logits(B, C, seed) + rise * F.one_hot(C + y, 2 * C)
        losses.append(hard_negative(Detectors.of(rows), y).item())
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


def test_true_class_is_never_a_negative() -> None:
    rows, y = logits(5, 4).requires_grad_(), labels(5, 4)
    own = F.one_hot(y, 4).bool()
    negative = hard_negative(Detectors.of(rows), y) - positives(Detectors.of(rows), y)
    for term in (negative, all_negatives(Detectors.of(rows), y)):
        (gradient,) = torch.autograd.grad(term, [rows])
        out, inside = gradient.split(4, dim=1)
        assert out[~own].any()
        assert torch.allclose(out[own], torch.zeros(5), atol=1e-7)
        assert torch.allclose(inside[own], torch.zeros(5), atol=1e-7)
    # A detector sure of its own class, and nearly sure that the others are not: still small.
    sure = of_inlier([[1 - 1e-6, 1e-3, 1e-3]])
    assert hard_negative(sure, torch.tensor([0])).item() == pytest.approx(1e-3, rel=1e-2)


def test_only_the_hardest_wrong_class_of_a_row_gets_a_gradient() -> None:
    out = of_inlier(HAND).log_out.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        hard_negative(Detectors(out, of_inlier(HAND).log_in), LABELS), [out]
    )
    assert gradient.tolist() == [[0, -0.5, 0], [-0.5, 0, 0]]


# --- terms of unlabeled images ------------------------------------------------------------------


def test_entropy_and_difference_by_hand() -> None:
    half = of_inlier([[0.5, 0.5]])
    assert entropy(half).tolist() == pytest.approx([math.log(2)])  # a mean over classes
    first, second = of_inlier([[0.8, 0.4, 0.1]]), of_inlier([[0.6, 0.4, 0.4]])
    squared = 2 * (0.2**2 + 0.3**2)  # a sum over classes and both rows
    assert squared_difference(first, second).tolist() == pytest.approx([squared], rel=1e-4)
    each = [-p * math.log(p) - (1 - p) * math.log(1 - p) for p in (0.8, 0.4, 0.1)]
    assert entropy(first).tolist() == pytest.approx([sum(each) / 3], rel=1e-5)


@settings(max_examples=40)
@SHAPES
def test_entropy_and_difference_equal_plain_loops(seed: int, B: int, C: int) -> None:
    one, two = logits(B, C, seed), logits(B, C, seed + 1)
    (out, inside), (other_out, other_in) = plain(one), plain(two)
    spread, apart = np.zeros(B), np.zeros(B)
    for b in range(B):
        for c in range(C):
            for p, q in ((out[b, c], other_out[b, c]), (inside[b, c], other_in[b, c])):
                spread[b] -= p * math.log(p) / C
                apart[b] += (p - q) ** 2
    found = squared_difference(Detectors.of(one), Detectors.of(two))
    assert entropy(Detectors.of(one)).numpy() == pytest.approx(spread, abs=1e-5)
    assert found.numpy() == pytest.approx(apart, abs=1e-5)


# --- IOMatch's target ---------------------------------------------------------------------------


def test_open_set_distribution_by_hand() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2]])
    found = open_set_distribution(p, of_inlier([[0.8, 0.4, 0.1]]))
    outlier = 0.5 * 0.2 + 0.3 * 0.6 + 0.2 * 0.9
    assert found[0].tolist() == pytest.approx([0.4, 0.12, 0.02, outlier], rel=1e-5)


@settings(max_examples=40)
@SHAPES
def test_open_set_distribution_sums_to_one_and_equals_plain_loops(
    seed: int, B: int, C: int
) -> None:
    p = logits(B, C, seed + 1)[:, :C].softmax(dim=1)
    found, (out, inside) = (
        open_set_distribution(p, Detectors.of(logits(B, C, seed))),
        plain(logits(B, C, seed)),
    )
    assert found.shape == (B, C + 1)
    assert torch.allclose(found.sum(dim=1), torch.ones(B), atol=1e-5)
    for b in range(B):
        expected = [float(p[b, c]) * inside[b, c] for c in range(C)]
        expected.append(sum(float(p[b, c]) * out[b, c] for c in range(C)))
        assert found[b].tolist() == pytest.approx(expected, abs=1e-5)


def test_detectors_that_claim_everything_leave_p_as_it_is() -> None:
    p = logits(4, 3)[:, :3].softmax(dim=1)
    sure = Detectors.of(torch.tensor([[-200.0] * 3 + [200.0] * 3] * 4))
    assert torch.equal(open_set_distribution(p, sure), torch.cat([p, torch.zeros(4, 1)], dim=1))
