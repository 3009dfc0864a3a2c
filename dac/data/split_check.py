"""What a split is, and whether it matches its task and the labels."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dac.config import Task
from dac.config.tasks import pool_counts
from dac.data.classes import known_classes, relabel

Source = Literal["drawn", "published list", "labeled part"]


@dataclass(frozen=True)
class TrainLabels:
    """What a split is made from: the labels of the train part, in file order."""

    values: np.ndarray  # original ids, -1 where no label is known
    hash: str
    num_classes: int
    labeled_count: int | None = None  # sets with their own labels: the first rows are labeled


@dataclass(frozen=True)
class Split:
    """Indices into the train part. The pool has no labeled images; callers add them if needed."""

    task: str
    seed: int
    data: str
    labels_hash: str
    known: tuple[int, ...]  # original ids, ascending
    labeled: np.ndarray  # in draw order, class by class; the published lists repeat some images
    unlabeled: np.ndarray  # ascending
    labeled_source: Source
    hash: str

    @property
    def num_known(self) -> int:
        return len(self.known)


class SplitError(Exception):
    """What is wrong with a split; the message continues "the split ..."."""


def check(split: Split, task: Task, labels: TrainLabels) -> None:
    """Raise a SplitError unless the split matches the task and these labels."""
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
