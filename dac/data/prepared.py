"""The prepared format: what `prepare` writes and every later stage reads.

`<root>/prepared/<set>/` holds per part `<part>.npy` (uint8, N x 3 x H x W, can be memory-mapped),
`<part>_labels.npy` (int64 original class ids, -1 where unknown) and, for sets made of picture
files, `<part>_files.txt` (one name per line). `meta.json` is written last: a folder without it
counts as empty. Written by `dac/data/prepared_writer.py`.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from dac.io.errors import UserError
from dac.io.files import digest, read_json

PartName = Literal["train", "test", "dev"]
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
    format: Literal[1]
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
        meta = self._part_meta(name).files
        if meta is None:
            return ()
        return tuple(self._verified(f"{name}_files.txt", meta).read_text().splitlines())

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
        if not path.is_file():
            raise self._damaged(path, "is missing")
        size = path.stat().st_size
        if size != meta.bytes:
            raise self._damaged(path, f"holds {size} bytes, expected {meta.bytes}")
        if size <= HASHED_UP_TO and _digest_once(path, path.stat().st_mtime_ns) != meta.sha256:
            raise self._damaged(path, "does not have the sha256 in meta.json")
        return path

    def _array(self, file_name: str, meta: _FileMeta) -> np.ndarray:
        path = self._verified(file_name, meta)
        try:
            array: np.ndarray = np.load(path, mmap_mode="r" if meta.bytes > HASHED_UP_TO else None)
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(path, f"cannot be read ({error})") from error
        return array

    def _check(self, array: np.ndarray, file_name: str, shape: tuple[int, ...], kind: str) -> None:
        if array.shape != shape or array.dtype != kind:
            found = f"is {array.dtype} {array.shape}, expected {kind} {shape}"
            raise self._damaged(self.folder / file_name, found)

    def _damaged(self, path: Path, what: str) -> UserError:
        return UserError(f"{path} {what}; run `{command(self.folder.parents[1], self.name)}` again")


def load(root: Path, name: str) -> Prepared:
    """Return the prepared set `name` below `root`; parts are opened and checked on request."""
    folder = folder_of(root, name)
    path = folder / "meta.json"
    if not path.is_file():
        raise UserError(
            f"data set {name} is not prepared ({path} does not exist); run `{command(root, name)}`"
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
    if meta.name != name:
        raise UserError(f"{path} describes {meta.name!r}, expected {name!r}; was the folder moved?")
    return Prepared(name, folder, tuple(meta.classes), meta.labeled_count, raw)


def folder_of(root: Path, name: str) -> Path:
    return root / "prepared" / name


def command(root: Path, name: str) -> str:
    pictures = " --pictures FOLDER" if name == "folder" else ""
    return f"python -m dac.prepare --data {name} --root {root}{pictures}"


@cache
def _digest_once(path: Path, modified: int) -> str:
    return digest(path)
