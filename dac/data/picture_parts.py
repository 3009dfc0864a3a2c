"""Turn rows (file, label) into a set whose pictures are decoded while it is written.

File names are kept relative to the part's folder with its name in front
(`one_class_train/acorn/n12267677_23294.JPEG`), as published lists write them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dac.config import Data
from dac.data.decode import Faults, decoded
from dac.data.listing import files_below, reading
from dac.data.prepared_writer import NewPart, NewSet

UNKNOWN = -1


@dataclass(frozen=True)
class Row:
    name: str
    path: Path
    label: int = UNKNOWN


def rows_below(folder: Path, name: str, label: int = UNKNOWN) -> list[Row]:
    """Return all files below `folder`, sorted by name."""
    return [Row(f"{name}/{file}", folder / file, label) for file in files_below(folder)]


def class_folders(folder: Path) -> list[str]:
    """Return the names of the folders in `folder`, sorted, without those with a leading dot."""
    with reading(folder):
        if not folder.exists():
            return []
        with os.scandir(folder) as found:
            return sorted(entry.name for entry in found if entry.name[0] != "." and entry.is_dir())


def new_set(
    classes: tuple[str, ...],
    train: list[Row],
    test: list[Row],
    data: Data,
    labeled_count: int | None = None,
) -> NewSet:
    """Training images are side x side; test images are cropped to `size` if that is smaller."""
    faults: Faults = []
    crop = data.size if data.side > data.size else None
    return NewSet(
        classes,
        {
            "train": _part(train, data.side, None, faults),
            "test": _part(test, data.side, crop, faults),
        },
        labeled_count,
        faults,
    )


def _part(rows: list[Row], side: int, crop: int | None, faults: Faults) -> NewPart:
    return NewPart(
        labels=np.array([row.label for row in rows], dtype=np.int64),
        side=crop or side,
        blocks=decoded([row.path for row in rows], side, crop, faults),
        files=tuple(row.name for row in rows),
    )
