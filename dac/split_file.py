"""The split file: a small JSON that is checked completely whenever it is read.

It names the labels it was made from and carries a hash of everything else in it, which every run
records. A run on a split that is damaged, edited or of other data stops before it starts.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from dac import files
from dac.errors import UserError
from dac.settings import Section, Task
from dac.tasks import known_classes, pool_counts, relabel

FORMAT = 1
Source = Literal["drawn", "published list", "labeled part"]


@dataclass(frozen=True)
class TrainLabels:
    """What a split is made from: the labels of the train part, in file order."""

    values: np.ndarray  # original ids, -1 where no label is known
    hash: str
    num_classes: int
    labeled_count: int | None = None  # sets with labels of their own: the first rows are labeled


@dataclass(frozen=True)
class Split:
    """Indices into the train part. The pool is without labeled images; who wants them adds them."""

    task: str
    seed: int
    data: str
    labels_hash: str
    known: tuple[int, ...]  # original ids, ascending
    labeled: np.ndarray  # in draw order, class after class; the published lists repeat some images
    unlabeled: np.ndarray  # ascending
    labeled_source: Source
    hash: str

    @property
    def num_known(self) -> int:
        return len(self.known)


class _File(Section):
    format: Literal[1]
    task: str
    seed: int
    data: str
    labels_hash: str
    known: tuple[int, ...]
    labeled: tuple[int, ...]
    unlabeled: tuple[tuple[int, int], ...]
    """[start, stop) ranges."""
    counts: dict[str, int]
    labeled_source: Source
    hash: str


def content(split: Split) -> dict[str, Any]:
    """What the file says, without the hash of it."""
    return {
        "format": FORMAT,
        "task": split.task,
        "seed": split.seed,
        "data": split.data,
        "labels_hash": split.labels_hash,
        "known": list(split.known),
        "labeled": split.labeled.tolist(),
        "unlabeled": _ranges(split.unlabeled),
        "counts": {
            "labeled": len(split.labeled),
            "labeled_distinct": len(np.unique(split.labeled)),
            "unlabeled": len(split.unlabeled),
        },
        "labeled_source": split.labeled_source,
    }


def save(split: Split, path: Path) -> None:
    """One key per line: readable, and a pool of 20,000 ranges does not become 80,000 lines."""
    entries = content(split) | {"hash": split.hash}
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(entries[key])}" for key in entries)
    files.write_text(path, f"{{\n{lines}\n}}\n")


def save_or_keep(split: Split, path: Path) -> bool:
    """Save unless the file is there already. A file that says something else is never replaced."""
    if not path.exists():
        save(split, path)
        return True
    found = files.read_json(path, "split file")
    expected = content(split) | {"hash": split.hash}
    if found == expected:
        return False
    keys = [
        key for key in expected if not isinstance(found, dict) or found.get(key) != expected[key]
    ]
    raise UserError(
        f"split file {path} exists and differs from the split of {split.task} seed {split.seed} "
        f"in {', '.join(keys)}: the file was edited, or params.yaml or the data changed since. "
        f"Delete {path} to make it anew (finished runs stay tied to the old one by its hash)"
    )


# --- reading ----------------------------------------------------------------------------------


class SplitError(Exception):
    """What is wrong with a split; the message goes on after "the split ..."."""


def load(path: Path, task_name: str, task: Task, seed: int, labels: TrainLabels) -> Split:
    """The split of this task, seed and data, checked; a UserError says what is wrong with it."""
    if not path.exists():
        raise UserError(
            f"split file {path} does not exist; run "
            f"`python -m dac.split --task {task_name} --seed {seed}` with this --root and --params"
        )
    found = files.read_json(path, "split file")
    try:
        file = _parsed(found)
        _check_owner(file, task_name, task, seed, labels)
        split = _as_split(file, len(labels.values))
        check(split, task, labels)
    except SplitError as fault:
        raise UserError(
            f"split file for {task_name} seed {seed} {fault}; delete {path} and run "
            f"`python -m dac.split --task {task_name} --seed {seed}`"
        ) from None
    return split


def _parsed(found: Any) -> _File:
    """The file, if it is whole and says what was written into it."""
    if not isinstance(found, dict):
        raise SplitError(f"holds a {type(found).__name__}, expected a mapping")
    if found.get("format") != FORMAT:
        raise SplitError(f"has the format {found.get('format')!r}, expected {FORMAT}")
    computed = files.canonical_hash({key: found[key] for key in found if key != "hash"})
    if found.get("hash") != computed:
        raise SplitError(
            f"was edited: it says hash {found.get('hash')!r}, its content has {computed!r}"
        )
    try:
        return _File.model_validate_json(json.dumps(found))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SplitError(f"is not readable as a split ({place}: {first['msg']})") from None


def _check_owner(file: _File, task_name: str, task: Task, seed: int, labels: TrainLabels) -> None:
    expected: dict[str, Any] = {"task": task_name, "seed": seed, "data": task.data}
    for key, value in expected.items():
        if getattr(file, key) != value:
            raise SplitError(f"is for {key} {getattr(file, key)!r}, expected {value!r}")
    if file.labels_hash != labels.hash:
        raise SplitError(
            f"was made from other labels of {task.data} (sha256 {file.labels_hash[:12]}..., "
            f"the prepared ones have {labels.hash[:12]}...)"
        )


def _as_split(file: _File, num_images: int) -> Split:
    edges = [edge for edges in file.unlabeled for edge in edges]
    if edges != sorted(set(edges)) or (edges and (edges[0] < 0 or edges[-1] > num_images)):
        raise SplitError(
            f"has unlabeled ranges that overlap or leave the {num_images} training images"
        )
    ranges = [np.arange(start, stop) for start, stop in file.unlabeled]
    return Split(
        task=file.task,
        seed=file.seed,
        data=file.data,
        labels_hash=file.labels_hash,
        known=file.known,
        labeled=np.array(file.labeled, dtype=np.int64),
        unlabeled=np.concatenate([np.arange(0), *ranges]),
        labeled_source=file.labeled_source,
        hash=file.hash,
    )


def _ranges(ascending: np.ndarray) -> list[list[int]]:
    """[[0, 3], [7, 8]] for 0 1 2 7."""
    if len(ascending) == 0:
        return []
    breaks = np.flatnonzero(np.diff(ascending) != 1)
    starts = ascending[np.r_[0, breaks + 1]]
    stops = ascending[np.r_[breaks, len(ascending) - 1]] + 1
    return np.stack([starts, stops], axis=1).tolist()


# --- checks, of a file as of a new split --------------------------------------------------------


def check(split: Split, task: Task, labels: TrainLabels) -> None:
    """Raise a SplitError unless the split is what the task says about these labels."""
    known = known_classes(task, labels.num_classes)
    if split.known != known:
        raise SplitError(f"has the known classes {list(split.known)}, expected {list(known)}")
    num_images = len(labels.values)
    outside = split.labeled[(split.labeled < 0) | (split.labeled >= num_images)]
    if len(outside):
        raise SplitError(f"labels image {outside[0]}, the training part has 0..{num_images - 1}")
    overlap = np.intersect1d(split.labeled, split.unlabeled)
    if len(overlap):
        raise SplitError(
            f"has {len(overlap)} image(s) both labeled and unlabeled, expected none; "
            f"the first is {overlap[0]}"
        )
    classes = relabel(labels.values, known)
    _check_labeled(split, task, labels, classes)
    _check_pool(split, task, labels, classes)


def _check_labeled(split: Split, task: Task, labels: TrainLabels, classes: np.ndarray) -> None:
    chosen = classes[split.labeled]
    strangers = split.labeled[(chosen < 0) | (chosen >= split.num_known)]
    if len(strangers):
        raise SplitError(
            f"labels image {strangers[0]} of class {labels.values[strangers[0]]}, "
            "expected known classes only"
        )
    counts = np.bincount(chosen, minlength=split.num_known)
    missing = [split.known[c] for c in np.flatnonzero(counts == 0)]
    if missing:
        raise SplitError(
            f"has no labeled image of the known class(es) {missing}, expected some of each"
        )
    per_class = task.labels_per_class
    if per_class is None:
        if not np.array_equal(split.labeled, np.arange(labels.labeled_count or 0)):
            raise SplitError(
                f"does not label the first {labels.labeled_count} images and only those"
            )
        return
    if len(chosen) != per_class * split.num_known:
        raise SplitError(
            f"lists {len(chosen)} labeled images, "
            f"expected {per_class * split.num_known} ({split.num_known} classes x {per_class})"
        )
    for c in np.flatnonzero(counts != per_class):
        raise SplitError(
            f"labels {counts[c]} images of class {split.known[c]}, expected {per_class}"
        )
    if split.labeled_source == "drawn" and len(np.unique(split.labeled)) != len(chosen):
        raise SplitError("labels an image twice, expected draws without replacement")


def _check_pool(split: Split, task: Task, labels: TrainLabels, classes: np.ndarray) -> None:
    if task.pool is None:
        expected = len(classes) - len(np.unique(split.labeled))
        if len(split.unlabeled) != expected:
            raise SplitError(
                f"has {len(split.unlabeled)} unlabeled images, expected {expected} "
                "(all that are not labeled)"
            )
        return
    num_unknown = labels.num_classes - split.num_known
    per_known, per_unknown = pool_counts(task.pool, split.num_known, num_unknown)
    expected_counts = np.repeat([per_known, per_unknown], [split.num_known, num_unknown])
    counts = np.bincount(classes[split.unlabeled], minlength=labels.num_classes)
    if not np.array_equal(counts, expected_counts):
        raise SplitError(
            f"has {len(split.unlabeled)} unlabeled images, expected {expected_counts.sum()} "
            f"({per_known} of every known class, {per_unknown} of every unknown one)"
        )
