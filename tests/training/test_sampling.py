"""Order of indices, and streams of batches from memory and from a memory map."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import DIGITS
from toy_runs import toy_run

from dac.config import Phase, ViewCounts
from dac.data.images import Images, Schedule
from dac.data.run_data import RunData
from dac.io.seeds import generators
from dac.methods.base import Method, Sizes
from dac.training.batches import Batches, ImageStream, epoch_order

CPU = torch.device("cpu")

# --- order --------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 200), st.integers(0, 300))
def test_order_is_permutations_laid_end_to_end(size: int, count: int, epoch: int) -> None:
    order = epoch_order(size, count, epoch).tolist()
    assert len(order) == count
    for start in range(0, count, size):
        block = order[start : start + size]
        assert len(set(block)) == len(block)  # no item twice within a permutation
        assert set(block) <= set(range(size))
    appearances = np.bincount(order, minlength=size)
    assert set(appearances) <= {count // size, count // size + 1}


@pytest.mark.parametrize(("size", "count"), [(30, 1024 * 4), (5, 20), (7, 3), (1, 4)])
def test_order_equals_the_released_samplers(size: int, count: int) -> None:
    # Whole permutations first, then the head of one more, from a generator seeded by the epoch.
    for epoch in (0, 3):
        draw = torch.Generator()
        draw.manual_seed(epoch)
        parts = [torch.randperm(size, generator=draw) for _ in range(count // size)]
        if count % size:
            parts.append(torch.randperm(size, generator=draw)[: count % size])
        assert torch.equal(epoch_order(size, count, epoch), torch.cat(parts))


def test_order_changes_with_the_epoch_and_not_with_the_global_generator() -> None:
    torch.manual_seed(1)
    first = epoch_order(50, 100, 4)
    torch.manual_seed(2)
    assert torch.equal(epoch_order(50, 100, 4), first)
    assert not torch.equal(epoch_order(50, 100, 5), first)


def test_pool_larger_than_an_epoch_gives_a_fresh_subset_each_epoch() -> None:
    subsets = [set(epoch_order(1000, 400, epoch).tolist()) for epoch in range(3)]
    assert all(len(subset) == 400 for subset in subsets)
    assert len(subsets[0] & subsets[1]) < 300  # 160 in expectation


# --- streams ------------------------------------------------------------------------------------

NUM_IMAGES, BATCH, STEPS_PER_EPOCH = 40, 4, 6


@pytest.fixture
def images(tmp_path: Path) -> tuple[np.ndarray, np.memmap]:
    """The same random images in memory and as a read-only memory map."""
    draw = np.random.default_rng(0)
    resident = draw.integers(0, 256, (NUM_IMAGES, 3, 8, 8), dtype=np.uint8)
    resident.tofile(tmp_path / "images.bin")
    mapped = np.memmap(tmp_path / "images.bin", np.uint8, "r", shape=resident.shape)
    return resident, mapped


INDEX = np.array([3, 39, 17, 0, 25, 8, 11, 30, 2, 21, 5])  # eleven rows: batches straddle passes


def stream(images: np.ndarray, workers: int = 2) -> ImageStream:
    read = Images(images, CPU, workers)
    return ImageStream(read, INDEX, batch=BATCH, steps_per_epoch=STEPS_PER_EPOCH)


def test_stream_gives_the_images_of_its_positions(images: tuple[np.ndarray, np.memmap]) -> None:
    for source in images:
        flow = stream(source)
        for step in range(2 * STEPS_PER_EPOCH):
            positions, batch = flow.at(step)
            assert batch.dtype == torch.uint8 and batch.shape == (BATCH, 3, 8, 8)
            assert np.array_equal(batch.numpy(), images[0][INDEX[positions.numpy()]])


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_memory_map_gives_the_same_batches_across_epochs(
    images: tuple[np.ndarray, np.memmap], workers: int
) -> None:
    resident, mapped = stream(images[0]), stream(images[1], workers)
    for step in range(3 * STEPS_PER_EPOCH + 1):
        for left, right in zip(resident.at(step), mapped.at(step), strict=True):
            assert torch.equal(left, right)


@pytest.mark.parametrize("start", [4, STEPS_PER_EPOCH, STEPS_PER_EPOCH + 5])
@pytest.mark.parametrize("kind", [0, 1])
def test_stream_started_later_goes_on_as_if_it_had_never_stopped(
    images: tuple[np.ndarray, np.memmap], start: int, kind: int
) -> None:
    whole, restarted = stream(images[0]), stream(images[kind])
    expected = [whole.at(step) for step in range(3 * STEPS_PER_EPOCH)]
    for step in range(start, 3 * STEPS_PER_EPOCH):
        positions, batch = restarted.at(step)
        assert torch.equal(positions, expected[step][0])
        assert torch.equal(batch, expected[step][1])


def test_steps_may_be_repeated_skipped_and_taken_back(
    images: tuple[np.ndarray, np.memmap],
) -> None:
    resident, mapped = stream(images[0]), stream(images[1])
    for step in (0, 0, 5, 2, 13, 1, 12):
        assert torch.equal(resident.at(step)[1], mapped.at(step)[1])


def test_an_epoch_of_a_stream_is_one_epoch_order(images: tuple[np.ndarray, np.memmap]) -> None:
    flow = stream(images[0])
    steps = range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH)
    positions = torch.cat([flow.at(step)[0] for step in steps])
    expected = epoch_order(len(INDEX), BATCH * STEPS_PER_EPOCH, epoch=1)
    assert torch.equal(positions, expected)


def test_memory_map_is_not_read_into_memory_at_once(images: tuple[np.ndarray, np.memmap]) -> None:
    assert Images(images[1], CPU, workers=1).resident is None


def test_images_in_memory_are_not_copied_on_a_cpu(images: tuple[np.ndarray, np.memmap]) -> None:
    assert np.shares_memory(Images(images[0], CPU, workers=1).resident.numpy(), images[0])


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("batch", [3, 11, 50])
def test_schedule_gives_all_rows_in_turn_and_a_short_batch_at_the_end(
    images: tuple[np.ndarray, np.memmap], kind: int, batch: int
) -> None:
    schedule = Schedule(Images(images[kind], CPU, workers=2), torch.from_numpy(INDEX), batch)
    found = [schedule.at(number) for number in range(len(schedule))]
    assert [len(each) for each in found[:-1]] == [batch] * (len(found) - 1)
    assert np.array_equal(torch.cat(found).numpy(), images[0][INDEX])


def test_memory_map_is_read_ahead_by_its_workers(images: tuple[np.ndarray, np.memmap]) -> None:
    schedule = Schedule(Images(images[1], CPU, workers=2), torch.arange(40), 4)
    schedule.at(3)
    assert sorted(schedule.reads) == [4, 5, 6]  # four at a time, the first is handed out


# --- batches ------------------------------------------------------------------------------------


def run_data(pictures: np.ndarray) -> RunData:
    labeled, pool = np.arange(6), np.arange(6, NUM_IMAGES)
    return RunData(
        num_known=3,
        train_images=pictures,
        labeled_index=labeled,
        labels=labeled % 3,
        pool_index=pool,
        pool_labels=pool % 5,
        test_images=pictures[:4],
        test_labels=np.array([0, 1, 2, 4]),
        policy=DIGITS,
        split_hash="",
    )


@pytest.fixture
def pictures() -> np.ndarray:
    draw = np.random.default_rng(1)
    return draw.integers(0, 256, (NUM_IMAGES, 3, 16, 16), dtype=np.uint8)


def batches(pictures: np.ndarray, views: ViewCounts, seed: int) -> Batches:
    run, streams = toy_run("dac", seed), generators(seed)
    settings = SimpleNamespace(phase=lambda epoch: Phase(shared=views))
    method = Method(settings, Sizes(4, 3, 6, NUM_IMAGES - 6, 8, 24, True), streams["method"])
    return Batches(run_data(pictures), run.train, method, streams, CPU)


def test_indices_are_the_same_for_every_run_seed_and_the_views_are_not(
    pictures: np.ndarray,
) -> None:
    views = ViewCounts(labeled=1, weak=1, strong=1)
    first, second = (batches(pictures, views, seed).at(7) for seed in (1, 2))
    assert torch.equal(first.x_index, second.x_index)
    assert torch.equal(first.u_index, second.u_index)
    assert not torch.equal(first.x[0], second.x[0])
    assert not torch.equal(first.u_strong[0], second.u_strong[0])


def test_labels_belong_to_the_labeled_images(pictures: np.ndarray) -> None:
    batch = batches(pictures, ViewCounts(labeled=1, weak=1, strong=1), 1).at(3)
    assert torch.equal(batch.y, batch.x_index % 3)
    assert batch.y.dtype == torch.long


def test_a_method_gets_the_views_it_asks_for(pictures: np.ndarray) -> None:
    batch = batches(pictures, ViewCounts(labeled=2, weak=1, strong=2), 1).at(0)
    assert [len(part) for part in (batch.x, batch.u_weak, batch.u_strong)] == [2, 1, 2]
    assert not torch.equal(batch.x[0], batch.x[1])
    assert not torch.equal(batch.u_strong[0], batch.u_strong[1])


def test_second_labeled_view_leaves_the_unlabeled_views_unchanged(pictures: np.ndarray) -> None:
    one, two = (batches(pictures, ViewCounts(labeled=n, weak=1, strong=1), 1).at(0) for n in (1, 2))
    assert torch.equal(one.u_weak[0], two.u_weak[0])
    assert torch.equal(one.u_strong[0], two.u_strong[0])


def test_labeled_only_reads_no_pool(pictures: np.ndarray) -> None:
    source = batches(pictures, ViewCounts(labeled=1, weak=0, strong=0), 1)
    batch = source.at(0)
    assert source.pool_streams == {}
    assert batch.u_weak == batch.u_strong == [] and len(batch.u_index) == 0
