"""Stage `split`: which training images are labeled and which form the unlabeled pool.

    python -m dac.split --task cifar-50-500 --seed 1

Drawn with NumPy's legacy generator exactly as the release draws (semilearn/datasets/utils.py), so
equal seeds give its labeled images. Made once, checked at every reading (split_file.py).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from dac import files, params
from dac.data import prepared
from dac.errors import UserError, exit_code_of
from dac.logs import say
from dac.settings import LabeledList, Task
from dac.split_file import (
    Source,
    Split,
    SplitError,
    TrainLabels,
    check,
    content,
    load,
    save,
    save_or_keep,
)
from dac.tasks import known_classes, pool_counts, relabel

__all__ = [
    "Split",
    "TrainLabels",
    "default_path",
    "describe",
    "load",
    "make",
    "save",
    "train_labels",
]

TAKEN = -2  # a label no class has: the image is used already


def make(
    task_name: str,
    task: Task,
    seed: int,
    labels: TrainLabels,
    published: np.ndarray | None = None,
) -> Split:
    """The split of a task and seed; `published` holds the indices of a published labeled list."""
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
            "correct the task in params.yaml, or the data and prepare them again"
        ) from None
    return replace(split, hash=files.canonical_hash(content(split)))


def train_labels(data: prepared.Prepared) -> TrainLabels:
    values, num_classes = data.labels("train"), len(data.classes)
    if data.labeled_count:  # the test part of own pictures may show classes nobody labeled
        num_classes = int(values[: data.labeled_count].max()) + 1
    return TrainLabels(values, data.labels_hash("train"), num_classes, data.labeled_count)


def default_path(root: Path, task_name: str, seed: int) -> Path:
    return root / "splits" / task_name / f"seed{seed}.json"


# --- drawing ----------------------------------------------------------------------------------


def _choose(
    task: Task,
    seed: int,
    labels: TrainLabels,
    known: Sequence[int],
    published: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, Source]:
    """Labeled indices, unlabeled indices and where the labeled ones come from."""
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
    """`counts[c]` different images of class c, class after class in relabeled order."""
    drawn = []
    for c, count in enumerate(counts):
        candidates = np.flatnonzero(classes == c)
        if count > len(candidates):
            raise SplitError(
                f"needs {count} images of class {c} (relabeled), {len(candidates)} are left"
            )
        drawn.append(rng.choice(candidates, count, replace=False))
    return drawn


# --- published lists --------------------------------------------------------------------------


def match_published(listed: str, names: Sequence[str], labels: TrainLabels) -> np.ndarray:
    """Indices of the images named by a list of `path label` lines.

    The ImageNet-30 lists were drawn with replacement: 260 lines are 250 files. Repetitions stay.
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
                f"the prepared data say {labels.values[index]}; prepare the data set again"
            )
        indices.append(index)
    return np.array(indices, dtype=np.int64)


def _read_published(
    folder: Path, wanted: LabeledList, data: prepared.Prepared, labels: TrainLabels
) -> np.ndarray | None:
    """The published list of the raw folder, verified; None where there is none."""
    path = folder / wanted.path
    if not path.is_file():
        say(
            f"{path} does not exist: the labeled images are drawn, not the published ones. "
            "For those put the list there (see `download`) before making the split"
        )
        return None
    found = files.digest(path, "md5")
    if found != wanted.md5:
        raise UserError(
            f"{path} has md5 {found}, expected {wanted.md5}: it is not the published list; "
            "fetch it again, or remove it to draw labeled images instead"
        )
    return match_published(path.read_text(), data.files("train"), labels)


# --- the stage --------------------------------------------------------------------------------


def describe(split: Split, labels: np.ndarray) -> str:
    """Counts and overlaps, to be looked at. `labels`: original ids of the train part."""
    classes = relabel(labels, split.known)
    parts = {"labeled": split.labeled, "unlabeled": split.unlabeled}
    header = ["images", "distinct", "known", "unknown", "no label", "in labeled", "in unlabeled"]
    lines = [
        f"{split.task} seed {split.seed}: {split.num_known} known classes of {split.data}, "
        f"labeled images: {split.labeled_source}, hash {split.hash[:12]}",
        " " * 9 + "".join(f"{title:>13}" for title in header),
    ]
    for name, indices in parts.items():
        chosen = classes[indices]
        num_unknown, num_without = (chosen >= split.num_known).sum(), (chosen < 0).sum()
        counts = [len(chosen), len(np.unique(indices)), len(chosen) - num_unknown - num_without]
        counts += [num_unknown, num_without]
        counts += [len(np.intersect1d(indices, other)) for other in parts.values()]
        lines.append(f"{name:9}" + "".join(f"{count:13,}" for count in counts))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.split", description="Make one split.")
    parser.add_argument("--task", required=True, help="a name under `tasks:` of params.yaml")
    parser.add_argument("--seed", required=True, type=int)
    parser.add_argument("--params", type=Path, default=params.DEFAULT_PATH)
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of all data")
    parser.add_argument("--out", type=Path, help="default: ROOT/splits/TASK/seedSEED.json")
    given = parser.parse_args()

    task = params.load(given.params).task(given.task)
    params.check_seed(given.seed)
    data = prepared.load(given.root, task.data)
    labels = train_labels(data)
    published = None
    if task.labeled_list is not None:
        raw = given.root / "raw" / task.data
        published = _read_published(raw, task.labeled_list, data, labels)
    split = make(given.task, task, given.seed, labels, published)
    path = given.out or default_path(given.root, given.task, given.seed)
    say(f"wrote {path}" if save_or_keep(split, path) else f"{path} is up to date")
    print(describe(split, labels.values))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
