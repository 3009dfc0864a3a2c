"""Reading an archive: its end, its permissions, and errors that are not its own."""

import bz2
import errno
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dac.data import archives
from dac.data.archive_members import is_archive
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
