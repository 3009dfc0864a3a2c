"""Distribution alignment: numbers by hand, plain loops, and what the release's queue differs in."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dac.methods.parts.alignment import EPS, MovingAlignment, QueueAlignment, align


def probabilities(U: int, C: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(U, C, generator=draw)).softmax(dim=1)


def plain_align(p: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """p_c (1/C + eps) / (mean_c + eps), then over the sum of the row."""
    found = np.zeros(p.shape)
    for i, row in enumerate(p):
        for c, value in enumerate(row):
            found[i, c] = value * (1 / len(row) + 1e-6) / (mean[c] + 1e-6)
        found[i] /= found[i].sum()
    return found


# --- align --------------------------------------------------------------------------------------


def test_align_by_hand() -> None:
    # Over the mean: (0.5 / 0.8, 0.5 / 0.2) is 1 to 4, and the mean itself becomes uniform.
    p, mean = torch.tensor([[0.5, 0.5], [0.8, 0.2]]), torch.tensor([0.8, 0.2])
    expected = [0.2, 0.8, 0.5, 0.5]
    assert align(p, mean).flatten().tolist() == pytest.approx(expected, abs=1e-5)


def test_align_equals_a_loop() -> None:
    p, mean = probabilities(20, 5, seed=1), probabilities(1, 5, seed=2)[0]
    assert align(p, mean).numpy() == pytest.approx(plain_align(p.numpy(), mean.numpy()), abs=1e-6)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([0.1, 2.0, 50.0]))
def test_aligned_rows_are_distributions(seed: int, C: int, scale: float) -> None:
    p, mean = probabilities(6, C, seed, scale), probabilities(6, C, seed + 1, scale).mean(dim=0)
    found = align(p, mean)
    assert found.shape == p.shape and found.isfinite().all() and (found >= 0).all()
    assert torch.allclose(found.sum(dim=1), torch.ones(6), atol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 9), st.floats(0.25, 4))
def test_uniform_mean_leaves_predictions_as_they_are(seed: int, C: int, factor: float) -> None:
    p = probabilities(6, C, seed)
    assert torch.allclose(align(p, torch.full((C,), factor / C)), p, atol=1e-6)


def test_frequent_classes_lose_and_rare_ones_gain() -> None:
    p, mean = probabilities(8, 3), torch.tensor([0.6, 0.3, 0.1])
    ratio = align(p, mean) / p
    assert (ratio[:, 0] < ratio[:, 1]).all() and (ratio[:, 1] < ratio[:, 2]).all()


def test_class_that_nobody_predicts_divides_by_the_eps_and_not_by_zero() -> None:
    p = torch.tensor([[1.0, 0.0], [1 - 1e-6, 1e-6]])
    found = align(p, torch.tensor([1.0, 0.0]))
    assert found[0].tolist() == [1, 0]
    assert found[1].tolist() == pytest.approx([0.5, 0.5], rel=1e-3)  # 1e-6 / EPS against 1
    assert EPS == 1e-6


# --- the queue ----------------------------------------------------------------------------------


@pytest.mark.parametrize("L", [1, 3, 5])
def test_queue_equals_a_loop_over_the_last_batch_means(L: int) -> None:
    queue, kept = QueueAlignment(L, 4), []
    for seed in range(2 * L + 2):
        p = probabilities(7, 4, seed)
        kept = [*kept, p.numpy().mean(axis=0)][-L:]
        expected = plain_align(p.numpy(), np.mean(kept, axis=0))
        assert queue(p).numpy() == pytest.approx(expected, abs=1e-5), seed
    assert queue.position == 2 * L + 2


def test_queue_of_the_release_with_its_empty_slots_gives_the_same() -> None:
    L, C = 32, 6
    queue, slots = QueueAlignment(L, C), np.zeros((L, C))
    for step in range(L + 4):
        p = probabilities(24, C, step, scale=1.0)
        slots[step % L] = p.numpy().mean(axis=0)
        released = plain_align(p.numpy(), slots.mean(axis=0))  # zeros of empty slots included
        assert queue(p).numpy() == pytest.approx(released, abs=1e-4), step


def test_only_slots_that_are_written_count_also_for_a_class_as_rare_as_the_eps() -> None:
    # 1e-6 over 1e-6 + EPS is 1/2, against 1; a common factor on the mean would not cancel here.
    queue, p = QueueAlignment(4, 2), torch.tensor([[1 - 1e-6, 1e-6]])
    for step in range(9):
        assert queue(p)[0].tolist() == pytest.approx([2 / 3, 1 / 3], rel=1e-3), step


def test_first_batch_is_in_its_own_mean() -> None:
    p = torch.tensor([[0.9, 0.1], [0.7, 0.3]])  # mean (0.8, 0.2)
    first = [0.9 / 0.8, 0.1 / 0.2]
    expected = [value / sum(first) for value in first]
    assert QueueAlignment(4, 2)(p)[0].tolist() == pytest.approx(expected, abs=1e-5)


# --- the moving average -------------------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.999])
def test_moving_alignment_equals_a_loop(momentum: float) -> None:
    moving, mean = MovingAlignment(momentum, 4), None
    for seed in range(6):
        p = probabilities(7, 4, seed)
        of_batch = p.numpy().mean(axis=0)
        mean = of_batch if mean is None else momentum * mean + (1 - momentum) * of_batch
        assert moving(p).numpy() == pytest.approx(plain_align(p.numpy(), mean), abs=1e-5), seed
        assert moving.mean.numpy() == pytest.approx(mean, abs=1e-6)


def test_moving_alignment_starts_with_the_first_batchs_mean_and_not_with_zero() -> None:
    moving = MovingAlignment(0.9, 2)
    moving(torch.tensor([[0.9, 0.1], [0.7, 0.3]]))
    assert moving.mean.tolist() == pytest.approx([0.8, 0.2])
    moving(torch.tensor([[0.3, 0.7]]))
    assert moving.mean.tolist() == pytest.approx([0.9 * 0.8 + 0.03, 0.9 * 0.2 + 0.07])


# --- both ---------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize(
    "make", [lambda: QueueAlignment(3, 4), lambda: MovingAlignment(0.9, 4)]
)


@BOTH
def test_alignment_carries_no_gradient(make: Callable[[], nn.Module]) -> None:
    alignment = make()
    p = probabilities(5, 4).requires_grad_()
    assert not alignment(p).requires_grad
    assert not any(buffer.requires_grad for buffer in alignment.buffers())


@BOTH
def test_state_dict_restores_the_running_mean(make: Callable[[], nn.Module]) -> None:
    whole, resumed = make(), make()
    for seed in range(5):
        whole(probabilities(6, 4, seed))
    resumed.load_state_dict(whole.state_dict())
    for seed in range(5, 8):
        p = probabilities(6, 4, seed)
        assert torch.equal(whole(p), resumed(p))
