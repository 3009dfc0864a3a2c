"""Known classes, numbering and pool sizes, against the lists and counts the release uses."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dac import config
from dac.config import Pool, Task
from dac.config.tasks import SUPERCLASSES, pool_counts
from dac.data.classes import known_classes, relabel
from dac.io.errors import UserError

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
FIRST_20 = "1 4 9 10 16 28 30 32 54 55 61 62 67 70 72 73 82 91 92 95"
FIRST_50 = (
    "0 1 3 4 5 6 7 9 10 12 14 16 17 18 20 22 24 25 28 30 32 37 39 40 42 43 51 53 54 55 57 61 62 67 "
    "68 70 72 73 76 82 83 84 86 87 88 91 92 94 95 97"
)
CORRELATED_20 = "0 1 2 3 4 5 6 8 9 12 15 22 23 26 27 34 36 41 47 54"
CORRELATED_60 = (
    "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 19 20 21 22 23 25 26 27 29 30 32 33 34 35 36 37 "
    "39 40 41 42 43 44 45 47 48 49 50 51 52 53 54 55 56 62 63 64 65 67 69 70 77 81"
)


def known_of(task_name: str) -> tuple[int, ...]:
    task = PARAMS.task(task_name)
    num_classes = PARAMS.file.prepare[task.data].num_classes
    assert num_classes is not None
    return known_classes(task, num_classes)


@pytest.mark.parametrize(
    ("task_name", "ids"),
    [
        ("cifar-6-30", "2 3 4 5 6 7"),
        ("cifar-20-100", FIRST_20),
        ("cifar-50-500", FIRST_50),
        ("cifar-50-5000-mismatch-30", FIRST_50),
        ("cifar-20-200-correlated", CORRELATED_20),
        ("cifar-60-600-correlated", CORRELATED_60),
        ("imagenet-20-p1", " ".join(map(str, range(20)))),
        ("digits-6-30", "0 1 2 3 4 5"),
        ("digits-6-30-dev", "4 5 6 7 8 9"),
        ("semi-inat", " ".join(map(str, range(810)))),
    ],
)
def test_known_classes_are_the_published_ids(task_name: str, ids: str) -> None:
    assert known_of(task_name) == tuple(int(i) for i in ids.split())


def test_superclasses_partition_the_hundred_classes_into_ascending_rows_of_five() -> None:
    assert sorted(i for row in SUPERCLASSES for i in row) == list(range(100))
    assert all(len(row) == 5 and list(row) == sorted(row) for row in SUPERCLASSES)


def test_correlated_unknown_classes_have_known_siblings_and_uncorrelated_ones_have_none() -> None:
    for name, is_correlated in (("cifar-60-600-correlated", True), ("cifar-50-500", False)):
        known = set(known_of(name))
        mixed = [row for row in SUPERCLASSES if 0 < len(known & set(row)) < 5]
        assert len(mixed) == (20 if is_correlated else 0)


def test_own_pictures_know_every_class_of_the_folder() -> None:
    assert known_classes(PARAMS.task("folder"), 3) == (0, 1, 2)


def test_listed_ids_come_back_ascending() -> None:
    task = Task(data="digits", known_rule="listed", num_known=3, known=(7, 1, 4))
    assert known_classes(task, 10) == (1, 4, 7)
    assert unknown_classes(known_classes(task, 10), 10) == (0, 2, 3, 5, 6, 8, 9)


@pytest.mark.parametrize(
    "task",
    [
        Task(data="digits", known_rule="first", num_known=7),
        Task(data="digits", known_rule="listed", num_known=2, known=(1, 6)),
        Task(data="digits", known_rule="listed", num_known=2, known=(1, 1)),
        Task(data="cifar100", known_rule="superclasses", num_known=21),
    ],
)
def test_known_classes_that_the_data_do_not_have_are_refused(task: Task) -> None:
    with pytest.raises(UserError, match="correct the task"):
        known_classes(task, 6)


def test_relabel_numbers_known_then_unknown_in_ascending_original_order() -> None:
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1])
    expected = [6, 7, 0, 1, 2, 3, 4, 5, 8, 9, -1]  # CIFAR-10: animals first
    assert relabel(labels, (2, 3, 4, 5, 6, 7)).tolist() == expected
    assert relabel(labels, (7, 6, 5, 4, 3, 2)).tolist() == expected


def test_relabel_keeps_ids_that_exceed_a_set_where_all_are_known() -> None:
    assert relabel(np.array([0, 2, 3, 5, -1]), range(3)).tolist() == [0, 2, 3, 5, -1]


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_relabel_is_the_permutation_known_then_unknown(case: tuple[int, set[int]]) -> None:
    num_classes, chosen = case
    known = tuple(sorted(chosen))
    order = [*known, *unknown_classes(known, num_classes)]  # new id -> original id
    assert relabel(np.array(order), known).tolist() == list(range(num_classes))


@pytest.mark.parametrize(
    ("share", "per_known", "per_unknown"),
    [
        (0.0, 400, 0),
        (0.1, 360, 40),
        (0.2, 320, 80),
        (0.3, 280, 120),
        (0.4, 240, 160),
        (0.5, 200, 200),
        (0.6, 160, 240),
        (0.7, 120, 280),
        (0.8, 80, 320),  # the release truncates to 79 and 321
        (0.9, 40, 360),  # 39 and 361
    ],
)
def test_pool_counts_of_figure_11_are_rounded(
    share: float, per_known: int, per_unknown: int
) -> None:
    pool = Pool(size=20_000, outlier_share=share)
    assert pool_counts(pool, 50, 50) == (per_known, per_unknown)


def test_pool_without_unknown_classes_has_no_outliers() -> None:
    assert pool_counts(Pool(size=100, outlier_share=0.0), 10, 0) == (10, 0)


@pytest.mark.parametrize(
    ("task_name", "in_pool", "in_test"),
    [
        ("cifar-6-30", (30_000, 20_000), (6_000, 4_000)),
        ("cifar-20-100", (10_000, 40_000), (2_000, 8_000)),
        ("cifar-50-500", (25_000, 25_000), (5_000, 5_000)),
        ("cifar-20-200-correlated", (10_000, 40_000), (2_000, 8_000)),
        ("cifar-60-600-correlated", (30_000, 20_000), (6_000, 4_000)),
        ("imagenet-20-p1", (26_000, 13_000), (2_000, 1_000)),
    ],
)
def test_pool_and_test_have_the_published_numbers_of_inliers_and_outliers(
    task_name: str, in_pool: tuple[int, int], in_test: tuple[int, int]
) -> None:
    data = PARAMS.file.prepare[PARAMS.task(task_name).data]
    assert data.num_classes is not None
    for size, expected in ((data.train_per_class, in_pool), (data.test_per_class, in_test)):
        assert size is not None
        labels = relabel(np.repeat(np.arange(data.num_classes), size), known_of(task_name))
        is_known = labels < len(known_of(task_name))
        assert (is_known.sum(), (~is_known).sum()) == expected


def unknown_classes(known: tuple[int, ...], num_classes: int) -> tuple[int, ...]:
    """Original ids of the other classes, ascending."""
    return tuple(sorted(set(range(num_classes)) - set(known)))
