"""Reading an archive: its end, bombs, permissions, and errors that are not its own."""

import bz2
import errno
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dac.data import archives
from dac.data.archive_members import is_archive, members_of
from dac.data.archives import extract
from dac.io.errors import UserError


def six_members(extra: bytes = b"") -> bytes:
    """Six files of one block each, two blocks per member, then the end mark and `extra`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for i in range(6):
            info = tarfile.TarInfo(f"set/{i}")
            info.size = 512
            tar.addfile(info, io.BytesIO(bytes([65 + i]) * 512))
    return buffer.getvalue()[: 6 * 1024 + 1024] + extra


def assert_refused(content: bytes, tmp_path: Path, message: str) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        extract(archive, tmp_path / "out")
    assert str(archive) in str(caught.value)
    assert "download it" in str(caught.value)
    assert not list((tmp_path / "out").rglob("*")), "something was unpacked"


# --- the end of a tar -----------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "keep"), [(2 * 1024 + 3, None), (2 * 1024 + 150, None), (0, 2048)])
def test_members_of_a_plain_tar_are_not_lost(tmp_path: Path, at: int, keep: int | None) -> None:
    """tarfile takes a damaged header, and the end of the file, for the end of the archive."""
    content = bytearray(six_members())
    if at:
        content[at] ^= 1
    found = "only 0" if keep else "a damaged member"
    assert_refused(bytes(content[:keep]), tmp_path, f"at byte 2048, found {found}\\).*--extracted")


@pytest.mark.parametrize("blocks", [0, 1, 1.5])
def test_a_tar_without_its_whole_end_mark_is_refused(tmp_path: Path, blocks: float) -> None:
    length = int(512 * blocks)
    assert_refused(
        six_members()[: 6 * 1024 + length],
        tmp_path,
        f"1024 zero bytes, at byte 6144, found only {length}\\)",
    )


@pytest.mark.parametrize("zeros", [0, 512, 10240, 1 << 20])
def test_zeros_after_the_end_mark_are_accepted(tmp_path: Path, zeros: int) -> None:
    (tmp_path / "archive").write_bytes(six_members(bytes(zeros)))
    extract(tmp_path / "archive", tmp_path / "out")
    assert len(list((tmp_path / "out/set").iterdir())) == 6


def test_a_second_tar_behind_the_end_mark_is_refused(tmp_path: Path) -> None:
    assert_refused(six_members(six_members()), tmp_path, "data after the end mark at byte 6144")


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_an_endless_end_is_refused_without_reading_it(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    content = compress(six_members(bytes(3 << 20)))
    assert_refused(content, tmp_path, "more than 1048576 bytes after the end mark")


# --- decompression bombs --------------------------------------------------------------------------


def header(name: str, kind: bytes = tarfile.DIRTYPE, size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress])
def test_a_folder_that_is_repeated_without_end_is_refused_early(
    tmp_path: Path, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, seen = compress(header("set") * 15_000 + bytes(1024)), []
    real = tarfile.TarFile.next
    monkeypatch.setattr(tarfile.TarFile, "next", lambda self: seen.append(1) or real(self))
    assert_refused(content, tmp_path, "members, too many for its .* decompression bomb")
    assert len(seen) < 5 * len(content) + 2, "read on"


def test_notes_are_counted_as_headers(tmp_path: Path) -> None:
    """A member with a note of a megabyte, again and again."""
    note = b"1048576 comment=" + b"x" * (1048576 - 17) + b"\n"
    assert len(note) == 1 << 20
    member = header("note", tarfile.XHDTYPE, len(note)) + note + header("set")
    assert_refused(bz2.compress(member * 5 + bytes(1024)), tmp_path, "decompression bomb")


def test_headers_count_against_the_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "archive").write_bytes(header("set") * 10 + bytes(1024))
    monkeypatch.setattr(archives, "free_bytes", lambda folder: 5119)
    with pytest.raises(UserError, match=r"unpacks to more than the 0\.0 MB of free space"):
        extract(tmp_path / "archive", tmp_path / "out")
    monkeypatch.setattr(archives, "free_bytes", lambda folder: 5120)
    extract(tmp_path / "archive", tmp_path / "out")


@pytest.mark.parametrize("is_repeated", [True, False])
def test_the_number_of_members_is_bounded(
    tmp_path: Path, is_repeated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 10)
    names = ["set" if is_repeated else f"set/{i}" for i in range(11)]
    (tmp_path / "archive").write_bytes(b"".join(map(header, names[:10])) + bytes(1024))
    extract(tmp_path / "archive", tmp_path / "good")
    content = b"".join(map(header, names)) + bytes(1024)
    assert_refused(content, tmp_path, "has more than 10 members")


def test_notes_for_all_members_do_not_fill_the_memory(tmp_path: Path) -> None:
    notes = b"".join(
        header("note", tarfile.XGLTYPE, 12)
        + (b"12 k%04d=v\n" % i).ljust(512, b"\0")
        + header("set")
        for i in range(101)
    )
    assert_refused(notes + bytes(1024), tmp_path, "more than 100 notes for all members")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_many_empty_files_are_no_bomb(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    names = (header(f"set/{i:06}", tarfile.REGTYPE) for i in range(1000))
    (tmp_path / "archive").write_bytes(compress(b"".join(names) + bytes(1024)))
    extract(tmp_path / "archive", tmp_path / "out")
    assert len(list((tmp_path / "out/set").iterdir())) == 1000


# --- errors that are not damage -------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError, KeyError, RuntimeError, MemoryError, OSError])
def test_an_error_of_our_own_is_not_called_damage(
    tmp_path: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error("a bug")

    (tmp_path / "archive").write_bytes(six_members())
    monkeypatch.setattr(archives, "_unpack", fail)
    with pytest.raises(error, match="a bug"):
        extract(tmp_path / "archive", tmp_path / "out")


def test_an_archive_without_permission_is_not_called_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, real = tmp_path / "archive", Path.open
    archive.write_bytes(six_members())

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self == archive:  # as the kernel does for mode 000, unless one is root
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    message = r"archive cannot be read \(Permission denied\); fix that \(check its permissions\)"
    with pytest.raises(UserError, match=message):
        extract(archive, tmp_path / "out")
    with pytest.raises(UserError, match=message):
        is_archive(archive)


def test_an_end_record_whose_fields_look_like_its_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.txt", "x")
    content = bytearray(path.read_bytes())
    content[-18:-14] = b"PK\5\6"  # the numbers of disks, which nobody reads
    path.write_bytes(content)
    with members_of(path) as members:
        assert len(list(members)) == 1
