"""Otsu's threshold against scikit-image, a brute force and numbers made by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.filters import threshold_otsu

from dac.otsu import BINS, _histogram, otsu_threshold

scores = st.floats(0, 1, width=32)


def between_variance(counts: np.ndarray, centres: np.ndarray, threshold: float) -> float:
    """w1 w2 (m1 - m2)^2 of the bin centres when the bins up to `threshold` form the lower class."""
    lower = centres <= threshold + 1e-12
    w1, w2 = counts[lower].sum(), counts[~lower].sum()
    if w1 == 0 or w2 == 0:
        return 0.0
    m1 = (counts * centres)[lower].sum() / w1
    m2 = (counts * centres)[~lower].sum() / w2
    return float(w1 * w2 * (m1 - m2) ** 2)


@pytest.mark.parametrize("seed", range(8))
def test_threshold_equals_scikit_image_on_bimodal_data(seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = np.concatenate(
        [draw.normal(0.2, 0.1, 300 + 40 * seed), draw.normal(0.8, 0.05 * (seed + 1), 500)]
    )
    assert otsu_threshold(torch.from_numpy(values)).item() == threshold_otsu(values)


@settings(max_examples=40)
@given(st.floats(-3, 3), st.floats(0.01, 5))
def test_values_on_and_beside_bin_edges_are_counted_as_numpy_counts_them(
    low: float, width: float
) -> None:
    edges = np.linspace(low, low + width, BINS + 1)
    beside = [np.nextafter(edges[1:-1], direction) for direction in (-np.inf, np.inf)]
    values = np.concatenate([edges, *beside])
    counts, edges = np.histogram(values, BINS)
    step = torch.tensor((values.max() - values.min()) / BINS)
    found = _histogram(
        torch.from_numpy(values),
        torch.ones(len(values), dtype=torch.bool),
        torch.from_numpy(edges),
        torch.tensor(values.min()),
        step,
    )
    assert found.tolist() == counts.tolist()


@pytest.mark.parametrize("value", [0.0, 0.3, -2.5])
def test_equal_values_return_that_value_as_in_scikit_image(value: float) -> None:
    values = np.full(7, value)
    assert otsu_threshold(torch.from_numpy(values)).item() == threshold_otsu(values) == value


def test_two_groups_by_hand() -> None:
    # 0, 0, 1: bins are 1/256 wide and every split between the groups is equally good, so the
    # first bin wins and its centre is half a bin above the minimum.
    threshold = otsu_threshold(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    assert threshold.item() == 0.5 / BINS


@settings(max_examples=20)
@given(st.lists(scores, min_size=2, max_size=40))
def test_no_other_bin_separates_better(drawn: list[float]) -> None:
    values = np.array(drawn)
    if values.max() - values.min() < 1e-6:
        return
    counts, edges = np.histogram(values, BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    threshold = otsu_threshold(torch.from_numpy(values)).item()
    found = between_variance(counts, centres, threshold)
    best = max(between_variance(counts, centres, each) for each in centres[:-1])
    assert found == pytest.approx(best, rel=1e-9)


@settings(max_examples=40)
@given(st.lists(scores, min_size=1, max_size=30), st.data())
def test_masked_values_do_not_count(drawn: list[float], data: st.DataObject) -> None:
    values = torch.tensor(drawn)
    mask = torch.tensor(
        data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    )
    if not mask.any():
        assert otsu_threshold(values, mask).item() == 0
        return
    assert torch.equal(otsu_threshold(values, mask), otsu_threshold(values[mask]))


@settings(max_examples=40)
@given(st.lists(scores, min_size=2, max_size=30), st.randoms(use_true_random=False))
def test_order_of_values_does_not_matter(drawn: list[float], random: object) -> None:
    shuffled = list(drawn)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert torch.equal(otsu_threshold(torch.tensor(drawn)), otsu_threshold(torch.tensor(shuffled)))


@settings(max_examples=40)
@given(st.lists(scores, min_size=1, max_size=30))
def test_largest_value_is_an_inlier_and_smallest_is_not_unless_all_are_equal(
    drawn: list[float],
) -> None:
    values = torch.tensor(drawn)
    threshold = otsu_threshold(values)
    assert values.max() >= threshold
    assert (values.min() >= threshold) == (values.min() == values.max())


@pytest.mark.parametrize("low", [0.5, 1.0, 1e-30, 0.998])
def test_two_neighbouring_floats_are_separated(low: float) -> None:
    below = torch.tensor(low)
    above = torch.nextafter(below, torch.tensor(2.0))
    threshold = otsu_threshold(torch.stack([below, above, above]))
    assert threshold.dtype == torch.float32
    assert below < threshold <= above


def test_values_within_256_float_steps_are_split_where_scikit_image_splits_them() -> None:
    # Released scores of Semi-iNat lie above 0.998; float32 has few values there.
    step = torch.finfo(torch.float32).eps
    steps = torch.tensor([0.0, 1, 2, 3, 40, 41, 42, 64])
    values = 0.999 + step * steps
    inliers = values >= otsu_threshold(values)
    by_library = values.double().numpy() >= threshold_otsu(values.double().numpy())
    assert inliers.tolist() == by_library.tolist() == [False] * 4 + [True] * 4


def test_threshold_follows_min_max_normalisation() -> None:
    # The release normalises test scores first; we threshold them as they are.
    scores = torch.rand(400, generator=torch.Generator().manual_seed(0)).double() ** 2 * 0.03 + 0.9
    normalised = (scores - scores.min()) / (scores.max() - scores.min())
    raw = scores >= otsu_threshold(scores)
    assert torch.equal(raw, normalised >= otsu_threshold(normalised))


def test_threshold_carries_no_gradient() -> None:
    assert not otsu_threshold(torch.rand(9, requires_grad=True)).requires_grad


def test_threshold_needs_no_copy_to_the_host() -> None:
    # The meta device has no values: `.item()` and its hidden forms fail there.
    values = torch.rand(9, device="meta")
    assert otsu_threshold(values).shape == otsu_threshold(values, values > 0.5).shape == ()
