"""Eqs. (7)-(10) and (13): consensus, score memory, open-set targets and soft rejection."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dac.consensus import ScoreMemory, consensus, open_set_targets, pairwise_l1, soft_rejection

FORMS = ("paper", "released")


def probabilities(B: int, K: int, C: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(B, K, C, generator=draw)).softmax(dim=2)


# --- Eq. (7) ------------------------------------------------------------------------------------


def brute_force(probs: np.ndarray, form: str) -> np.ndarray:
    found = []
    for heads in probs.astype(np.float64):  # one sample, K x C
        pairs = [(i, j) for i in range(len(heads)) for j in range(len(heads))]
        if form == "paper":
            distances = [np.abs(heads[i] - heads[j]).sum() for i, j in pairs if i != j]
            found.append(np.mean(np.exp(-np.array(distances))))
        else:
            found.append(np.exp(-np.mean([np.abs(heads[i] - heads[j]) for i, j in pairs])))
    return np.array(found)


@pytest.mark.parametrize("form", FORMS)
def test_consensus_is_one_when_heads_agree(form: str) -> None:
    heads = probabilities(5, 1, 4).expand(5, 7, 4)
    assert torch.equal(consensus(heads, form), torch.ones(5))


@pytest.mark.parametrize("C", [2, 6])
def test_two_opposite_heads_by_hand(C: int) -> None:
    heads = torch.eye(C)[None, :2]  # one-hot on classes 0 and 1: L1 distance 2
    assert consensus(heads, "paper").item() == pytest.approx(math.exp(-2))
    assert consensus(heads, "released").item() == pytest.approx(math.exp(-1 / C))


def test_three_heads_by_hand() -> None:
    # Distances: heads 1-2 0, heads 1-3 and 2-3 1.
    heads = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]]])
    expected = (2 * 1 + 4 * math.exp(-1)) / 6
    assert consensus(heads, "paper").item() == pytest.approx(expected)
    assert consensus(heads, "released").item() == pytest.approx(math.exp(-4 / (9 * 2)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("K", "C"), [(2, 3), (5, 4), (10, 6)])
def test_consensus_equals_a_loop_over_pairs(form: str, K: int, C: int) -> None:
    heads = probabilities(20, K, C, seed=K)
    assert consensus(heads, form).numpy() == pytest.approx(
        brute_force(heads.numpy(), form), rel=1e-5
    )


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30)
@given(order=st.permutations(range(5)))
def test_order_of_heads_changes_nothing(form: str, order: list[int]) -> None:
    heads = probabilities(6, 5, 3)
    assert torch.allclose(consensus(heads, form), consensus(heads[:, order], form), atol=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(2, 6))
def test_consensus_lies_within_its_bounds(seed: int, K: int, C: int) -> None:
    heads = torch.nn.functional.one_hot(
        torch.randint(C, (6, K), generator=torch.Generator().manual_seed(seed)), C
    ).float()
    for probs in (heads, probabilities(6, K, C, seed)):
        paper, released = consensus(probs, "paper"), consensus(probs, "released")
        assert (paper >= math.exp(-2) - 1e-6).all() and (paper <= 1).all()
        assert (released >= math.exp(-2 / C)).all() and (released <= 1).all()


@pytest.mark.parametrize("form", FORMS)
def test_one_head_agrees_with_itself(form: str) -> None:
    assert torch.equal(consensus(probabilities(3, 1, 4), form), torch.ones(3))


@pytest.mark.parametrize("form", FORMS)
def test_more_disagreement_scores_lower(form: str) -> None:
    first, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    shares = torch.linspace(0, 1, 9)[:, None]
    second = (1 - shares) * first + shares * other  # from the same prediction to the opposite
    heads = torch.stack([first.expand(9, 2), second], dim=1)
    assert (consensus(heads, form).diff() < 0).all()


def test_pairwise_distances_are_symmetric_with_zero_diagonal() -> None:
    distance = pairwise_l1(probabilities(4, 5, 3))
    assert torch.equal(distance, distance.transpose(1, 2))
    assert torch.equal(distance.diagonal(dim1=1, dim2=2), torch.zeros(4, 5))


# --- Eqs. (8) and (9) ---------------------------------------------------------------------------


def index(*values: int) -> Tensor:
    return torch.tensor(values)


def test_score_memory_by_hand_over_visited_items() -> None:
    memory = ScoreMemory(5, momentum=0.9, visited_only=True)
    # Range 0.2 .. 0.6: normalised 0, 1, 0.5; a tenth of that is the first score.
    first = memory.update(index(0, 1, 2), torch.tensor([0.2, 0.6, 0.4]))
    assert first.tolist() == pytest.approx([0.0, 0.1, 0.05])
    # Item 1 falls to 0.3 and item 3 comes with 1.0: range 0.2 .. 1.0, normalised 0.125 and 1.
    second = memory.update(index(1, 3), torch.tensor([0.3, 1.0]))
    assert second.tolist() == pytest.approx([0.9 * 0.1 + 0.1 * 0.125, 0.1])
    # Item 0 rises: the minimum of the stored values is now item 1's 0.3.
    third = memory.update(index(0), torch.tensor([0.65]))
    assert third.tolist() == pytest.approx([0.1 * (0.35 / 0.7)])
    assert memory.score.tolist() == pytest.approx([0.05, 0.1025, 0.05, 0.1, 0.0])
    assert memory.consensus.tolist() == pytest.approx([0.65, 0.3, 0.4, 1.0, 0.0])
    assert memory.visited.tolist() == [True, True, True, True, False]


def test_score_memory_by_hand_over_all_items_as_released() -> None:
    # Unvisited items hold zero, so the range starts at zero and the eps joins the width.
    memory = ScoreMemory(3, momentum=0.9, visited_only=False, eps=1e-8)
    found = memory.update(index(0, 1), torch.tensor([0.8, 0.9]))
    assert found.tolist() == pytest.approx([0.1 * 0.8 / 0.9, 0.1], rel=1e-5)
    found = memory.update(index(2), torch.tensor([0.85]))  # now everything has been seen
    assert found.tolist() == pytest.approx([0.1 * 0.5], rel=1e-5)


def test_both_ranges_agree_once_every_item_has_been_visited() -> None:
    visited, everything = ScoreMemory(4, visited_only=True), ScoreMemory(4, visited_only=False)
    for memory in (visited, everything):
        memory.update(index(0, 1, 2, 3), torch.tensor([0.1, 0.5, 0.9, 0.3]))
    assert torch.equal(visited.score, everything.score)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0, 0.99))
def test_scores_equal_a_plain_loop_and_stay_within_zero_and_one(seed: int, momentum: float) -> None:
    draw = np.random.default_rng(seed)
    memory = ScoreMemory(7, momentum)
    raw: dict[int, float] = {}
    score = np.zeros(7)
    for _ in range(6):
        items = draw.choice(7, size=3, replace=False)
        values = draw.random(3).astype(np.float32)
        found = memory.update(torch.from_numpy(items), torch.from_numpy(values))
        raw |= dict(zip(items.tolist(), values.tolist(), strict=True))
        low, high = min(raw.values()), max(raw.values())
        for item in items:
            score[item] = momentum * score[item] + (1 - momentum) * (raw[item] - low) / (high - low)
        assert found.numpy() == pytest.approx(score[items], abs=1e-5)
    assert memory.score.numpy() == pytest.approx(score, abs=1e-5)
    assert memory.score.min() >= 0 and memory.score.max() <= 1


def test_item_drawn_twice_in_a_batch_is_updated_once_and_has_one_score() -> None:
    memory = ScoreMemory(3)
    found = memory.update(index(0, 1, 0), torch.tensor([0.4, 0.8, 0.4]))
    assert found.tolist() == pytest.approx([0.0, 0.1, 0.0])
    found = memory.update(index(1, 1, 2), torch.tensor([0.6, 0.7, 0.9]))
    assert found[0] == found[1] == memory.score[1]
    assert memory.consensus[1].item() in (pytest.approx(0.6), pytest.approx(0.7))
    expected = 0.9 * 0.1 + 0.1 * (memory.consensus[1].item() - 0.4) / 0.5
    assert found[0].item() == pytest.approx(expected)


def test_equal_consensus_makes_nobody_suspicious() -> None:
    memory = ScoreMemory(4)
    assert memory.update(index(0, 2), torch.tensor([0.7, 0.7])).tolist() == pytest.approx(
        [0.1, 0.1]
    )


def test_first_visit_of_a_single_item_is_finite() -> None:
    memory = ScoreMemory(1000)
    assert memory.update(index(999), torch.tensor([0.99])).tolist() == pytest.approx([0.1])
    assert memory.score.isfinite().all() and memory.counted().sum() == 1


def test_counted_items_are_the_visited_ones_or_all() -> None:
    memory, released = ScoreMemory(3), ScoreMemory(3, visited_only=False)
    memory.update(index(1), torch.tensor([0.5]))
    assert memory.counted().tolist() == [False, True, False]
    assert released.counted() is None


def test_scores_carry_no_gradient() -> None:
    memory = ScoreMemory(3)
    found = memory.update(index(0, 1), torch.tensor([0.2, 0.4], requires_grad=True))
    assert not found.requires_grad and not memory.consensus.requires_grad


def test_bfloat16_consensus_is_stored_as_float32() -> None:
    memory = ScoreMemory(2)
    assert memory.update(index(0), torch.ones(1, dtype=torch.bfloat16)).dtype == torch.float32


def test_state_dict_restores_every_score() -> None:
    memory, other = ScoreMemory(4), ScoreMemory(4)
    memory.update(index(0, 1, 2), torch.tensor([0.1, 0.5, 0.9]))
    assert set(memory.state_dict()) == {"consensus", "score", "visited"}
    other.load_state_dict(memory.state_dict())
    later = [each.update(index(2, 3), torch.tensor([0.3, 0.7])) for each in (memory, other)]
    assert torch.equal(later[0], later[1])
    assert torch.equal(memory.score, other.score)


# --- Eq. (10) -----------------------------------------------------------------------------------


def test_open_set_target_by_hand() -> None:
    found = open_set_targets(torch.tensor([[0.75, 0.25]]), torch.tensor([0.8]))
    assert found[0].tolist() == pytest.approx([0.6, 0.2, 0.2])


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_open_set_targets_are_distributions(seed: int, C: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    probs = torch.randn(5, C, generator=draw).softmax(dim=1)
    score = torch.tensor([0.0, 1.0, *torch.rand(3, generator=draw).tolist()])
    found = open_set_targets(probs, score)
    assert found.shape == (5, C + 1) and (found >= 0).all()
    assert torch.allclose(found.sum(dim=1), torch.ones(5), atol=1e-6)
    assert torch.equal(found[0, -1], torch.tensor(1.0))  # score 0: certainly unknown
    assert torch.equal(found[1, :-1], probs[1])  # score 1: the target head's prediction


# --- Eq. (13) -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "temperature", "expected"),
    [
        (0.6, 1.5, 1.0),
        (0.61, 1.5, 1.0),
        (1.0, 1.5, 1.0),
        (0.0, 1.5, 0.0),
        (0.3, 1.5, 0.35355),
        (0.3, 1.0, 0.5),
        (0.3, 0.0, 1.0),
        (0.0, 0.0, 1.0),
        (0.59, math.inf, 0.0),
        (0.6, math.inf, 1.0),
        (0.0, math.inf, 0.0),
    ],
)
def test_soft_rejection_by_hand(score: float, temperature: float, expected: float) -> None:
    found = soft_rejection(torch.tensor([score]), torch.tensor(0.6), temperature)
    assert found.item() == pytest.approx(expected, abs=1e-5)


@settings(max_examples=60)
@given(
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=20),
    st.floats(0, 1, width=32),
    st.sampled_from([0.0, 0.5, 1.5, 3.0, math.inf]),
)
def test_soft_rejection_rises_with_the_score_within_zero_and_one(
    drawn: list[float], threshold: float, temperature: float
) -> None:
    score = torch.tensor(drawn).sort().values
    omega = soft_rejection(score, threshold, temperature)
    assert omega.isfinite().all() and omega.dtype == torch.float32
    assert (omega >= 0).all() and (omega <= 1).all() and (omega.diff() >= 0).all()
    assert (omega[score >= threshold] == 1).all()


@settings(max_examples=40)
@given(st.floats(2**-7, 1, width=32), st.floats(0, 1, width=32))
def test_higher_temperature_rejects_more_up_to_the_hard_rule(threshold: float, s: float) -> None:
    omegas = [soft_rejection(torch.tensor([s]), threshold, t) for t in (0, 0.5, 1.5, 3, math.inf)]
    assert (torch.cat(omegas).diff() <= 0).all()
    assert omegas[0] == 1


@pytest.mark.parametrize("temperature", [0.0, 1.5, math.inf])
def test_threshold_of_zero_rejects_nobody(temperature: float) -> None:
    omega = soft_rejection(torch.tensor([0.0, 0.5]), torch.tensor(0.0), temperature)
    assert omega.tolist() == [1, 1]


@pytest.mark.parametrize("temperature", [0.0, 1.5, math.inf])
def test_equal_scores_at_their_threshold_reject_nobody(temperature: float) -> None:
    score = torch.full((4,), 0.3)
    assert soft_rejection(score, score[0], temperature).tolist() == [1, 1, 1, 1]
