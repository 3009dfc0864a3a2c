"""Damaged archives of every kind: one message that names the archive, never a traceback."""

import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dac.data.archive_members import is_archive
from dac.data.archives import extract
from dac.io.errors import UserError

FILES = {"set/a.txt": b"first" * 50, "set/deep/b.bin": bytes(range(256)) * 8, "set/empty": b""}
SPARSE = {
    "0.0": {
        "GNU.sparse.size": "10",
        "GNU.sparse.numblocks": "1",
        "GNU.sparse.offset": "0",
        "GNU.sparse.numbytes": "5",
    },
    "0.1": {"GNU.sparse.size": "10", "GNU.sparse.map": "0,5"},
    "1.0": {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.realsize": "10",
        "GNU.sparse.name": "set/sparse",
    },
}


def tar_of(
    pax: dict[str, str] | None = None, mode: Any = "w", format: int = tarfile.PAX_FORMAT
) -> bytes:
    """A tar with the files, then a member with a long name and these attributes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=format) as tar:
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        last = tarfile.TarInfo("set/" + "long" * 60)
        last.size, last.pax_headers = 512, pax or {}
        tar.addfile(last, io.BytesIO(b"1\n0\n5\n".ljust(512, b"\0")))
    return buffer.getvalue()


def zip_of(compression: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return buffer.getvalue()


WHOLE = {
    "tar": tar_of(),
    "tar, GNU": tar_of(format=tarfile.GNU_FORMAT),
    "tar, sparse 0.0": tar_of(SPARSE["0.0"]),
    "tar, sparse 0.1": tar_of(SPARSE["0.1"]),
    "tar, sparse 1.0": tar_of(SPARSE["1.0"]),
    "tar.gz": tar_of(mode="w:gz"),
    "tar.bz2": tar_of(mode="w:bz2"),
    "tar.xz": tar_of(mode="w:xz"),
    "zip": zip_of(zipfile.ZIP_DEFLATED),
    "zip, LZMA": zip_of(zipfile.ZIP_LZMA),
    "zip, bzip2": zip_of(zipfile.ZIP_BZIP2),
}


def cut(content: bytearray, draw: random.Random) -> None:
    del content[draw.randrange(len(content)) :]


def flip(content: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 2, 30])):
        content[draw.randrange(len(content))] = draw.randrange(256)


def insert(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content))
    content[at:at] = draw.randbytes(draw.choice([1, 3, 512]))


def other_number(content: bytearray, draw: random.Random) -> None:
    """A wrong number or type in a header of a tar: huge, negative, or no number at all."""
    heads = [at for at in range(0, len(content), 512) if content[at + 257 : at + 262] == b"ustar"]
    if not heads:
        return flip(content, draw)
    offset, length = draw.choice([(124, 12), (136, 12), (156, 1), (386, 12), (483, 12)])
    value = draw.choice([b"\xff" * 12, b"\x80" + draw.randbytes(11), b"-7", b"LXSxgK", b"7" * 12])
    at = draw.choice(heads) + offset
    content[at : at + length] = value.ljust(length, b"\0")[:length]
    return None


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...]
MUTATIONS = (cut, flip, insert, other_number)


def with_right_sums(content: bytearray) -> bytes:
    """Mend the checksums of tar headers, so that what is wrong with them is read."""
    for at in range(0, len(content) - 511, 512):
        if content[at + 257 : at + 262] == b"ustar":
            content[at + 148 : at + 156] = b" " * 8
            content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])
    return bytes(content)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
@pytest.mark.parametrize("kind", WHOLE)
def test_a_mutated_archive_is_unpacked_or_refused_with_one_message(
    tmp_path: Path, kind: str, mutation: Callable[..., None], seed: int
) -> None:
    content = bytearray(WHOLE[kind])
    mutation(content, random.Random(f"{kind} {mutation.__name__} {seed}"))
    archive = tmp_path / "archive"
    archive.write_bytes(with_right_sums(content))
    try:
        extract(archive, tmp_path / "out")
    except UserError as error:
        assert str(archive) in str(error)
        assert "download it" in str(error) or "free some space" in str(error)


def assert_refused(content: bytes, tmp_path: Path, message: str) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        extract(archive, tmp_path / "out")
    assert str(archive) in str(caught.value)
    assert "download it" in str(caught.value)


@pytest.mark.parametrize("size", [1 << 21, 1 << 40, 1 << 70, -512])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_header_that_would_fill_the_memory_is_not_read(
    tmp_path: Path, kind: bytes, size: int, place: str
) -> None:
    note = tarfile.TarInfo("note")
    note.type, note.size = kind, size
    header = note.tobuf(tarfile.GNU_FORMAT)
    whole = tar_of().rstrip(b"\0")
    whole += bytes(-len(whole) % 512)
    if place == "first":  # then nothing shows that it is a tar at all
        assert_refused(header + whole, tmp_path, "neither a tar nor a zip archive")
    else:
        assert_refused(whole + header, tmp_path, f"'note' has a header of {size} bytes")
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip, LZMA"])
def test_a_compressed_archive_with_a_wrong_middle_is_damaged(tmp_path: Path, kind: str) -> None:
    content = bytearray(WHOLE[kind])
    middle = len(content) // 2 if kind != "zip, LZMA" else content.index(b"b.bin") + 30
    content[middle : middle + 8] = bytes(byte ^ 0xFF for byte in content[middle : middle + 8])
    assert_refused(
        bytes(content), tmp_path, "is damaged or cut short|neither a tar nor a zip archive"
    )


@pytest.mark.parametrize(
    "pax",
    [
        {"GNU.sparse.size": "ten", "GNU.sparse.map": "0,5"},
        {"GNU.sparse.size": "10", "GNU.sparse.map": "0,five"},
        SPARSE["0.0"] | {"GNU.sparse.offset": "none"},
        SPARSE["1.0"] | {"GNU.sparse.realsize": "-"},
        {"path": "set/nul\0byte"},
    ],
)
def test_attributes_that_are_no_numbers_or_names_are_one_message(
    tmp_path: Path, pax: dict[str, str]
) -> None:
    assert_refused(tar_of(pax), tmp_path, "damaged or cut|neither a plain file|no file can have")


@pytest.mark.parametrize("name", ["n" * 300, "\xe9" * 200, "/".join(["folder"] * 300)])
def test_a_name_that_no_disk_takes_is_the_fault_of_the_archive(tmp_path: Path, name: str) -> None:
    assert_refused(tar_of({"path": name}), tmp_path, "has too long a name; nothing was unpacked")


def test_part_of_a_zip_in_several_files_is_no_archive(tmp_path: Path) -> None:
    """zipfile raises here, where it answers `no` to everything else that it cannot read."""
    end = WHOLE["zip"][-22:]
    locator = b"PK\6\7" + bytes(4) + bytes(8) + (2).to_bytes(4, "little")
    (tmp_path / "part").write_bytes(WHOLE["zip"][:-22] + locator + end)
    assert not is_archive(tmp_path / "part")


def test_a_zip_whose_index_is_gone_is_damaged(tmp_path: Path) -> None:
    """zipfile reads an index of zeros as one without entries."""
    start, end = WHOLE["zip"].index(b"PK\1\2"), WHOLE["zip"].index(b"PK\5\6") + 4
    content = WHOLE["zip"][:start] + bytes(end - 4 - start) + b"PK\5\6" + bytes(18)
    assert_refused(content, tmp_path, "it has no members")


def test_a_member_of_a_zip_without_a_name_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x", b"content")
    index = buffer.getvalue().index(b"PK\1\2")
    content = bytearray(buffer.getvalue())
    content[index + 28] = 0  # the length of the name
    content[index + 30] = 1  # of what follows it
    assert_refused(bytes(content), tmp_path, "has no name|damaged or cut short")


@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_members_of_a_zip_are_not_lost(tmp_path: Path, comment: bytes) -> None:
    """One wrong byte in the length of an entry, and zipfile passes over the next."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = comment
        for i in range(4):
            archive.writestr(f"set/{i}", b"content")
    (tmp_path / "archive").write_bytes(buffer.getvalue())
    extract(tmp_path / "archive", tmp_path / "good")
    content = bytearray(buffer.getvalue())
    content[content.index(b"PK\1\2") + 32] = 51  # length of its comment: one entry
    assert_refused(bytes(content), tmp_path, "its index has 3 members, its end says 4")
