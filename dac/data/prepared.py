"""The prepared format: what `prepare` writes and every later stage reads.

`<root>/prepared/<set>/` holds per part `<part>.npy` (uint8, N x 3 x H x W, can be memory-mapped),
`<part>_labels.npy` (int64 original class ids, -1 where unknown) and, for sets made of picture
files, `<part>_files.json` (a list of names; bytes that are not UTF-8 as Python's surrogateescape).
`meta.json` describes them: a folder without it counts as empty. Its format is 1, and 2 for sets
with file names. Written by `dac/data/prepared_writer.py`.
"""

import json
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from dac.config import Data
from dac.io.errors import UserError, reason, remedy
from dac.io.files import digest, read_json

PartName = Literal["train", "test", "dev"]
FORMAT, FORMAT_WITH_FILES = 1, 2  # sets with file names once had them in `<part>_files.txt`
HASHED_UP_TO = (
    512 << 20
)  # bytes; larger files are checked by size: reading 62 GB per run is too much


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _FileMeta(_Strict):
    bytes: int
    sha256: str


class _PartMeta(_Strict):
    count: int
    side: int
    images: _FileMeta
    labels: _FileMeta
    files: _FileMeta | None


class _Meta(_Strict):
    format: Literal[1, 2]
    name: str
    classes: list[str]
    labeled_count: int | None
    recipe: dict[str, Any]
    """Settings and source digests; another recipe means preparing again."""
    parts: dict[PartName, _PartMeta]


@dataclass(frozen=True)
class Part:
    images: np.ndarray  # N x 3 x H x W uint8; a memory map where the file is large
    labels: np.ndarray  # N int64


@dataclass(frozen=True)
class Prepared:
    name: str
    folder: Path
    classes: tuple[str, ...]
    labeled_count: int | None
    """Where set, the first rows of train are the labeled images and the rest is the pool."""
    meta: dict[str, Any]
    arriving: Path
    """Files that wait here belong to the set as well (`dac/data/prepared_writer.py`)."""

    def part(self, name: PartName) -> Part:
        """Return images and labels of one part, after checking their files against meta.json."""
        meta = self._part_meta(name)
        images = self._array(f"{name}.npy", meta.images)
        self._check(images, f"{name}.npy", (meta.count, 3, meta.side, meta.side), "uint8")
        return Part(images, self.labels(name))

    def labels(self, name: PartName) -> np.ndarray:
        """Return the labels alone; a split needs no images."""
        meta = self._part_meta(name)
        labels = self._array(f"{name}_labels.npy", meta.labels)
        self._check(labels, f"{name}_labels.npy", (meta.count,), "int64")
        return labels

    def labels_hash(self, name: PartName) -> str:
        return self._part_meta(name).labels.sha256

    def files(self, name: PartName) -> tuple[str, ...]:
        """Return the file names of the images, row by row; empty for sets not made of files."""
        meta = self._part_meta(name)
        if meta.files is None:
            return ()
        path = self._verified(f"{name}_files.json", meta.files)
        try:
            names = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise self._unreadable(path, error) from error
        if not isinstance(names, list) or len(names) != meta.count:
            count = len(names) if isinstance(names, list) else "no list of"
            raise self._damaged(path, f"has {count} names, expected {meta.count}, one per image")
        return tuple(names)

    def verify(self) -> None:
        """Check every file of every part; a UserError names the first damaged one."""
        for name in _Meta.model_validate(self.meta).parts:
            self.part(name)
            self.files(name)

    def _part_meta(self, name: PartName) -> _PartMeta:
        parts = _Meta.model_validate(self.meta).parts
        if name not in parts:
            raise UserError(f"data set {self.name} has no part {name!r}; it has {', '.join(parts)}")
        return parts[name]

    def _verified(self, file_name: str, meta: _FileMeta) -> Path:
        path = self.folder / file_name
        try:
            if (self.arriving / file_name).exists():
                path = self.arriving / file_name
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise self._damaged(path, "is a folder, expected a file", "move it away and run")
            if status.st_size != meta.bytes:
                raise self._damaged(path, f"holds {status.st_size} bytes, expected {meta.bytes}")
            is_hashed = status.st_size <= HASHED_UP_TO
            if is_hashed and _digest_once(path, status.st_mtime_ns) != meta.sha256:
                raise self._damaged(path, "does not have the sha256 in meta.json")
        except FileNotFoundError:
            raise self._damaged(path, "is missing") from None
        except OSError as error:
            raise self._unreadable(path, error) from error
        return path

    def _array(self, file_name: str, meta: _FileMeta) -> np.ndarray:
        path = self._verified(file_name, meta)
        try:
            array: np.ndarray = np.load(path, mmap_mode="r" if meta.bytes > HASHED_UP_TO else None)
        except (OSError, ValueError, EOFError) as error:
            raise self._unreadable(path, error) from error
        return array

    def _check(self, array: np.ndarray, file_name: str, shape: tuple[int, ...], kind: str) -> None:
        if array.shape != shape or array.dtype != kind:
            found = f"is {array.dtype} {array.shape}, expected {kind} {shape}"
            raise self._damaged(self.folder / file_name, found)

    def _unreadable(self, path: Path, error: Exception) -> UserError:
        again = command(self.folder.parents[1], self.name)
        step = remedy(error, f"run `{again}` again")
        return UserError(f"{path} cannot be read ({reason(error)}); {step}")

    def _damaged(self, path: Path, what: str, step: str = "run") -> UserError:
        again = command(self.folder.parents[1], self.name)
        return UserError(f"{path} {what}; {step} `{again}` again")


