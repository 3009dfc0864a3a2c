"""Splits: the release's own draws, sizes, disjointness, and files that cannot lie.

Labels are generated: 500 images of each of 100 classes in a shuffled order, like CIFAR-100. The
oracle repeats the release's procedure with NumPy's global generator.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dac import files, params, split
from dac.data import prepared, prepared_writer
from dac.errors import UserError, exit_code_of
from dac.settings import Pool, Task
from dac.split import Split, TrainLabels
from dac.split_file import _ranges
from dac.tasks import known_classes, relabel

PARAMS = params.load(Path(__file__).parents[1] / "params.yaml")


def shuffled_labels(num_classes: int, per_class: int) -> TrainLabels:
    values = np.random.RandomState(99).permutation(np.repeat(np.arange(num_classes), per_class))
    return TrainLabels(values, hash=f"labels of {num_classes}", num_classes=num_classes)


CIFAR10 = shuffled_labels(10, 5000)
CIFAR100 = shuffled_labels(100, 500)
IMAGENET30 = shuffled_labels(30, 1300)
SMALL = shuffled_labels(4, 6)
SMALL_TASK = Task(data="digits", known_rule="first", num_known=2, labels_per_class=3)


def labels_of(task_name: str) -> TrainLabels:
    by_data = {"cifar10": CIFAR10, "cifar100": CIFAR100, "imagenet30": IMAGENET30}
    return by_data[PARAMS.task(task_name).data]


def make(task_name: str, seed: int = 1) -> Split:
    return split.make(task_name, PARAMS.task(task_name), seed, labels_of(task_name))


def class_counts(indices: np.ndarray, task_name: str) -> np.ndarray:
    """Images per relabeled class."""
    labels = labels_of(task_name)
    known = known_classes(PARAMS.task(task_name), labels.num_classes)
    return np.bincount(relabel(labels.values, known)[indices], minlength=labels.num_classes)


def same(one: Split, other: Split) -> bool:
    return (
        np.array_equal(one.labeled, other.labeled)
        and np.array_equal(one.unlabeled, other.unlabeled)
        and one.hash == other.hash
    )


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
    made = split.make("small", SMALL_TASK, 1, TrainLabels(values, "h", 4))
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
    assert same(make("cifar-50-500"), make("cifar-50-500"))
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
    made = split.make("toy", task, seed, shuffled_labels(num_classes, 100))
    assert len(made.unlabeled) == pool.size
    assert len(np.intersect1d(made.labeled, made.unlabeled)) == 0


def test_sets_with_their_own_labels_use_the_first_rows_whatever_the_seed() -> None:
    values = np.array([1, 0, 2, -1, -1, 0, 7])
    labels = TrainLabels(values, "h", num_classes=3, labeled_count=3)
    for seed in (1, 2):
        made = split.make("semi-inat", PARAMS.task("semi-inat"), seed, labels)
        assert made.labeled.tolist() == [0, 1, 2]
        assert made.unlabeled.tolist() == [3, 4, 5, 6]
        assert made.labeled_source == "labeled part"


def test_a_known_class_without_labeled_images_is_refused() -> None:
    labels = TrainLabels(np.array([0, 0, 2, -1]), "h", num_classes=3, labeled_count=3)
    with pytest.raises(UserError, match=r"no labeled image of the known class\(es\) \[1\]"):
        split.make("folder", PARAMS.task("folder"), 1, labels)


def test_a_class_with_too_few_images_is_refused() -> None:
    labels = TrainLabels(np.array([0, 0, 0, 1, 1, 2, 3]), "h", num_classes=4)
    with pytest.raises(UserError, match=r"needs 3 images of class 1 .*2 are left"):
        split.make("small", SMALL_TASK, 1, labels)


# --- published lists --------------------------------------------------------------------------


def test_a_published_list_is_matched_by_base_name_and_keeps_repetitions() -> None:
    names = ["one_class_train/b/n2_5.JPEG", "one_class_train/a/n1_7.JPEG", "a/n1_8.JPEG"]
    labels = TrainLabels(np.array([1, 0, 0]), "h", num_classes=2)
    listed = "data/x/a/n1_8.JPEG 0\ndata/x/a/n1_8.JPEG 0\ndata/x/b/n2_5.JPEG 1\n"
    assert split.match_published(listed, names, labels).tolist() == [2, 2, 0]


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
        split.match_published(line, ["a/n1_8.JPEG"], labels)


# --- the file ---------------------------------------------------------------------------------


def small_split(seed: int = 1) -> Split:
    return split.make("small", SMALL_TASK, seed, SMALL)


def load_small(path: Path, **changes: Any) -> Split:
    expected: dict[str, Any] = {"task_name": "small", "task": SMALL_TASK, "seed": 1}
    expected |= {"labels": SMALL} | changes
    return split.load(path, **expected)


def rehashed(content: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in content.items() if key != "hash"}
    return rest | {"hash": files.canonical_hash(rest)}


@pytest.mark.parametrize(
    "task_name", ["cifar-6-30", "cifar-50-500-subset-3", "cifar-50-5000-mismatch-90"]
)
def test_what_was_saved_is_loaded(task_name: str, tmp_path: Path) -> None:
    made, path = make(task_name), tmp_path / "seed1.json"
    split.save(made, path)
    loaded = split.load(path, task_name, PARAMS.task(task_name), 1, labels_of(task_name))
    assert same(loaded, made)
    assert (loaded.known, loaded.data, loaded.labeled_source) == (made.known, made.data, "drawn")
    assert path.stat().st_size < 300_000


@given(st.sets(st.integers(0, 60)))
def test_ranges_cover_exactly_the_indices(indices: set[int]) -> None:
    ranges = _ranges(np.array(sorted(indices), dtype=np.int64))
    assert [i for start, stop in ranges for i in range(start, stop)] == sorted(indices)
    assert all(stop < start for (_, stop), (start, _) in pairwise(ranges))


def test_equal_splits_are_equal_bytes(tmp_path: Path) -> None:
    split.save(small_split(), tmp_path / "a.json")
    split.save(small_split(), tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_name": "other"}, "is for task 'small', expected 'other'"),
        ({"seed": 2}, "is for seed 1, expected 2"),
        (
            {"task": SMALL_TASK.model_copy(update={"data": "cifar10"})},
            "is for data 'digits', expected 'cifar10'",
        ),
        ({"labels": TrainLabels(SMALL.values, "other", 4)}, "made from other labels of digits"),
        (
            {"task": SMALL_TASK.model_copy(update={"labels_per_class": 4})},
            r"lists 6 labeled images, expected 8 \(2 classes x 4\)",
        ),
        (
            {"task": SMALL_TASK.model_copy(update={"num_known": 3})},
            r"known classes \[0, 1\], expected \[0, 1, 2\]",
        ),
        (
            {"task": SMALL_TASK.model_copy(update={"pool": Pool(size=4, outlier_share=0.5)})},
            "18 unlabeled images, expected 4",
        ),
    ],
)
def test_a_file_of_another_experiment_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    split.save(small_split(), tmp_path / "s.json")
    with pytest.raises(UserError, match=message) as error:
        load_small(tmp_path / "s.json", **changes)
    assert f"delete {tmp_path / 's.json'} and run `python -m dac.split" in str(error.value)


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    split.save(small_split(), path)
    path.write_text(path.read_text().replace('"labeled": [', '"labeled": [0, '))
    with pytest.raises(UserError, match="was edited"):
        load_small(path)


@settings(max_examples=30)
@given(share=st.floats(0, 0.999))
def test_a_truncated_file_is_refused(
    share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "s.json"
    split.save(small_split(), path)
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match="cannot be read"):
        load_small(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_small(tmp_path / "s.json")


def with_labeled(change: Callable[[list[int]], list[int]]) -> Callable[[dict[str, Any]], None]:
    def apply(content: dict[str, Any]) -> None:
        content["labeled"] = change(content["labeled"])

    return apply


def images_of(original: int) -> list[int]:
    return [int(i) for i in np.flatnonzero(SMALL.values == original)]


def unused_image(labeled: list[int], original: int) -> int:
    return next(i for i in images_of(original) if i not in labeled)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format=2), "has the format 2, expected 1"),
        (lambda c: c.pop("labeled"), r"not readable as a split \(labeled: Field required"),
        (lambda c: c.update(seed="1"), r"not readable as a split \(seed"),
        (lambda c: c.update(extra=1), r"not readable as a split \(extra"),
        (lambda c: c["unlabeled"].append([0, 24]), "unlabeled ranges that overlap or leave the 24"),
        (lambda c: c.update(unlabeled=[[0, 10**15]]), "overlap or leave the 24"),
        (lambda c: c.update(unlabeled=[[-3, 4]]), "overlap or leave the 24"),
        (lambda c: c.update(unlabeled=[[5, 5]]), "overlap or leave the 24"),
        (lambda c: c.update(unlabeled=[[0, 24]]), r"6 image\(s\) both labeled and unlabeled"),
        (lambda c: c.update(unlabeled=[]), "has 0 unlabeled images, expected 18"),
        (with_labeled(lambda old: old[:5]), r"lists 5 labeled images, expected 6"),
        (with_labeled(lambda old: old[:3]), r"no labeled image of the known class\(es\) \[1\]"),
        (with_labeled(lambda old: [*old[:5], 24]), r"labels image 24, the training part has 0..23"),
        (with_labeled(lambda old: [*old[:5], -1]), "labels image -1"),
        (with_labeled(lambda old: [*old[:5], old[4]]), "labels an image twice"),
    ],
)
def test_a_wrong_file_with_a_right_hash_is_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.json"
    split.save(small_split(), path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(rehashed(content)))
    with pytest.raises(UserError, match=message):
        load_small(path)


@pytest.mark.parametrize(
    ("original", "message"),
    [(0, "labels 4 images of class 0, expected 3"), (3, "of class 3, expected known classes only")],
)
def test_labels_of_the_wrong_class_are_refused(original: int, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    split.save(small_split(), path)
    content = json.loads(path.read_text())
    swapped = unused_image(content["labeled"], original)
    content["labeled"][-1] = swapped
    rest = np.setdiff1d(np.arange(24), content["labeled"])
    content["unlabeled"] = _ranges(rest)
    path.write_text(json.dumps(rehashed(content)))
    with pytest.raises(UserError, match=message):
        load_small(path)


def test_a_file_that_labels_other_rows_than_the_labeled_part_is_refused(tmp_path: Path) -> None:
    path, task = tmp_path / "s.json", PARAMS.task("folder")
    labels = TrainLabels(np.array([0, 1, 0, 1, -1]), "h", num_classes=2, labeled_count=3)
    split.save(split.make("folder", task, 1, labels), path)
    content = json.loads(path.read_text())
    content |= {"labeled": [0, 1, 3], "unlabeled": [[2, 3], [4, 5]]}
    path.write_text(json.dumps(rehashed(content)))
    with pytest.raises(UserError, match="does not label the first 3 images and only those"):
        split.load(path, "folder", task, 1, labels)


@pytest.mark.parametrize("text", ["[]", "null", "3"])
def test_a_file_that_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UserError, match="expected a mapping"):
        load_small(tmp_path / "s.json")


def test_the_description_counts_parts_and_overlaps() -> None:
    lines = split.describe(small_split(), SMALL.values).splitlines()
    assert lines[0].startswith("small seed 1: 2 known classes of digits, labeled images: drawn")
    assert lines[2].split() == ["labeled", "6", "6", "6", "0", "0", "6", "0"]
    assert lines[3].split() == ["unlabeled", "18", "18", "6", "12", "0", "0", "18"]


def test_the_description_shows_repetitions_and_images_without_a_label() -> None:
    values = np.array([0, 1, -1, -1])
    made = Split("t", 1, "d", "h", (0, 1), np.array([0, 1, 1]), np.array([2, 3]), "drawn", "")
    lines = split.describe(made, values).splitlines()
    assert lines[2].split() == ["labeled", "3", "2", "3", "0", "0", "2", "0"]
    assert lines[3].split() == ["unlabeled", "2", "2", "0", "0", "2", "0", "2"]


# --- the stage --------------------------------------------------------------------------------


def prepare(
    root: Path,
    name: str,
    values: np.ndarray,
    names: tuple[str, ...] = (),
    labeled_count: int | None = None,
    num_classes: int | None = None,
) -> None:
    blocks = [np.zeros((len(values), 3, 1, 1), dtype=np.uint8)]
    part = prepared_writer.NewPart(labels=values, side=1, blocks=blocks, files=names)
    classes = tuple(f"class {c}" for c in range(num_classes or values.max() + 1))
    new = prepared_writer.NewSet(
        classes=classes, parts={"train": part}, labeled_count=labeled_count
    )
    folder = prepared.folder_of(root, name)
    folder.mkdir(parents=True)
    prepared_writer.write(folder, name, new, recipe={})


def run_stage(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["split", *arguments])
    return exit_code_of(split.main)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    prepare(tmp_path, "digits", shuffled_labels(10, 80).values)
    return tmp_path


def test_the_stage_writes_a_split_that_loads(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--task", "digits-6-30", "--seed", "1", "--root", str(digits))
    assert run_stage(monkeypatch, *arguments) == 0
    path = digits / "splits/digits-6-30/seed1.json"
    labels = split.train_labels(prepared.load(digits, "digits"))
    loaded = split.load(path, "digits-6-30", PARAMS.task("digits-6-30"), 1, labels)
    assert len(loaded.labeled) == 30
    assert split.describe(loaded, labels.values) in capsys.readouterr().out


def test_the_stage_leaves_an_equal_file_untouched(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "s.json"
    arguments = ("--task", "digits-6-30", "--seed", "1", "--root", str(digits), "--out", str(out))
    run_stage(monkeypatch, *arguments)
    before = (out.read_bytes(), out.stat().st_mtime_ns, out.stat().st_ino)
    assert run_stage(monkeypatch, *arguments) == 0
    assert (out.read_bytes(), out.stat().st_mtime_ns, out.stat().st_ino) == before
    assert "up to date" in capsys.readouterr().err


def test_the_stage_refuses_to_replace_a_differing_file(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "s.json"
    common = ("--task", "digits-6-30", "--root", str(digits), "--out", str(out), "--seed")
    run_stage(monkeypatch, *common, "1")
    before = out.read_bytes()
    assert run_stage(monkeypatch, *common, "2") == 2
    message = capsys.readouterr().err
    assert (
        "differs from the split of digits-6-30 seed 2 in seed, labeled, unlabeled, hash" in message
    )
    assert f"Delete {out}" in message
    assert out.read_bytes() == before


def test_the_stage_refuses_to_replace_a_damaged_file(
    digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = digits / "s.json"
    arguments = ("--task", "digits-6-30", "--seed", "1", "--root", str(digits), "--out", str(out))
    run_stage(monkeypatch, *arguments)
    out.write_bytes(out.read_bytes()[:100])
    assert run_stage(monkeypatch, *arguments) == 2
    assert f"split file {out} cannot be read" in capsys.readouterr().err
    assert out.stat().st_size == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "digits-6-31", "--seed", "1"), "did you mean 'digits-6-30'?"),
        (("--task", "digits-6-30", "--seed", "-1"), "seed -1 is outside 0..4294967295"),
        (("--task", "digits-6-30", "--seed", "4294967296"), "seed 4294967296 is outside"),
        (("--task", "cifar-6-30", "--seed", "1"), "cifar10 is not prepared"),
    ],
)
def test_the_stage_explains_bad_arguments(
    arguments: tuple[str, ...],
    message: str,
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_stage(monkeypatch, *arguments, "--root", str(digits)) == 2
    assert message in capsys.readouterr().err


def test_classes_of_own_pictures_that_only_the_test_part_shows_are_unknown(tmp_path: Path) -> None:
    values = np.array([0, 0, 1, 2, -1, -1])
    prepare(tmp_path, "folder", values, labeled_count=4, num_classes=5)  # ids 3 and 4: test only
    labels = split.train_labels(prepared.load(tmp_path, "folder"))
    made = split.make("folder", PARAMS.task("folder"), 1, labels)
    assert made.known == (0, 1, 2)
    assert made.labeled.tolist() == [0, 1, 2, 3]


@pytest.fixture
def imagenet(tmp_path: Path) -> tuple[Path, str]:
    """A prepared ImageNet-30 of 20 images per class, params with the md5 of a list made here."""
    values = np.repeat(np.arange(30), 20)
    names = tuple(f"class{c}/n{c:02}_{i % 20}.JPEG" for i, c in enumerate(values))
    prepare(tmp_path, "imagenet30", values, names)
    listed = "".join(
        f"data/imagenet30/one_class_train/class{c}/n{c:02}_{max(0, i - 1)}.JPEG {c}\n"
        for c in range(20)
        for i in range(13)
    )
    old = PARAMS.task("imagenet-20-p1").labeled_list
    assert old is not None
    text = PARAMS.path.read_text()
    text = text.replace(old.md5, hashlib.md5(listed.encode()).hexdigest())
    (tmp_path / "params.yaml").write_text(text)
    return tmp_path, listed


def run_imagenet(root: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    arguments = ("--task", "imagenet-20-p1", "--seed", str(seed), "--root", str(root))
    assert run_stage(monkeypatch, *arguments, "--params", str(root / "params.yaml")) == 0
    content: dict[str, Any] = json.loads(
        (root / f"splits/imagenet-20-p1/seed{seed}.json").read_text()
    )
    return content


def test_a_published_list_gives_every_seed_the_same_labels(
    imagenet: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, listed = imagenet
    path = root / "raw/imagenet30/filelist/train_labeled_p1.txt"
    path.parent.mkdir(parents=True)
    path.write_text(listed)
    one, two = run_imagenet(root, 1, monkeypatch), run_imagenet(root, 2, monkeypatch)
    expected = [20 * c + max(0, i - 1) for c in range(20) for i in range(13)]
    assert one["labeled"] == two["labeled"] == expected
    assert one["labeled_source"] == "published list"
    assert one["counts"] == {"labeled": 260, "labeled_distinct": 240, "unlabeled": 600 - 240}


def test_a_list_with_another_md5_is_refused(
    imagenet: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, listed = imagenet
    path = root / "raw/imagenet30/filelist/train_labeled_p1.txt"
    path.parent.mkdir(parents=True)
    path.write_text(listed + "\n")
    arguments = ("--task", "imagenet-20-p1", "--seed", "1", "--root", str(root))
    assert run_stage(monkeypatch, *arguments, "--params", str(root / "params.yaml")) == 2
    assert f"{path} has md5" in capsys.readouterr().err


def test_without_the_list_labels_are_drawn_and_the_stage_says_so(
    imagenet: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root, _ = imagenet
    one, two = run_imagenet(root, 1, monkeypatch), run_imagenet(root, 2, monkeypatch)
    assert "train_labeled_p1.txt does not exist: the labeled images are drawn" in (
        capsys.readouterr().err
    )
    assert one["labeled_source"] == "drawn"
    assert one["counts"]["labeled_distinct"] == 260
    assert one["labeled"] != two["labeled"]
