"""Splits: the release's own draws, sizes, disjointness and published lists.

Labels are generated: 500 images of each of 100 classes in a shuffled order, like CIFAR-100. The
oracle repeats the release's procedure with NumPy's global generator.
"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_labels import shuffled_labels

from dac import config
from dac.config import Pool, Task
from dac.data import splits
from dac.data.classes import known_classes, relabel
from dac.data.split_check import Split, TrainLabels
from dac.io.errors import UserError

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
CIFAR10 = shuffled_labels(10, 5000)
CIFAR100 = shuffled_labels(100, 500)
IMAGENET30 = shuffled_labels(30, 1300)
SMALL_TASK = Task(data="digits", known_rule="first", num_known=2, labels_per_class=3)


def labels_of(task_name: str) -> TrainLabels:
    by_data = {"cifar10": CIFAR10, "cifar100": CIFAR100, "imagenet30": IMAGENET30}
    return by_data[PARAMS.task(task_name).data]


def make(task_name: str, seed: int = 1) -> Split:
    return splits.make(task_name, PARAMS.task(task_name), seed, labels_of(task_name))


def class_counts(indices: np.ndarray, task_name: str) -> np.ndarray:
    """Images per relabeled class."""
    labels = labels_of(task_name)
    known = known_classes(PARAMS.task(task_name), labels.num_classes)
    return np.bincount(relabel(labels.values, known)[indices], minlength=labels.num_classes)


# --- draws equal the release's ----------------------------------------------------------------


def oracle_labeled(labels: np.ndarray, known: tuple[int, ...], count: int, seed: int) -> list[int]:
    """The release: np.random.seed once, then the legacy `choice` class by class."""
    np.random.seed(seed)
    chosen: list[int] = []
    for original in known:
        candidates = np.where(labels == original)[0]
        chosen.extend(np.random.choice(candidates, count, False))
    return chosen


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("task_name", ["cifar-6-30", "cifar-20-500", "cifar-60-600-correlated"])
def test_labeled_images_are_those_the_release_draws(task_name: str, seed: int) -> None:
    labels = labels_of(task_name)
    task = PARAMS.task(task_name)
    known = known_classes(task, labels.num_classes)
    expected = oracle_labeled(labels.values, known, task.labels_per_class or 0, seed)
    assert make(task_name, seed).labeled.tolist() == expected


def test_known_draws_of_the_legacy_generator_have_not_moved() -> None:
    # RandomState(1).permutation(6) is 2 1 4 0 3 5: a stream NumPy has frozen. Class 0 comes first.
    values = np.repeat([0, 1, 2, 3], 6)
    made = splits.make("small", SMALL_TASK, 1, TrainLabels(values, "h", 4))
    assert made.labeled[:3].tolist() == [2, 1, 4]
    assert set(made.labeled[3:].tolist()) <= set(range(6, 12))


@pytest.mark.parametrize("percent", [10, 30, 90])
def test_mismatch_pools_are_those_the_release_draws_with_rounded_counts(percent: int) -> None:
    name = f"cifar-50-5000-mismatch-{percent}"
    labels, known = CIFAR100.values, known_classes(PARAMS.task(name), 100)
    per_known, per_unknown = 400 - 4 * percent, 4 * percent
    np.random.seed(3)
    labeled: list[int] = []
    pool: list[int] = []
    for original in known:
        drawn = np.random.choice(np.where(labels == original)[0], 100 + per_known, False)
        labeled.extend(drawn[:100])
        pool.extend(drawn[100:])
    for original in sorted(set(range(100)) - set(known)):
        pool.extend(np.random.choice(np.where(labels == original)[0], per_unknown, False))
    made = make(name, seed=3)
    assert made.labeled.tolist() == labeled
    assert made.unlabeled.tolist() == sorted(pool)
    assert len(pool) == 20_000


def test_the_global_generator_is_left_alone() -> None:
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    make("cifar-50-500-subset-0")
    assert np.random.rand() == expected


# --- sizes and membership ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task_name", "num_labeled", "pool_in", "pool_out"),
    [
        ("cifar-6-30", 30, 30_000, 20_000),
        ("cifar-6-60", 60, 30_000, 20_000),
        ("cifar-6-150", 150, 30_000, 20_000),
        ("cifar-20-100", 100, 10_000, 40_000),
        ("cifar-20-200", 200, 10_000, 40_000),
        ("cifar-20-500", 500, 10_000, 40_000),
        ("cifar-50-250", 250, 25_000, 25_000),
        ("cifar-50-500", 500, 25_000, 25_000),
        ("cifar-50-1250", 1250, 25_000, 25_000),
        ("cifar-20-200-correlated", 200, 10_000, 40_000),
        ("cifar-60-600-correlated", 600, 30_000, 20_000),
        ("imagenet-20-p1", 260, 26_000, 13_000),
        ("imagenet-20-p5", 1300, 26_000, 13_000),
    ],
)
def test_every_image_is_labeled_or_unlabeled_and_none_is_both(
    task_name: str, num_labeled: int, pool_in: int, pool_out: int
) -> None:
    made = make(task_name)
    counts = class_counts(made.unlabeled, task_name)
    assert len(made.labeled) == num_labeled
    assert counts[: made.num_known].sum() == pool_in - num_labeled  # the release counts them too
    assert counts[made.num_known :].sum() == pool_out
    assert len(np.union1d(made.labeled, made.unlabeled)) == pool_in + pool_out
    assert set(class_counts(made.labeled, task_name)[: made.num_known]) == {
        PARAMS.task(task_name).labels_per_class
    }


def test_labeled_images_come_class_after_class() -> None:
    made = make("cifar-50-500")
    classes = relabel(CIFAR100.values, made.known)[made.labeled]
    assert classes.tolist() == [c for c in range(50) for _ in range(10)]


def test_a_split_depends_on_task_and_seed_only() -> None:
    one, again = make("cifar-50-500"), make("cifar-50-500")
    assert np.array_equal(one.labeled, again.labeled)
    assert np.array_equal(one.unlabeled, again.unlabeled) and one.hash == again.hash
    assert not np.array_equal(make("cifar-50-500", 1).labeled, make("cifar-50-500", 2).labeled)


def test_tasks_of_equal_size_do_not_share_labels() -> None:
    # IOMatch cached indices by set, number and seed: 20-500 and 50-500 collided there.
    first, second = make("cifar-20-500"), make("cifar-50-500")
    assert len(first.labeled) == len(second.labeled)
    assert first.labeled.tolist() != second.labeled.tolist()
    correlated = make("cifar-20-200-correlated")
    assert correlated.labeled.tolist() != make("cifar-20-200").labeled.tolist()


def test_subsets_of_figure_2_share_labels_and_differ_in_the_pool() -> None:
    base = make("cifar-50-500")
    subsets = [make(f"cifar-50-500-subset-{draw}") for draw in range(10)]
    for number, subset in enumerate(subsets):
        assert np.array_equal(subset.labeled, base.labeled)
        assert set(class_counts(subset.unlabeled, "cifar-50-500")) == {200}
        assert np.isin(subset.unlabeled, base.unlabeled).all()
        for other in subsets[:number]:
            shared = len(np.intersect1d(subset.unlabeled, other.unlabeled))
            # independent: 50 x 200 x 200 / 490 + 50 x 200 x 200 / 500 = 8,082 expected, sd about 50
            assert abs(shared - 8082) < 400


def test_a_subset_changes_with_the_seed() -> None:
    one, other = make("cifar-50-500-subset-0", 1), make("cifar-50-500-subset-0", 2)
    assert not np.array_equal(one.unlabeled, other.unlabeled)
    # Outliers have no labels, which would differ by themselves: here only the generator decides.
    known = known_classes(PARAMS.task("cifar-50-500-subset-0"), 100)
    is_outlier = relabel(CIFAR100.values, known) >= len(known)
    outliers = [split.unlabeled[is_outlier[split.unlabeled]] for split in (one, other)]
    shared = len(np.intersect1d(*outliers))
    assert abs(shared - 50 * 200 * 200 / 500) < 300  # independent draws, sd about 35


@settings(max_examples=40)
@given(
    num_classes=st.integers(2, 6),
    num_known=st.integers(1, 5),
    count=st.integers(1, 4),
    draw=st.none() | st.integers(0, 3),
    share=st.sampled_from([0.0, 0.25, 0.5, 0.75]),
    seed=st.integers(0, 2**32 - 1),
)
def test_pools_are_disjoint_from_labels_and_of_the_asked_size(
    num_classes: int, num_known: int, count: int, draw: int | None, share: float, seed: int
) -> None:
    num_known = min(num_known, num_classes - 1)
    pool = Pool(size=12 * num_known * (num_classes - num_known), outlier_share=share, draw=draw)
    task = Task(
        data="digits", known_rule="first", num_known=num_known, labels_per_class=count, pool=pool
    )
    made = splits.make("toy", task, seed, shuffled_labels(num_classes, 100))
    assert len(made.unlabeled) == pool.size
    assert len(np.intersect1d(made.labeled, made.unlabeled)) == 0


def test_sets_with_their_own_labels_use_the_first_rows_whatever_the_seed() -> None:
    values = np.array([1, 0, 2, -1, -1, 0, 7])
    labels = TrainLabels(values, "h", num_classes=3, labeled_count=3)
    for seed in (1, 2):
        made = splits.make("semi-inat", PARAMS.task("semi-inat"), seed, labels)
        assert made.labeled.tolist() == [0, 1, 2]
        assert made.unlabeled.tolist() == [3, 4, 5, 6]
        assert made.labeled_source == "labeled part"


def test_a_known_class_without_labeled_images_is_refused() -> None:
    labels = TrainLabels(np.array([0, 0, 2, -1]), "h", num_classes=3, labeled_count=3)
    with pytest.raises(UserError, match=r"no labeled image of the known class\(es\) \[1\]"):
        splits.make("folder", PARAMS.task("folder"), 1, labels)


def test_a_class_with_too_few_images_is_refused() -> None:
    labels = TrainLabels(np.array([0, 0, 0, 1, 1, 2, 3]), "h", num_classes=4)
    with pytest.raises(UserError, match=r"needs 3 images of class 1 .*2 are left"):
        splits.make("small", SMALL_TASK, 1, labels)


# --- published lists --------------------------------------------------------------------------


def test_a_published_list_is_matched_by_base_name_and_keeps_repetitions() -> None:
    names = ["one_class_train/b/n2_5.JPEG", "one_class_train/a/n1_7.JPEG", "a/n1_8.JPEG"]
    labels = TrainLabels(np.array([1, 0, 0]), "h", num_classes=2)
    listed = "data/x/a/n1_8.JPEG 0\ndata/x/a/n1_8.JPEG 0\ndata/x/b/n2_5.JPEG 1\n"
    assert splits.match_published(listed, names, labels).tolist() == [2, 2, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a/n1_9.JPEG 0", "line 1 .*'a/n1_9.JPEG', which is not among the 1 training images"),
        ("a/n1_8.JPEG 1", "line 1 .*says class 1 .*prepared data say 0"),
        ("garbage", "line 1 .*not among"),
    ],
)
def test_a_published_list_that_does_not_fit_the_data_is_refused(line: str, message: str) -> None:
    labels = TrainLabels(np.array([0]), "h", num_classes=2)
    with pytest.raises(UserError, match=message):
        splits.match_published(line, ["a/n1_8.JPEG"], labels)


# --- the description --------------------------------------------------------------------------


def test_the_description_counts_parts_and_overlaps() -> None:
    labels = shuffled_labels(4, 6)
    lines = splits.describe(splits.make("small", SMALL_TASK, 1, labels), labels.values).splitlines()
    assert lines[0].startswith("small seed 1: 2 known classes of digits, labeled images: drawn")
    assert lines[2].split() == ["labeled", "6", "6", "6", "0", "0", "6", "0"]
    assert lines[3].split() == ["unlabeled", "18", "18", "6", "12", "0", "0", "18"]


def test_the_description_shows_repetitions_and_images_without_a_label() -> None:
    values = np.array([0, 1, -1, -1])
    made = Split("t", 1, "d", "h", (0, 1), np.array([0, 1, 1]), np.array([2, 3]), "drawn", "")
    lines = splits.describe(made, values).splitlines()
    assert lines[2].split() == ["labeled", "3", "2", "3", "0", "0", "2", "0"]
    assert lines[3].split() == ["unlabeled", "2", "2", "0", "0", "2", "0", "2"]
