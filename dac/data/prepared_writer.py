"""Write the prepared format (see `dac/data/prepared.py`): every part as a stream, meta.json last.

The set prepared before stays until the new one is whole, whatever happens. The new one is written
into `.set.partial/` and renamed to `.arriving-<hash of its meta.json>/`. Then its meta.json
replaces the old one in a single rename, and from that moment readers look for files there first, so
that these can be moved to their places one by one. `held` ends what a killed process began.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np

from dac.data.prepared import PartName, arriving_of, folder_of, format_of, load
from dac.io.disk import check_space, writing
from dac.io.errors import UserError
from dac.io.files import atomic, locked, read_json, refuse_special, sync_folder, write_json
from dac.io.progress import Progress, say

PARTIAL = ".set.partial"
ENDINGS = (".npy", "_labels.npy", "_files.json")


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
        with writing(folder):
            _settle(folder)
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


def write(folder: Path, name: str, new: NewSet, recipe: dict[str, Any]) -> None:
    """Write the set; after an error, what was prepared before is as it was."""
    partial, has_old = folder / PARTIAL, (folder / "meta.json").exists()
    _make_room(folder, new, has_old)
    try:
        parts = {part: _write_part(partial, part, source) for part, source in new.parts.items()}
        if new.faults:
            raise UserError(_listed(new.faults))
        format = format_of(bool(part.files) for part in new.parts.values())
        meta = {"format": format, "name": name, "classes": list(new.classes), "parts": parts}
        meta |= {"labeled_count": new.labeled_count, "recipe": recipe}
        write_json(partial / "meta.json", meta)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        if has_old:
            say(f"the set prepared before in {folder} is unchanged")
        raise
    with writing(folder):
        arriving = partial.rename(arriving_of(folder, partial / "meta.json"))
        sync_folder(folder)
        (arriving / "meta.json").replace(folder / "meta.json")  # from here on it is the new set
        sync_folder(folder)
        _settle(folder)


def _make_room(folder: Path, new: NewSet, has_old: bool) -> None:
    for path in (folder / name for name in ("meta.json", *_names(new.parts))):
        if path.is_dir():
            raise UserError(
                f"{path} is a folder, expected a file; move it away and run the same command again"
            )
        refuse_special(path)
    if not has_old:  # arrays without a description are of no use
        with writing(folder):
            _remove_all_but(set(), folder)
    try:
        check_space(folder, sum(len(part.labels) * 3 * part.side**2 for part in new.parts.values()))
    except UserError as error:
        if not has_old:
            raise
        kept = "The set prepared before stays until the new one is whole; to do without it"
        raise UserError(f"{error}. {kept}, delete {folder}") from None


def _settle(folder: Path) -> None:
    """Finish a move that was cut short, and remove what never became a set."""
    meta = folder / "meta.json"
    if meta.is_file() and (arriving := arriving_of(folder, meta)).is_dir():
        for path in arriving.iterdir():
            path.replace(folder / path.name)
        sync_folder(folder)
        _remove_all_but(_names(read_json(meta, "description")["parts"]), folder)
    for pattern in (".*.partial", ".arriving-*"):
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _names(parts: Iterable[str]) -> set[str]:
    return {f"{part}{ending}" for part in parts for ending in ENDINGS}


def _remove_all_but(kept: set[str], folder: Path) -> None:
    before = {f"{part}_files.txt" for part in get_args(PartName)}  # a former format of the names
    for name in _names(get_args(PartName)) - kept | before:
        (folder / name).unlink(missing_ok=True)


def _write_part(folder: Path, name: PartName, part: NewPart) -> dict[str, Any]:
    with atomic(folder / f"{name}_labels.npy") as file:
        sink = _Sink(file)
        np.lib.format.write_array(sink, part.labels.astype(np.int64))
        labels = sink.meta()
    files = None
    if part.files:
        assert len(part.files) == len(part.labels), f"{len(part.files)} names"
        with atomic(folder / f"{name}_files.json") as file:
            sink = _Sink(file)
            sink.write(json.dumps(part.files, indent=0).encode())  # ASCII, whatever the names
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