def load(root: Path, name: str) -> Prepared:
    """Return the prepared set `name` below `root`; parts are opened and checked on request."""
    folder = folder_of(root, name)
    path = folder / "meta.json"
    with suppress(OSError):  # then read_json says why it cannot be read
        if not path.exists():
            raise UserError(
                f"data set {name} is not prepared ({path} does not exist); "
                f"run `{command(root, name)}`"
            )
        if not path.is_file():  # reading a pipe would wait forever
            raise UserError(
                f"{path} is a folder or a special file, expected a file; move it away and "
                f"run `{command(root, name)}`"
            )
    raw = read_json(path, "description of the prepared data")
    try:
        meta = _Meta.model_validate(raw)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "its top level"
        raise UserError(
            f"{path} is not a description of prepared data ({where}: {fault['msg']}); "
            f"delete it and run `{command(root, name)}`"
        ) from None
    if meta.format != format_of(part.files is not None for part in meta.parts.values()):
        raise UserError(
            f"{path} has the format {meta.format}, of another version of dac; "
            f"run `{command(root, name)}` to prepare {name} again"
        )
    if meta.name != name:
        raise UserError(f"{path} describes {meta.name!r}, expected {name!r}; was the folder moved?")
    return Prepared(
        name, folder, tuple(meta.classes), meta.labeled_count, raw, arriving_of(folder, path)
    )


def format_of(parts_have_files: Iterable[bool]) -> int:
    return FORMAT_WITH_FILES if any(parts_have_files) else FORMAT


def folder_of(root: Path, name: str) -> Path:
    return root / "prepared" / name


def arriving_of(folder: Path, meta: Path) -> Path:
    """Where a complete set waits to be moved into `folder`; `meta` is its meta.json."""
    return folder / f".arriving-{digest(meta)[:16]}"


def command(root: Path, name: str) -> str:
    pictures = " --pictures FOLDER" if name == "folder" else ""
    return f"python -m dac.prepare --data {name} --root {root}{pictures}"


@cache
def _digest_once(path: Path, modified: int) -> str:
    return digest(path)


def check_sides(found: Prepared, asked: Data) -> None:
    """Refuse images that were prepared for another `side` or `size`."""
    made = {name: found.meta["recipe"].get(name) for name in ("side", "size")}
    wanted = {"side": asked.side, "size": asked.size}
    if made == wanted:
        return
    sides = [", ".join(f"{name} {value}" for name, value in one.items()) for one in (made, wanted)]
    option = " --pictures FOLDER" if found.name == "folder" else ""
    raise UserError(
        f"{found.folder} was prepared with {sides[0]}, and the parameters ask for {sides[1]}; "
        f"run `python -m dac.prepare --data {found.name}{option}` again"
    )
