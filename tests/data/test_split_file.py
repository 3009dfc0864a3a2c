"""Split files: what was saved is loaded, and a file that is not what it says is refused."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_labels import shuffled_labels

from dac import config
from dac.config import Pool, Task
from dac.data import prepared, prepared_writer, split_file, splits
from dac.data.prepared_writer import NewPart, NewSet
from dac.data.split_check import Split, TrainLabels
from dac.data.split_file import _ranges
from dac.io import files
from dac.io.errors import UserError

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
SMALL = shuffled_labels(4, 6)
SMALL_TASK = Task(data="digits", known_rule="first", num_known=2, labels_per_class=3)


def small_split(seed: int = 1) -> Split:
    return splits.make("small", SMALL_TASK, seed, SMALL)


def load_small(path: Path, **changes: Any) -> Split:
    expected: dict[str, Any] = {"task_name": "small", "task": SMALL_TASK, "seed": 1}
    expected |= {"labels": SMALL} | changes
    return split_file.load(path, **expected)


def rehashed(content: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in content.items() if key != "hash"}
    return rest | {"hash": files.canonical_hash(rest)}


@pytest.mark.parametrize(
    ("task_name", "labels"),
    [
        ("cifar-6-30", shuffled_labels(10, 5000)),
        ("cifar-50-500-subset-3", shuffled_labels(100, 500)),
        ("cifar-50-5000-mismatch-90", shuffled_labels(100, 500)),
    ],
)
def test_what_was_saved_is_loaded(task_name: str, labels: TrainLabels, tmp_path: Path) -> None:
    task, path = PARAMS.task(task_name), tmp_path / "seed1.json"
    made = splits.make(task_name, task, 1, labels)
    split_file.save(made, path)
    loaded = split_file.load(path, task_name, task, 1, labels)
    assert np.array_equal(loaded.labeled, made.labeled)
    assert np.array_equal(loaded.unlabeled, made.unlabeled)
    assert (loaded.known, loaded.data, loaded.labeled_source) == (made.known, made.data, "drawn")
    assert loaded.hash == made.hash
    assert path.stat().st_size < 300_000


@given(st.sets(st.integers(0, 60)))
def test_ranges_cover_exactly_the_indices(indices: set[int]) -> None:
    ranges = _ranges(np.array(sorted(indices), dtype=np.int64))
    assert [i for start, stop in ranges for i in range(start, stop)] == sorted(indices)
    assert all(stop < start for (_, stop), (start, _) in pairwise(ranges))


def test_equal_splits_are_equal_bytes(tmp_path: Path) -> None:
    split_file.save(small_split(), tmp_path / "a.json")
    split_file.save(small_split(), tmp_path / "b.json")
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
    split_file.save(small_split(), tmp_path / "s.json")
    with pytest.raises(UserError, match=message) as error:
        load_small(tmp_path / "s.json", **changes)
    assert f"delete {tmp_path / 's.json'} and run `python -m dac.split" in str(error.value)


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    split_file.save(small_split(), path)
    path.write_text(path.read_text().replace('"labeled": [', '"labeled": [0, '))
    with pytest.raises(UserError, match="was edited"):
        load_small(path)


@settings(max_examples=30)
@given(share=st.floats(0, 0.999))
def test_a_truncated_file_is_refused(
    share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "s.json"
    split_file.save(small_split(), path)
    whole = path.read_bytes().rstrip()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match="cannot be read"):
        load_small(path)


@pytest.mark.parametrize("content", ["[" * 100_000, "[" + "1" * 5000 + "]"])
def test_json_that_no_reader_takes_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(UserError, match=f"split file {path} cannot be read .*delete it"):
        load_small(path)
    with pytest.raises(UserError, match=f"split file {path} cannot be read .*delete it"):
        split_file.save_or_keep(small_split(), path)


def test_a_file_that_may_not_be_read_or_is_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=rf"split file {tmp_path} cannot be read \(Is a directory"):
        load_small(tmp_path)
    path = tmp_path / "s.json"
    split_file.save(small_split(), path)

    def denied(here: Path) -> str:
        raise PermissionError(13, "Permission denied", str(here))

    monkeypatch.setattr(Path, "read_text", denied)
    with pytest.raises(
        UserError, match=r"cannot be read \(Permission denied\); fix its permissions"
    ):
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
        (lambda c: c["unlabeled"].append([0, 24]), "ranges that overlap or exceed the 24"),
        (lambda c: c.update(unlabeled=[[0, 10**15]]), "overlap or exceed the 24"),
        (lambda c: c.update(unlabeled=[[-3, 4]]), "overlap or exceed the 24"),
        (lambda c: c.update(unlabeled=[[5, 5]]), "overlap or exceed the 24"),
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
    split_file.save(small_split(), path)
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
    split_file.save(small_split(), path)
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
    split_file.save(splits.make("folder", task, 1, labels), path)
    content = json.loads(path.read_text())
    content |= {"labeled": [0, 1, 3], "unlabeled": [[2, 3], [4, 5]]}
    path.write_text(json.dumps(rehashed(content)))
    with pytest.raises(UserError, match="does not label the first 3 images and only those"):
        split_file.load(path, "folder", task, 1, labels)


@pytest.mark.parametrize("text", ["[]", "null", "3"])
def test_a_file_that_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UserError, match="expected a mapping"):
        load_small(tmp_path / "s.json")


def test_classes_of_own_pictures_that_only_the_test_part_shows_are_unknown(tmp_path: Path) -> None:
    values = np.array([0, 0, 1, 2, -1, -1])
    part = NewPart(values, 1, [np.zeros((6, 3, 1, 1), np.uint8)])
    classes = ("a", "b", "c", "only in test", "only in test too")
    with prepared_writer.held(tmp_path, "folder") as folder:
        new = NewSet(classes, {"train": part}, labeled_count=4)
        prepared_writer.write(folder, "folder", new, recipe={})
    labels = split_file.train_labels(prepared.load(tmp_path, "folder"))
    made = splits.make("folder", PARAMS.task("folder"), 1, labels)
    assert made.known == (0, 1, 2)
    assert made.labeled.tolist() == [0, 1, 2, 3]
