"""Write the prepared format (see `dac/data/prepared.py`): every part as a stream, meta.json last.

An interrupted set has no meta.json: nothing reads it, and the next attempt starts over.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dac.data.prepared import PartName, folder_of, load
from dac.io.disk import check_space, writing
from dac.io.errors import UserError
from dac.io.files import atomic, locked, write_json
from dac.io.progress import Progress

FORMAT = 1


@dataclass(frozen=True)
class NewPart:
    """A part to be written; its images come in blocks, so that no part must fit in memory."""

    labels: np.ndarray
    side: int
    blocks: Iterable[np.ndarray]
    """n x 3 x side x side uint8, any n, in row order."""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewSet:
    classes: tuple[str, ...]
    parts: dict[PartName, NewPart]
    labeled_count: int | None = None
    faults: list[str] = field(default_factory=list)
    """Filled while blocks are read: one line per picture that could not be decoded."""


@contextmanager
def held(root: Path, name: str) -> Iterator[Path]:
    """Lock the set's folder, so that no second process prepares it at the same time."""
    folder = folder_of(root, name)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "prepared data in"):
        yield folder


def is_finished(root: Path, name: str, recipe: dict[str, Any] | None) -> bool:
    """Whether the set exists, made by this recipe (None: any); a UserError if it is damaged."""
    if not (folder_of(root, name) / "meta.json").exists():
        return False
    found = load(root, name)
    if recipe is not None and found.meta["recipe"] != recipe:
        return False
    found.verify()
    return True


def clear(folder: Path) -> None:
    """Remove what an earlier attempt left; meta.json first, so that it never looks finished."""
    (folder / "meta.json").unlink(missing_ok=True)
    for pattern in (".*.partial", "*.npy", "*_files.txt"):
        for path in folder.glob(pattern):
            path.unlink()


def write(folder: Path, name: str, new: NewSet, recipe: dict[str, Any]) -> None:
    """Write every part, then meta.json. After an error, the folder is left empty."""
    clear(folder)
    check_space(folder, sum(len(part.labels) * 3 * part.side**2 for part in new.parts.values()))
    try:
        parts = {part: _write_part(folder, part, source) for part, source in new.parts.items()}
        if new.faults:
            raise UserError(_listed(new.faults))
        meta = {"format": FORMAT, "name": name, "classes": list(new.classes), "parts": parts}
        meta |= {"labeled_count": new.labeled_count, "recipe": recipe}
        write_json(folder / "meta.json", meta)
    except BaseException:
        clear(folder)
        raise


def _write_part(folder: Path, name: PartName, part: NewPart) -> dict[str, Any]:
    with atomic(folder / f"{name}_labels.npy") as file:
        sink = _Sink(file)
        np.lib.format.write_array(sink, part.labels.astype(np.int64))
        labels = sink.meta()
    files = None
    if part.files:
        with atomic(folder / f"{name}_files.txt") as file:
            sink = _Sink(file)
            sink.write("".join(f"{line}\n" for line in part.files).encode())
            files = sink.meta()
    images = _write_images(
        folder / f"{name}.npy", part, Progress(f"prepare {name}", len(part.labels))
    )
    return {
        "count": len(part.labels),
        "side": part.side,
        "images": images,
        "labels": labels,
        "files": files,
    }


def _write_images(path: Path, part: NewPart, progress: Progress) -> dict[str, Any]:
    # Plain writes, not a memory map: on a full disk a map ends in SIGBUS instead of an error.
    shape = (len(part.labels), 3, part.side, part.side)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    rows = 0
    with atomic(path) as file:
        sink = _Sink(file)
        np.lib.format.write_array_header_1_0(sink, header)
        for block in part.blocks:
            assert block.dtype == np.uint8 and block.shape[1:] == shape[1:], block.shape
            sink.write(np.ascontiguousarray(block).data)
            rows += len(block)
            progress.update(rows)
        assert rows == shape[0], f"{rows} images for {shape[0]} labels"
        return sink.meta()


class _Sink:
    """Counts and hashes the bytes that it passes on to `file`."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.hash, self.bytes = file, hashlib.sha256(), 0

    def write(self, content: bytes | memoryview) -> int:
        self.hash.update(content)
        self.bytes += memoryview(content).nbytes
        return self.file.write(content)

    def meta(self) -> dict[str, Any]:
        return {"bytes": self.bytes, "sha256": self.hash.hexdigest()}


def _listed(faults: list[str], shown: int = 10) -> str:
    lines = [f"  {fault}" for fault in faults[:shown]]
    if len(faults) > shown:
        lines.append(f"  and {len(faults) - shown} more")
    return (
        f"{len(faults)} file(s) are not readable pictures; "
        "replace or remove them, then run the same command again:\n" + "\n".join(lines)
    )
