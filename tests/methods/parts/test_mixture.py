"""The mixture of two Gaussians against plain NumPy, where its start decides the end."""

import numpy as np
import pytest
import torch
from skimage.filters import threshold_otsu

from dac.methods.parts.mixture import mixture_means

DRAW = np.random.default_rng(2)
OVERLAPPING = {  # without two clear bells, so that other starts end elsewhere
    "uniform": DRAW.uniform(0, 1, 500),
    "two boxes": np.concatenate([DRAW.uniform(0.2, 0.5, 400), DRAW.uniform(0.9, 1, 100)]),
    "skewed": DRAW.beta(5, 2, 500),
    "half saturated": np.concatenate([np.ones(250), DRAW.uniform(0.3, 1, 250)]),
}


def best_halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What k-means looks for: the cut of least spread within both sides."""
    values = np.sort(values)
    cuts = [(values[:cut], values[cut:]) for cut in range(1, len(values))]
    return min(cuts, key=lambda halves: sum(len(half) * half.var() for half in halves))


def plain_means(values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Expectation maximisation until the log-likelihood gains less than 0.001, as scikit-learn."""
    halves, x, last = best_halves(values), values[:, None], -np.inf
    weight = np.array([len(half) for half in halves]) / len(values)
    variance, mean = np.array([half.var() for half in halves]) + 1e-6, start
    for _ in range(100):
        joint = weight * np.exp(-((x - mean) ** 2) / variance / 2) / np.sqrt(2 * np.pi * variance)
        likelihood = np.log(joint.sum(axis=1)).mean()
        share = joint / joint.sum(axis=1, keepdims=True)  # N x 2
        weight, mean = share.mean(axis=0), (share * x).sum(axis=0) / share.sum(axis=0)
        variance = (share * (x - mean) ** 2).sum(axis=0) / share.sum(axis=0) + 1e-6
        if abs(likelihood - last) < 1e-3:
            break
        last = likelihood
    return np.sort(mean)


@pytest.mark.parametrize("name", OVERLAPPING)
def test_mixture_equals_plain_numpy_with_both_means_starting_at_otsu(name: str) -> None:
    values = OVERLAPPING[name].astype(np.float32)
    found, exact = mixture_means(torch.from_numpy(values)).numpy(), values.astype(float)
    otsu = threshold_otsu(exact)
    expected = plain_means(exact, np.array([otsu, otsu]))
    assert found == pytest.approx(expected, abs=5e-3)  # k-means may stop short of the best cut
    for other in ([0.0, 1.0], [half.mean() for half in best_halves(exact)]):
        assert np.abs(found - plain_means(exact, np.array(other))).max() > 0.02, "any start does"


def test_mixture_finds_the_means_of_two_groups_and_gives_the_lower_first() -> None:
    draw = np.random.default_rng(0)
    values = np.concatenate([draw.normal(0.9, 0.02, 100), draw.normal(0.3, 0.02, 300)])
    assert mixture_means(torch.from_numpy(values)).tolist() == pytest.approx([0.3, 0.9], abs=0.01)


def test_mixture_is_the_same_every_time_whatever_the_global_generators_say() -> None:
    values = torch.tensor([0.0, 0.1, 0.5, 0.6, 1.0, 1.1] * 10)  # three groups: k-means is torn
    found = []
    for seed in range(8):
        torch.manual_seed(seed)
        np.random.seed(seed)
        found.append(mixture_means(values))
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_mixture_of_equal_values_is_finite_and_no_higher_than_them(value: float) -> None:
    low, high = mixture_means(torch.full((50,), value)).tolist()
    assert 0 <= low <= high == pytest.approx(value, abs=1e-6)
