"""Metrics against numbers by hand, scikit-learn and plain definitions, absent classes included.

The package computes without scikit-learn, whose import is slow, and must agree with it to the last
bit: results that were published with it stay as they are.
"""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    recall_score,
    roc_auc_score,
    top_k_accuracy_score,
)

from dac.metrics import auroc, closed_set_accuracy, open_set_balanced_accuracy, rates


def test_closed_set_accuracy_looks_at_known_images_only() -> None:
    labels = np.array([0, 1, 1, 2, 5, -1])  # 2 and 5 are unknown classes, -1 nobody knows
    assert closed_set_accuracy(labels, np.array([0, 1, 0, 2, 5, 0]), 2) == pytest.approx(2 / 3)


def test_closed_set_accuracy_without_known_images_is_nan() -> None:
    assert np.isnan(closed_set_accuracy(np.array([3, 4]), np.array([0, 1]), 3))


def test_top_k_by_hand() -> None:
    ranking = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [3, 2, 1, 0], [0, 1, 2, 3]])
    labels = np.array([1, 2, 0, 7])  # the last is unknown
    assert closed_set_accuracy(labels, ranking[:, :1], 4) == 0
    assert closed_set_accuracy(labels, ranking[:, :2], 4) == pytest.approx(2 / 3)
    assert closed_set_accuracy(labels, ranking, 4) == 1


@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_equals_scikit_learn_to_the_bit(k: int) -> None:
    draw = np.random.default_rng(k)
    logits, labels = draw.normal(size=(200, 7)), draw.integers(0, 7, 200)
    expected = top_k_accuracy_score(labels, logits, k=k, labels=np.arange(7))
    ranking = np.argsort(-logits, axis=1)
    assert closed_set_accuracy(labels, ranking[:, :k], 7) == expected


def test_balanced_accuracy_by_hand() -> None:
    # Recalls: class 0 1/2, class 1 1, unknown 2/3 (labels 2 and 3 are both unknown).
    labels = np.array([0, 0, 1, 2, 3, 3])
    predictions = np.array([0, 2, 1, 2, 2, 0])
    expected = (1 / 2 + 1 + 2 / 3) / 3
    assert open_set_balanced_accuracy(labels, predictions, 2) == pytest.approx(expected)


def test_unknown_classes_are_one_class() -> None:
    labels, predictions = np.array([0, 4, 5, 6]), np.array([0, 9, 2, 4])
    assert open_set_balanced_accuracy(labels, predictions, 2) == 1


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.sampled_from([12, 1000]))
def test_balanced_accuracy_equals_scikit_learn_to_the_bit_over_classes_that_occur(
    seed: int, num_known: int, count: int
) -> None:
    draw = np.random.default_rng(seed)
    labels = draw.integers(-1, num_known + 2, count)
    predictions = draw.integers(0, num_known + 1, count)
    labels[0] = 0  # at least one image is judged
    found = open_set_balanced_accuracy(labels, predictions, num_known)
    judged = labels >= 0  # an image without a label does not count
    merged, predictions = np.minimum(labels, num_known)[judged], predictions[judged]
    by_hand = np.mean([np.mean(predictions[merged == c] == c) for c in np.unique(merged)])
    assert found == pytest.approx(by_hand)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        assert found == balanced_accuracy_score(merged, predictions)
    recalls = recall_score(merged, predictions, average=None, labels=np.unique(merged))
    assert found == pytest.approx(recalls.mean())


def test_class_without_images_does_not_count_and_does_not_warn() -> None:
    labels, predictions = np.array([0, 0, 3, 3]), np.array([0, 1, 3, 3])  # 1 and 2 are absent
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = open_set_balanced_accuracy(labels, predictions, 3)
    assert found == pytest.approx((1 / 2 + 1) / 2)
    with pytest.warns(UserWarning):  # the library does, so the silence above is ours
        balanced_accuracy_score(labels, predictions)


def test_rejecting_everything_and_nothing_have_known_balanced_accuracies() -> None:
    labels = np.arange(40) % 5  # four known classes and one unknown
    assert open_set_balanced_accuracy(labels, np.full(40, 4), 4) == pytest.approx(1 / 5)
    accepted = np.where(labels < 4, labels, 0)
    assert open_set_balanced_accuracy(labels, accepted, 4) == pytest.approx(4 / 5)


def test_auroc_by_hand_with_a_tie() -> None:
    # Pairs (inlier, outlier): 0.9 wins twice, 0.5 wins once and ties once -> 3.5 of 4.
    scores, is_inlier = np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])
    assert auroc(is_inlier, scores) == pytest.approx(3.5 / 4)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 3000),
    st.sampled_from([2, 5, 256, 10**9]),  # few levels: many ties
    st.sampled_from([np.float32, np.float64]),
    st.floats(0.01, 0.99),
)
def test_auroc_equals_scikit_learn_to_the_bit(
    seed: int, count: int, levels: int, kind: type, share: float
) -> None:
    draw = np.random.default_rng(seed)
    scores = (draw.integers(0, levels, count) / levels).astype(kind)
    is_inlier = draw.random(count) < share
    is_inlier[:2] = True, False
    scores[is_inlier] += kind(draw.choice([0, 0.3, 2]))  # hardly, partly or entirely apart
    assert auroc(is_inlier, scores) == roc_auc_score(is_inlier, scores)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused_as_by_scikit_learn(bad: float) -> None:
    is_inlier, scores = np.array([True, False, True]), np.array([0.1, bad, 0.3])
    for function in (auroc, roc_auc_score):
        with pytest.raises(ValueError, match=r"not finite|NaN|infinity"):
            function(is_inlier, scores)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_auroc_is_the_share_of_pairs_in_order_and_ignores_scale(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores, is_inlier = draw.integers(0, 5, 20) / 4, draw.random(20) < 0.5
    if is_inlier.all() or not is_inlier.any():
        assert np.isnan(auroc(is_inlier, scores))
        return
    gaps = scores[is_inlier][:, None] - scores[~is_inlier]
    assert auroc(is_inlier, scores) == pytest.approx(np.mean((gaps > 0) + 0.5 * (gaps == 0)))
    assert auroc(is_inlier, 3 * scores - 7) == pytest.approx(auroc(is_inlier, scores))
    assert auroc(~is_inlier, scores) == pytest.approx(1 - auroc(is_inlier, scores))


@pytest.mark.parametrize("kind", [True, False])
def test_auroc_of_one_kind_is_nan(kind: bool) -> None:
    assert np.isnan(auroc(np.full(3, kind), np.array([0.1, 0.2, 0.3])))


def test_rates_by_hand() -> None:
    is_inlier = np.array([True, True, True, True, False, False])
    accepted = np.array([True, True, True, False, True, False])
    assert rates(is_inlier, accepted) == (0.75, 0.5)


def test_rates_of_an_absent_kind_are_nan() -> None:
    recall, rejection = rates(np.array([True, True]), np.array([True, False]))
    assert recall == 0.5 and np.isnan(rejection)
    recall, rejection = rates(np.array([False]), np.array([False]))
    assert np.isnan(recall) and rejection == 1
