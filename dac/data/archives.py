"""Unpack .tar (also compressed) and .zip archives without trusting them.

`tarfile.data_filter` checks every member, of zip files too, before anything is written. Whatever
it would repair, or allow beyond plain files and folders, is refused, as are duplicate names and
more bytes than the disk has free. Only names and bytes come out: no owners, modes or times.
"""

import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from dac.io.disk import free_bytes, write_all, writing
from dac.io.errors import UserError
from dac.io.files import CHUNK
from dac.io.progress import MEGABYTES, Progress

Opened = tarfile.TarFile | zipfile.ZipFile
DAMAGED = (  # raised by the readers for files that are truncated, encrypted or malformed
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError),
)
NOTES = (  # long names and extended attributes, which tarfile reads into memory
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE),
)
LONGEST_NOTE = 1 << 20
LONGEST_NAME, LONGEST_PART = 1024, 255  # bytes; the second is the limit of most file systems
AGAIN = "nothing was unpacked. Delete the archive and download it from a source you trust"


class Header(tarfile.TarInfo):
    """Refuses notes of a size that only damage or malice explains."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Header":
        header = super().frombuf(buf, encoding, errors)
        if header.type in NOTES and not 0 <= header.size <= LONGEST_NOTE:
            raise tarfile.ReadError(f"{header.name!r} has a header of {header.size} bytes")
        return header


@dataclass(frozen=True)
class Member:
    header: tarfile.TarInfo
    open: Callable[[], IO[bytes] | None]


def extract(archive: Path, folder: Path) -> None:
    """Unpack into `folder`. Damage shows up only while reading, so give a temporary folder."""
    if not is_archive(archive):
        raise UserError(
            f"{archive} is neither a tar nor a zip archive; delete it and download it again"
        )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _opened(archive) as opened:
        targets = _checked(_members(opened), archive, free_bytes(folder))
        total = sum(member.header.size for member in targets.values())
        progress, done = Progress(f"extract {archive.name}", total, unit=MEGABYTES), 0
        for path, member in targets.items():
            _unpack(member, folder / path, archive)
            done += member.header.size
            progress.update(done)
        _check_end(opened)


def is_archive(path: Path) -> bool:
    return _is_tar(path) or _is_zip(path)


def _is_tar(path: Path) -> bool:
    """Like `tarfile.is_tarfile`, which fails on a compressed file that ends in its first block."""
    try:
        with _open_tar(path):
            return True
    except DAMAGED:
        return False


def _open_tar(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, tarinfo=Header)


def _is_zip(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except DAMAGED:  # a file in several parts
        return False


def _checked(members: Iterator[Member], archive: Path, limit: int) -> dict[PurePosixPath, Member]:
    """Return every member by its path; refuse the whole archive if one is not acceptable."""
    found: dict[PurePosixPath, Member] = {}
    total = 0
    for member in members:
        path = _admitted(member.header, archive)
        known = found.get(path)
        if known and not (known.header.isdir() and member.header.isdir()):
            raise _refused(archive, member.header.name, "appears twice")
        found[path] = member
        total += member.header.size
        if total > limit:  # checked here, before an endless member is read
            raise UserError(
                f"{archive} unpacks to more than the {limit / 1e6:,.1f} MB of free space; "
                "free some space or give another --root"
            )
    for path in found:
        if any(parent in found and found[parent].header.isreg() for parent in path.parents):
            raise _refused(archive, str(path), "is below a file")
    return found


def _admitted(header: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return the path of a member that the filter accepts as it is."""
    try:
        filtered = tarfile.data_filter(header, "/nowhere")
    except tarfile.FilterError as error:
        raise _refused(archive, header.name, f"is not safe ({error})") from error
    path = PurePosixPath(header.name)  # drops `.` parts and doubled slashes
    if filtered.name != header.name or "\\" in header.name or ".." in path.parts:
        raise _refused(archive, header.name, "is not a plain relative name")
    lengths = [len(os.fsencode(part)) for part in path.parts]
    if sum(lengths) > LONGEST_NAME or max(lengths, default=0) > LONGEST_PART:
        raise _refused(archive, f"{header.name[:LONGEST_PART]}...", "has too long a name")
    if not (header.isreg() or header.isdir()) or header.issparse():
        raise _refused(archive, header.name, "is neither a plain file nor a folder")
    if header.size < 0 or (header.isreg() and not path.parts):
        raise _refused(archive, header.name, f"has no name or a size of {header.size}")
    return path


def _refused(archive: Path, name: str, why: str) -> UserError:
    return UserError(f"{archive}: member {name!r} {why}; {AGAIN}")


def _unpack(member: Member, target: Path, archive: Path) -> None:
    is_folder = member.header.isdir()
    with writing(target):
        (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
    if is_folder:
        return
    if target.exists():
        raise UserError(
            f"{archive} contains {member.header.name}, as does another archive of this set"
        )
    source = member.open()
    assert source is not None, f"{member.header.name} was checked to be a regular file"
    with writing(target):
        file = target.open("xb", buffering=0)
    with file, source:
        while chunk := source.read(CHUNK):
            write_all(file, chunk, target)


def _check_end(opened: Opened) -> None:
    """Read a tar to its end: the checksum of a compressed one stands there, where tarfile stops
    before; zip files have one for every member."""
    if isinstance(opened, tarfile.TarFile) and opened.fileobj is not None:
        while opened.fileobj.read(CHUNK):
            pass


@contextmanager
def _opened(archive: Path) -> Iterator[Opened]:
    try:
        with _open_tar(archive) if _is_tar(archive) else zipfile.ZipFile(archive) as opened:
            yield opened
    except DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise UserError(
            f"{archive} is damaged or cut short ({reason}); delete it and download it again"
        ) from error


def _members(opened: Opened) -> Iterator[Member]:
    if isinstance(opened, tarfile.TarFile):
        yield from (Member(entry, partial(opened.extractfile, entry)) for entry in opened)
    else:
        yield from (Member(_as_tar(i), partial(opened.open, i)) for i in opened.infolist())


def _as_tar(info: zipfile.ZipInfo) -> tarfile.TarInfo:
    """Return the header that the same member would have in a tar file, for the filter."""
    header = tarfile.TarInfo(info.filename)
    header.size = info.file_size
    mode = stat.S_IFMT(info.external_attr >> 16)
    if info.is_dir():
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(mode):
        header.type = tarfile.SYMTYPE
    elif mode not in (0, stat.S_IFREG):
        header.type = tarfile.FIFOTYPE
    return header
