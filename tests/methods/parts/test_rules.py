"""Rules for inliers: where each threshold comes from, and which side of it an equal score is on."""

import pytest
import torch
from skimage.filters import threshold_otsu
from torch import Tensor

from dac.methods.parts.rules import above_otsu_of_pool, accepted, at_least, otsu_of_test
from dac.otsu import otsu_threshold


def scores(seed: int) -> Tensor:
    return torch.rand(60, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("threshold", [0.5, torch.tensor(0.5), float("inf"), -float("inf")])
def test_a_fixed_threshold_looks_at_no_score(threshold: float | Tensor) -> None:
    rule = at_least(threshold)
    assert rule.accepts is None
    assert rule.threshold(scores(1), scores(2)) == rule.threshold(scores(3), scores(3)) == threshold


def test_a_threshold_that_training_moves_is_read_when_the_rule_is_asked() -> None:
    moving = torch.tensor(0.5)
    rule = at_least(moving)
    moving.fill_(0.7)
    assert rule.threshold(scores(1), scores(2)) == moving


def test_otsu_of_the_test_scores_does_not_look_at_the_pool() -> None:
    test, rule = scores(1), otsu_of_test()
    assert rule.accepts is None
    for pool in (scores(2), test + 5):
        assert torch.equal(rule.threshold(test, pool), otsu_threshold(test))


def test_otsu_of_the_pool_is_exceeded_by_inliers_only() -> None:
    pool, rule = scores(2), above_otsu_of_pool()
    tau = otsu_threshold(pool)
    found = rule.threshold(scores(1), pool)
    assert rule.accepts is None and torch.equal(rule.threshold(pool, pool), found)
    assert found.item() > threshold_otsu(pool.double().numpy()) and tau < found
    assert found == torch.nextafter(tau, torch.tensor(2.0))  # no score lies between
    equal = torch.full((5,), 0.3)
    assert not (equal >= rule.threshold(equal, equal)).any()


def test_a_function_is_asked_with_features_and_positions() -> None:
    rule = accepted(lambda features, index: features[:, 0] > index)
    assert rule.threshold is None
    found = rule.accepts(torch.tensor([[1.0], [1.0]]), torch.tensor([0, 1]))
    assert found.tolist() == [True, False]
