"""Draw which training images are labeled and which form the unlabeled pool.

With NumPy's legacy generator, exactly as the release does (semilearn/datasets/utils.py), so equal
seeds give the same labeled images on its tasks.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from dac.config import LabeledList, Task
from dac.config.tasks import pool_counts
from dac.data.classes import known_classes, relabel
from dac.data.prepared import Prepared
from dac.data.split_check import Source, Split, SplitError, TrainLabels, check
from dac.data.split_file import content
from dac.io import files
from dac.io.errors import UserError
from dac.io.progress import say
from dac.io.text_table import text_table

TAKEN = -2  # a label that no class has: the image is already used


def make(
    task_name: str,
    task: Task,
    seed: int,
    labels: TrainLabels,
    published: np.ndarray | None = None,
) -> Split:
    """Return the split of a task and seed; `published` has the indices of a published list."""
    known = known_classes(task, labels.num_classes)
    try:
        labeled, unlabeled, source = _choose(task, seed, labels, known, published)
        split = Split(
            task=task_name,
            seed=seed,
            data=task.data,
            labels_hash=labels.hash,
            known=known,
            labeled=labeled.astype(np.int64),
            unlabeled=np.sort(unlabeled).astype(np.int64),
            labeled_source=source,
            hash="",
        )
        check(split, task, labels)
    except SplitError as fault:
        raise UserError(
            f"the split of {task.data} for {task_name} seed {seed} {fault}; "
            "correct the task in params.yaml, or correct the data and prepare them again"
        ) from None
    return replace(split, hash=files.canonical_hash(content(split)))


def _choose(
    task: Task,
    seed: int,
    labels: TrainLabels,
    known: Sequence[int],
    published: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, Source]:
    """Return labeled indices, unlabeled indices and the source of the labeled ones."""
    classes = relabel(labels.values, known)
    everything = np.arange(len(classes))
    num_known, num_unknown = len(known), labels.num_classes - len(known)
    count = task.labels_per_class
    if count is None:
        first = labels.labeled_count or 0
        return everything[:first], everything[first:], "labeled part"
    if published is not None:
        return published, np.setdiff1d(everything, published), "published list"

    rng = np.random.RandomState(seed)  # the release seeds NumPy's global generator and draws first
    if task.pool is None:
        labeled = np.concatenate(_draw(rng, classes, [count] * num_known))
        return labeled, np.setdiff1d(everything, labeled), "drawn"
    per_known, per_unknown = pool_counts(task.pool, num_known, num_unknown)
    if task.pool.draw is None:  # Fig. 11: the labels and the pool of a known class are one draw
        drawn = _draw(rng, classes, [count + per_known] * num_known + [per_unknown] * num_unknown)
        labeled = np.concatenate([indices[:count] for indices in drawn[:num_known]])
        return labeled, np.setdiff1d(np.concatenate(drawn), labeled), "drawn"
    # Fig. 2: the labeled images of the task without a pool, then a subset of the rest. The subset's
    # generator is seeded by (seed, draw): neither the labels' stream nor another draw's.
    labeled = np.concatenate(_draw(rng, classes, [count] * num_known))
    classes[labeled] = TAKEN
    subset_rng = np.random.RandomState([seed, task.pool.draw])
    counts = [per_known] * num_known + [per_unknown] * num_unknown
    return labeled, np.concatenate(_draw(subset_rng, classes, counts)), "drawn"


def _draw(
    rng: np.random.RandomState, classes: np.ndarray, counts: Sequence[int]
) -> list[np.ndarray]:
    """Draw `counts[c]` different images of class c, class by class in relabeled order."""
    drawn = []
    for c, count in enumerate(counts):
        candidates = np.flatnonzero(classes == c)
        if count > len(candidates):
            raise SplitError(
                f"needs {count} images of class {c} (relabeled), but {len(candidates)} are left"
            )
        drawn.append(rng.choice(candidates, count, replace=False))
    return drawn


# --- published lists --------------------------------------------------------------------------


def match_published(listed: str, names: Sequence[str], labels: TrainLabels) -> np.ndarray:
    """Return the indices of the images named by a list of `path label` lines.

    The ImageNet-30 lists were drawn with replacement: 260 lines are 250 files. Duplicates are kept.
    """
    index_of = {PurePosixPath(name).name: index for index, name in enumerate(names)}
    indices = []
    for number, line in enumerate(listed.splitlines(), start=1):
        path, _, label = line.rpartition(" ")
        index = index_of.get(PurePosixPath(path).name)
        if index is None:
            raise UserError(
                f"line {number} of the published labeled list names {path!r}, which is not among "
                f"the {len(names)} training images; complete the data set and prepare it again"
            )
        if str(labels.values[index]) != label:
            raise UserError(
                f"line {number} of the published labeled list says class {label} for {path!r}, "
                f"but the prepared data say {labels.values[index]}; prepare the data set again"
            )
        indices.append(index)
    return np.array(indices, dtype=np.int64)


def read_published(
    folder: Path, wanted: LabeledList, data: Prepared, labels: TrainLabels
) -> np.ndarray | None:
    """Return the verified indices of the published list; None if the raw folder has none."""
    path = folder / wanted.path
    if not path.is_file():
        say(
            f"{path} does not exist: labeled images are drawn instead of the published ones. "
            "To use those, put the list there (see `download`) before making the split"
        )
        return None
    found = files.digest(path, "md5")
    if found != wanted.md5:
        raise UserError(
            f"{path} has md5 {found}, expected {wanted.md5}: it is not the published list; "
            "download it again, or remove it to draw labeled images instead"
        )
    return match_published(path.read_text(), data.files("train"), labels)


def describe(split: Split, labels: np.ndarray) -> str:
    """Return counts and overlaps as a table. `labels`: original ids of the train part."""
    classes = relabel(labels, split.known)
    parts = {"labeled": split.labeled, "unlabeled": split.unlabeled}
    rows = [["", "images", "distinct", "known", "unknown", "no label", *(f"in {p}" for p in parts)]]
    for name, indices in parts.items():
        chosen = classes[indices]
        num_unknown, num_without = (chosen >= split.num_known).sum(), (chosen < 0).sum()
        counts = [len(chosen), len(np.unique(indices)), len(chosen) - num_unknown - num_without]
        counts += [num_unknown, num_without]
        counts += [len(np.intersect1d(indices, other)) for other in parts.values()]
        rows.append([name, *(f"{count:,}" for count in counts)])
    return (
        f"{split.task} seed {split.seed}: {split.num_known} known classes of {split.data}, "
        f"labeled images: {split.labeled_source}, hash {split.hash[:12]}\n"
        + text_table(rows, right=True)
    )
