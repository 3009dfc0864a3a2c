"""Unpacks .tar, .tar.gz and .zip without trusting them.

Every member is checked before anything is written: regular files and folders only, no absolute
names, no `..`, no name twice, no more bytes than the disk has. Nothing of a member but its name
and its bytes is used, so owners, set-uid bits and times never come out of an archive.
"""

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from dac.data.disk import free_bytes, write_all, writing
from dac.errors import UserError
from dac.files import CHUNK
from dac.logs import Progress

Opened = tarfile.TarFile | zipfile.ZipFile
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError)
# zipfile raises RuntimeError for encrypted members, gzip an OSError for a bad header
AGAIN = "nothing was unpacked. Delete the archive and fetch it from a source you trust"


@dataclass(frozen=True)
class Member:
    name: str
    size: int
    kind: str
    """`file`, `folder`, or what makes it unwelcome."""
    open: Callable[[], IO[bytes] | None]


def extract(archive: Path, folder: Path) -> None:
    """Unpack below `folder`. Damage shows only while reading, so give a folder beside."""
    if not is_archive(archive):
        raise UserError(
            f"{archive} is neither a tar nor a zip archive; delete it and fetch it again"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    total = check(archive, free_bytes(folder))
    progress, done = Progress(f"extract {archive.name}", total, unit="bytes"), 0
    with _opened(archive) as opened:
        for member in _members(opened):
            _unpack(member, folder / _checked(member, archive), archive)
            done += member.size
            progress.update(done)


def is_archive(path: Path) -> bool:
    return tarfile.is_tarfile(path) or zipfile.is_zipfile(path)


def check(archive: Path, limit: int) -> int:
    """Refuse the whole archive if one member is unwelcome; the total size of its files."""
    total = 0
    kinds: dict[PurePosixPath, str] = {}
    with _opened(archive) as opened:
        for member in _members(opened):
            path = _checked(member, archive)
            if path in kinds and not (kinds[path] == member.kind == "folder"):
                raise _refused(archive, member.name, "stands twice")
            kinds[path] = member.kind
            total += member.size
            if total > limit:  # asked here, before an endless member is read through
                raise UserError(
                    f"{archive} unpacks to more than the {limit / 1e6:,.1f} MB that are free; "
                    "free some space or give another --root"
                )
    for path in kinds:
        if any(kinds.get(parent) == "file" for parent in path.parents):
            raise _refused(archive, str(path), "lies below a file")
    return total


def _checked(member: Member, archive: Path) -> PurePosixPath:
    """The member's path below the target folder."""
    path = PurePosixPath(member.name)  # drops `.` parts and doubled slashes
    if path.is_absolute() or "\\" in member.name or "\0" in member.name:
        raise _refused(archive, member.name, "is not a relative name")
    if ".." in path.parts:
        raise _refused(archive, member.name, "leads out of its folder")
    if member.kind not in ("file", "folder"):
        raise _refused(archive, member.name, f"is a {member.kind}, expected files and folders only")
    if member.size < 0 or (member.kind == "file" and not path.parts):
        raise _refused(archive, member.name, f"has no name or a size of {member.size}")
    return path


def _refused(archive: Path, name: str, why: str) -> UserError:
    return UserError(f"{archive}: member {name!r} {why}; {AGAIN}")


def _unpack(member: Member, target: Path, archive: Path) -> None:
    with writing(target):
        (target if member.kind == "folder" else target.parent).mkdir(parents=True, exist_ok=True)
    if member.kind == "folder":
        return
    if target.exists():
        raise UserError(f"{archive} holds {member.name}, as does another archive of this set")
    source = member.open()
    assert source is not None, f"{member.name} was checked to be a regular file"
    with writing(target):
        file = target.open("xb", buffering=0)
    with file, source:
        while chunk := source.read(CHUNK):
            write_all(file, chunk, target)


@contextmanager
def _opened(archive: Path) -> Iterator[Opened]:
    try:
        is_zip = zipfile.is_zipfile(archive) and not tarfile.is_tarfile(archive)
        with zipfile.ZipFile(archive) if is_zip else tarfile.open(archive) as opened:
            yield opened
    except DAMAGED as error:
        raise UserError(
            f"{archive} is damaged or cut short ({error}); delete it and fetch it again"
        ) from error


def _members(opened: Opened) -> Iterator[Member]:
    if isinstance(opened, zipfile.ZipFile):
        for info in opened.infolist():
            yield Member(info.filename, info.file_size, _zip_kind(info), partial(opened.open, info))
    else:
        for entry in opened:
            yield Member(
                entry.name, entry.size, _tar_kind(entry), partial(opened.extractfile, entry)
            )


def _tar_kind(entry: tarfile.TarInfo) -> str:
    if entry.issym() or entry.islnk():
        return "link"
    if entry.isdir():
        return "folder"
    if entry.isreg():
        return "sparse file" if entry.issparse() else "file"
    return "device or pipe"


def _zip_kind(info: zipfile.ZipInfo) -> str:
    mode = stat.S_IFMT(info.external_attr >> 16)
    if stat.S_ISLNK(mode):
        return "link"
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "device or pipe"
    return "folder" if info.is_dir() else "file"
