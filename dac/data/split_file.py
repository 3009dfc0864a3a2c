"""The split file: a small JSON that is checked completely whenever it is read.

It names the labels it was made from and contains a hash of everything else in it, which every run
records. A run on a split that is damaged, edited or made from other data stops before training.
"""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from dac.config import Section, Task
from dac.data import prepared
from dac.data.split_check import Source, Split, SplitError, TrainLabels, check
from dac.io import files
from dac.io.errors import UserError

FORMAT = 1


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
    """Return the content of the file without its hash."""
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
    """Write one key per line: readable, and 20,000 ranges do not become 80,000 lines."""
    entries = content(split) | {"hash": split.hash}
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(entries[key])}" for key in entries)
    files.write_text(path, f"{{\n{lines}\n}}\n")


def save_or_keep(split: Split, path: Path) -> bool:
    """Save unless the file already exists. A file with other content is never replaced."""
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
        f"Delete {path} to make it again (finished runs stay tied to the old one by its hash)"
    )


# --- reading ----------------------------------------------------------------------------------


def load(path: Path, task_name: str, task: Task, seed: int, labels: TrainLabels) -> Split:
    """Return the checked split of this task, seed and data; a UserError says what is wrong."""
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
    """Return the file, if it is complete and unchanged."""
    if not isinstance(found, dict):
        raise SplitError(f"contains a {type(found).__name__}, expected a mapping")
    if found.get("format") != FORMAT:
        raise SplitError(f"has the format {found.get('format')!r}, expected {FORMAT}")
    computed = files.canonical_hash({key: found[key] for key in found if key != "hash"})
    if found.get("hash") != computed:
        raise SplitError(
            f"was edited: its hash is {found.get('hash')!r}, its content has {computed!r}"
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
            f"but the prepared ones have {labels.hash[:12]}...)"
        )


def _as_split(file: _File, num_images: int) -> Split:
    edges = [edge for edges in file.unlabeled for edge in edges]
    if edges != sorted(set(edges)) or (edges and (edges[0] < 0 or edges[-1] > num_images)):
        raise SplitError(
            f"has unlabeled ranges that overlap or exceed the {num_images} training images"
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


def train_labels(data: prepared.Prepared) -> TrainLabels:
    values, num_classes = data.labels("train"), len(data.classes)
    if data.labeled_count:  # the test part of own pictures may have classes without labels
        num_classes = int(values[: data.labeled_count].max()) + 1
    return TrainLabels(values, data.labels_hash("train"), num_classes, data.labeled_count)


def default_path(root: Path, task_name: str, seed: int) -> Path:
    return root / "splits" / task_name / f"seed{seed}.json"
