"""MixMatch's pieces by hand: sharpening, lambda and partners, mixing, both losses, the ramp."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import interleave
from scipy import stats
from torch import Tensor

from dac.methods.parts.mixup import Mix, Mixed, draw_mix, interleaving, ramp, sharpen

CPU = torch.device("cpu")
UNMIXED = Mix(1.0, torch.zeros(0, dtype=torch.long))
ALPHAS = (0.1, 0.5, 0.75, 1.0, 4.0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def probabilities(U: int, C: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return (scale * torch.randn(U, C, generator=seeded(seed))).softmax(dim=1)


# --- sharpening, MixMatch Eq. (7) ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "temperature", "expected"),
    [
        ([0.8, 0.2], 0.5, [16 / 17, 1 / 17]),  # 0.64 and 0.04
        ([0.5, 0.3, 0.2], 0.5, [25 / 38, 9 / 38, 4 / 38]),
        ([0.64, 0.36], 2.0, [4 / 7, 3 / 7]),  # above one it flattens: square roots
        ([0.75, 0.25], 0.25, [81 / 82, 1 / 82]),
    ],
)
def test_sharpen_by_hand(p: list[float], temperature: float, expected: list[float]) -> None:
    assert sharpen(torch.tensor([p]), temperature)[0].tolist() == pytest.approx(expected)


def test_temperature_of_one_changes_nothing() -> None:
    p = probabilities(9, 5)
    assert torch.allclose(sharpen(p, 1.0), p, atol=1e-7)


def test_certain_and_uniform_predictions_stay_as_they_are() -> None:
    p = torch.cat([torch.eye(4), torch.full((1, 4), 0.25)])
    assert torch.allclose(sharpen(p, 0.5), p, atol=1e-7)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 9), st.floats(0.1, 0.9))
def test_sharpened_rows_are_distributions_with_the_same_order_and_a_higher_peak(
    seed: int, C: int, temperature: float
) -> None:
    p = probabilities(6, C, seed)
    found = sharpen(p, temperature)
    assert torch.allclose(found.sum(dim=1), torch.ones(6), atol=1e-6)
    assert torch.equal(found.argmax(dim=1), p.argmax(dim=1))
    assert (found.amax(dim=1) >= p.amax(dim=1) - 1e-6).all() and (found >= 0).all()


# --- lambda and partners, MixMatch Eqs. (8) and (9) ---------------------------------------------


@cache
def own_shares(alpha: float) -> np.ndarray:
    draw = seeded(2)
    return np.array([draw_mix(1, alpha, draw, CPU).own for _ in range(2000)])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_own_share_is_the_larger_side_of_a_beta_draw_between_one_half_and_one(alpha: float) -> None:
    shares, beta = own_shares(alpha), stats.beta(alpha, alpha)
    assert shares.min() >= 0.5 and shares.max() <= 1
    assert shares.min() < 0.75 < shares.max()  # and both halves of that occur
    # P(max(l, 1 - l) <= t) = F(t) - F(1 - t), for t >= 1/2
    test = stats.kstest(shares, lambda t: beta.cdf(t) - beta.cdf(1 - np.asarray(t)))
    assert test.pvalue > 0.01


def test_larger_alpha_mixes_more_evenly() -> None:
    assert (np.diff([own_shares(alpha).mean() for alpha in ALPHAS]) < 0).all()


def test_partners_are_a_permutation_and_every_row_meets_every_other() -> None:
    draw, met = seeded(4), torch.zeros(5, 5)
    for _ in range(2000):
        partner = draw_mix(5, 0.75, draw, CPU).partner
        assert partner.sort().values.tolist() == [0, 1, 2, 3, 4]
        met[torch.arange(5), partner] += 1
    assert (met / 2000 - 0.2).abs().max() < 0.04  # 4.5 standard deviations


def test_a_mix_is_a_function_of_the_generators_state() -> None:
    draw = seeded(5)
    draw_mix(7, 0.5, draw, CPU)
    state = draw.get_state()
    first, second = draw_mix(7, 0.5, draw, CPU), draw_mix(7, 0.5, draw, CPU)
    again = draw_mix(7, 0.5, seeded(0).set_state(state), CPU)
    assert first.own == again.own and torch.equal(first.partner, again.partner)
    assert first.own != second.own and not torch.equal(first.partner, second.partner)


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    draw_mix(7, 0.5, seeded(6), CPU)
    assert torch.equal(torch.random.get_rng_state(), before)


# --- mixing, MixMatch Eqs. (10) and (11) --------------------------------------------------------


def test_mix_by_hand() -> None:
    mix = Mix(0.75, torch.tensor([2, 0, 1]))
    rows = torch.tensor([[4.0, 0.0], [8.0, 4.0], [0.0, 16.0]])
    # 3/4 of a row and 1/4 of its partner, before that one is mixed.
    assert mix(rows).tolist() == [[3.0, 4.0], [7.0, 3.0], [2.0, 13.0]]
    assert mix(rows[:, 0]).tolist() == [3.0, 7.0, 2.0]
    assert rows.tolist() == [[4.0, 0.0], [8.0, 4.0], [0.0, 16.0]]


def test_own_share_of_one_or_a_row_as_its_own_partner_changes_nothing() -> None:
    rows = torch.randn(4, 3, 2, 2, generator=seeded(7))
    assert torch.equal(Mix(1.0, torch.tensor([3, 2, 1, 0]))(rows), rows)
    assert torch.allclose(Mix(0.6, torch.arange(4))(rows), rows, atol=1e-6)


def test_mixed_targets_are_distributions() -> None:
    mix = draw_mix(20, 0.75, seeded(8), CPU)
    assert torch.allclose(mix(probabilities(20, 6)).sum(dim=1), torch.ones(20), atol=1e-6)


# --- both losses, MixMatch Eqs. (3) and (4) -----------------------------------------------------

LOG3 = math.log(3)  # softmax(log 3, 0) = (3/4, 1/4)


def test_supervised_by_hand() -> None:
    logits, target = torch.tensor([[LOG3, 0.0], [0.0, 0.0]]), torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    first = -(math.log(3 / 4) + math.log(1 / 4)) / 2
    found = Mixed(logits, target, torch.zeros(0, 2), torch.zeros(0, 2), UNMIXED).supervised()
    assert found.item() == pytest.approx((first + math.log(2)) / 2)


def test_squared_error_by_hand() -> None:
    # (3/4 - 1)^2 + (1/4 - 0)^2 = 1/8, over two classes; the second row has nothing to correct.
    logits = torch.tensor([[LOG3, 0.0], [0.0, 0.0], [0.0, LOG3]])
    target = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    found = Mixed(torch.zeros(0, 2), torch.zeros(0, 2), logits, target, UNMIXED).squared_error()
    assert found.tolist() == pytest.approx([1 / 16, 0.0, 9 / 16])


def test_squared_error_is_divided_by_the_number_of_classes() -> None:
    C = 5
    none = torch.zeros(0, C)
    mixed = Mixed(none, none, torch.zeros(1, C), torch.eye(C)[:1], UNMIXED)
    expected = ((1 - 1 / C) ** 2 + (C - 1) / C**2) / C
    assert mixed.squared_error().item() == pytest.approx(expected)


def test_half_precision_logits_are_widened_before_the_softmax() -> None:
    logits, target = torch.randn(6, 4, generator=seeded(9)).bfloat16(), probabilities(6, 4)
    low = Mixed(logits, target, logits, target, UNMIXED)
    wide = Mixed(*2 * [logits.float(), target], UNMIXED)
    assert torch.equal(low.supervised(), wide.supervised())
    assert torch.equal(low.squared_error(), wide.squared_error())


# --- the ramp -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "share", "expected"),
    [
        (0, 0.4, 0.0),
        (1, 0.4, 1 / 400),
        (100, 0.4, 0.25),
        (400, 0.4, 1.0),
        (401, 0.4, 1.0),
        (999, 0.4, 1.0),
        (250, 1.0, 0.25),
        (0, 0.0, 1.0),  # no ramp
    ],
)
def test_ramp_by_hand(step: int, share: float, expected: float) -> None:
    assert ramp(step, 1000, share) == pytest.approx(expected)


# --- interleaving -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(1, 16), st.integers(1, 70))
def test_interleaving_is_a_plain_exchange_and_twice_changes_nothing(chunks: int, size: int) -> None:
    order = interleaving(chunks, size)
    assert order.tolist() == interleave(chunks, size)
    assert order.sort().values.tolist() == list(range(chunks * size))
    assert order[order].tolist() == list(range(chunks * size))


@pytest.mark.parametrize(("chunks", "size"), [(15, 64), (7, 8), (5, 64), (8, 8), (1, 3)])
def test_first_chunk_has_rows_of_every_chunk(chunks: int, size: int) -> None:
    assert set((interleaving(chunks, size)[:size] // size).tolist()) == set(range(chunks))
