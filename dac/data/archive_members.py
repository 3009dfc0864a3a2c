"""Read tar (also compressed) and zip archives as one stream of members.

Only opening, listing and reading an archive are guarded: what the readers raise there means that
the archive is damaged, while an error anywhere else is ours and stays visible.
"""

import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO

from dac.io.errors import UserError, reason
from dac.io.files import CHUNK

DAMAGED = (  # raised by the readers for files that are truncated, encrypted or malformed
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError),
)
NOTES = (  # long names and extended attributes, which tarfile reads into memory
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE),
)
LONGEST_NOTE = 1 << 20
MOST_GLOBAL_NOTES = 100  # they stay in memory; real archives have a comment or two
END_MARK = 2 * tarfile.BLOCKSIZE  # zero bytes, by POSIX; every format of GNU tar has them
LONGEST_PADDING = 1 << 20  # after the mark; a record is 10 KB, with large tape blocks 1 MB
ZIP_END = struct.Struct("<10xH10x")  # the record at the end of a zip: the number of its members
ZIP64_COUNT = 0xFFFF  # the number is in another record
BY_HAND = "unpack it yourself and give the folder that holds the files with --extracted"


class Header(tarfile.TarInfo):
    """Refuses notes that are too large to be genuine."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Header":
        header = super().frombuf(buf, encoding, errors)
        if header.type in NOTES and not 0 <= header.size <= LONGEST_NOTE:
            raise tarfile.ReadError(f"{header.name!r} has a header of {header.size} bytes")
        return header


@dataclass(frozen=True)
class Member:
    header: tarfile.TarInfo
    header_bytes: int
    """Length of the header in the archive, with all notes that belong to it."""
    open: Callable[[], IO[bytes] | None]
    archive: Path

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of a regular file."""
        with _reading(self.archive):
            source = self.open()
        assert source is not None, f"{self.header.name} was checked to be a regular file"
        with source:
            while chunk := self._read(source):
                yield chunk

    def _read(self, source: IO[bytes]) -> bytes:
        with _reading(self.archive):
            return source.read(CHUNK)


def is_archive(path: Path) -> bool:
    with _file(path) as file:
        return _open_tar(file) is not None or _is_zip(file)


@contextmanager
def members_of(archive: Path) -> Iterator[Iterator[Member]]:
    """Open an archive; its members can be listed once, and read until the block ends."""
    with _file(archive) as file:
        if tar := _open_tar(file):
            with tar:
                yield _tar_members(tar, archive)
        elif _is_zip(file):
            with _reading(archive):
                opened = zipfile.ZipFile(file)
            with opened:
                with _reading(archive):
                    count = _count_at_the_end(file)
                found = len(opened.infolist())
                if count not in (found % (1 << 16), ZIP64_COUNT):
                    what = f"its index has {found} members, its end says {count}"
                    raise damaged(archive, what)
                yield _zip_members(opened, archive)
        else:
            raise UserError(
                f"{archive} is neither a tar nor a zip archive; delete it and download it again"
            )


def _file(path: Path) -> BufferedReader:
    """Open a file and read a byte, so that no later error is about permissions or a folder."""
    try:
        file = path.open("rb")
        file.peek(1)
    except OSError as error:
        raise UserError(
            f"the archive {path} cannot be read ({reason(error)}); "
            "fix that (check its permissions) and run the same command again"
        ) from error
    return file


def _open_tar(file: BufferedReader) -> tarfile.TarFile | None:
    """Unlike `tarfile.is_tarfile`, return None for a compressed file cut in its first block."""
    try:
        return tarfile.open(fileobj=file, tarinfo=Header)
    except DAMAGED:
        return None


def _is_zip(file: BufferedReader) -> bool:
    try:
        return zipfile.is_zipfile(file)
    except DAMAGED:  # a file in several parts
        return False


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise damaged(archive, str(error) or type(error).__name__) from error


def damaged(archive: Path, why: str, otherwise: str = "") -> UserError:
    again = "delete it and download it again"
    return UserError(f"{archive} is damaged or cut short ({why}); {again}{otherwise}")


def _tar_members(tar: tarfile.TarFile, archive: Path) -> Iterator[Member]:
    end = 0
    while True:
        with _reading(archive):
            entry = tar.next()
        if entry is None:
            break
        if len(tar.pax_headers) > MOST_GLOBAL_NOTES:
            raise damaged(archive, f"it has more than {MOST_GLOBAL_NOTES} notes for all members")
        yield Member(entry, entry.offset_data - end, partial(tar.extractfile, entry), archive)
        entry.pax_headers = {}  # of no use any more; tarfile would keep them all in memory
        entry.linkname = entry.uname = entry.gname = ""
        end = tar.offset
    with _reading(archive):
        fault = _end_fault(tar)
    if fault:
        raise damaged(archive, fault, f", or {BY_HAND}")


def _end_fault(tar: tarfile.TarFile) -> str | None:
    """Return what is wrong with the end of a tar; None if it has its end mark and nothing more.

    tarfile takes a member with a damaged header for the end. It also stops before the checksum of a
    compressed file, which only reading to the end verifies.
    """
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    tail = tar.fileobj.read(END_MARK + LONGEST_PADDING + 1)
    mark, padding = tail[:END_MARK], tail[END_MARK:]
    if mark != bytes(END_MARK):
        found = "a damaged member" if any(mark) else f"only {len(mark)}"
        return f"expected the end mark, {END_MARK} zero bytes, at byte {tar.offset}, found {found}"
    if any(padding):
        return f"there is data after the end mark at byte {tar.offset}"
    if len(padding) > LONGEST_PADDING:
        return f"there are more than {LONGEST_PADDING} bytes after the end mark"
    return None


def _count_at_the_end(file: BufferedReader) -> int:
    """The number of members as a zip's end has it, which zipfile does not compare: an entry of the
    index with a wrong length swallows the next ones."""
    start = max(0, file.seek(0, 2) - zipfile.ZIP_MAX_COMMENT - ZIP_END.size)
    file.seek(start)
    tail = file.read()
    without_comment = len(tail) - ZIP_END.size
    is_there = tail[without_comment:].startswith(b"PK\5\6") and tail.endswith(b"\0\0")
    count: int = ZIP_END.unpack_from(tail, without_comment if is_there else tail.rfind(b"PK\5\6"))[
        0
    ]
    return count


def _zip_members(opened: zipfile.ZipFile, archive: Path) -> Iterator[Member]:
    for info in opened.infolist():
        yield Member(_as_tar(info), tarfile.BLOCKSIZE, partial(opened.open, info), archive)


def _as_tar(info: zipfile.ZipInfo) -> tarfile.TarInfo:
    """Return the header that the same member would have in a tar file, for the filter."""
    header = tarfile.TarInfo(info.filename)
    header.size = info.file_size
    mode = stat.S_IFMT(info.external_attr >> 16)
    if info.filename.endswith("/"):  # is_dir() fails on an empty name
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(mode):
        header.type = tarfile.SYMTYPE
    elif mode not in (0, stat.S_IFREG):
        header.type = tarfile.FIFOTYPE
    return header
