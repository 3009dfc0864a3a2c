"""Archives are unpacked only if every member is harmless; otherwise nothing at all is written."""

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from full_disk import fill_disk

from dac.data import archives
from dac.data.archives import extract
from dac.io.errors import UserError

GOOD = {"set/a.txt": b"first", "set/deep/b.bin": bytes(3000), "set/empty": b""}


def tar_of(path: Path, *members: tarfile.TarInfo, files: dict[str, bytes] | None = None) -> Path:
    """A tar (compressed if its name says so) with `files`, then `members` as they are."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, content in (GOOD if files is None else files).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(max(member.size, 0))))
    return path


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    for key, value in more.items():
        setattr(member, key, value)
    return member


def zip_of(path: Path, extra: dict[str, int] | None = None) -> Path:
    """A zip with the good files and `extra` members of the given Unix mode."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in GOOD.items():
            archive.writestr(name, content)
        for name, mode in (extra or {}).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"/etc/passwd")
    return path


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_refused(archive: Path, tmp_path: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        extract(archive, tmp_path / "out")
    assert str(archive) in str(caught.value)
    assert content_of(tmp_path / "out") == {}, "something was unpacked"


@pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.zip"])
def test_good_archives_come_out_byte_for_byte(tmp_path: Path, name: str) -> None:
    make = zip_of if name.endswith("zip") else tar_of
    extract(make(tmp_path / name), tmp_path / "out")
    assert content_of(tmp_path / "out") == GOOD


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (tar_member("../outside"), "is not safe .*outside the destination"),
        (tar_member("set/../../outside"), "is not safe .*outside the destination"),
        (tar_member("/tmp/outside"), "is not a plain relative name"),
        (tar_member("set\\..\\outside"), "is not a plain relative name"),
        (tar_member("set/../other"), "is not a plain relative name"),
        (tar_member("set/link", tarfile.SYMTYPE, linkname="/etc"), "is not safe .*absolute path"),
        (
            tar_member("set/link", tarfile.SYMTYPE, linkname="a.txt"),
            "is neither a plain file nor a folder",
        ),
        (
            tar_member("set/hard", tarfile.LNKTYPE, linkname="set/a.txt"),
            "is neither a plain file nor a folder",
        ),
        (
            tar_member("set/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
            "is not safe .*special file",
        ),
        (tar_member("set/disk", tarfile.BLKTYPE, devmajor=8), "is not safe .*special file"),
        (tar_member("set/pipe", tarfile.FIFOTYPE), "is not safe .*special file"),
        (tar_member("set/a.txt"), "appears twice"),
        (tar_member("./set//a.txt"), "appears twice"),
        (tar_member("set/a.txt/below"), "is below a file"),
        (tar_member("."), "has no name"),
    ],
    ids=lambda value: value.name if isinstance(value, tarfile.TarInfo) else None,
)
@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_one_bad_member_refuses_the_whole_tar(
    tmp_path: Path, member: tarfile.TarInfo, message: str, suffix: str
) -> None:
    assert_refused(tar_of(tmp_path / f"bad{suffix}", member), tmp_path, message)


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [
        ("../outside", 0, "is not safe .*outside the destination"),
        ("/tmp/outside", 0, "is not a plain relative name"),
        ("set/link", stat.S_IFLNK | 0o777, "is neither a plain file nor a folder"),
        ("set/pipe", stat.S_IFIFO | 0o644, "is not safe .*special file"),
        ("set/disk", stat.S_IFBLK | 0o644, "is not safe .*special file"),
        ("./set/a.txt", 0, "appears twice"),
    ],
)
def test_one_bad_member_refuses_the_whole_zip(
    tmp_path: Path, name: str, mode: int, message: str
) -> None:
    assert_refused(zip_of(tmp_path / "bad.zip", {name: mode}), tmp_path, message)


def test_set_uid_bits_do_not_come_out(tmp_path: Path) -> None:
    extract(tar_of(tmp_path / "a.tar", tar_member("set/root", mode=0o6777)), tmp_path / "out")
    mode = (tmp_path / "out/set/root").stat().st_mode
    assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR)


def test_more_than_the_disk_holds_is_refused_without_reading_it(tmp_path: Path) -> None:
    header = tar_member("set/huge", size=1 << 50).tobuf()  # a petabyte announced, nothing behind
    (tmp_path / "huge.tar").write_bytes(header)
    assert_refused(tmp_path / "huge.tar", tmp_path, "unpacks to more than the .* MB of free space")


def test_a_sparse_file_that_blows_up_is_refused(tmp_path: Path) -> None:
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}
    member = tar_member("set/sparse", size=512, pax_headers=pax)
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(b"0\n".ljust(512, b"\0")))
    assert_refused(tmp_path / "a.tar", tmp_path, "neither a plain file|unpacks to more")


@pytest.mark.parametrize("keep", [0.3, 0.9])
@pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.zip"])
def test_a_truncated_archive_is_called_damaged(tmp_path: Path, name: str, keep: float) -> None:
    noise = {"set/noise": bytes(range(256)) * 40, "set/tail": gzip.compress(bytes(5000))}
    make = tmp_path / name
    if name.endswith("zip"):
        zip_of(make)
    else:
        tar_of(make, files=noise)
    whole = make.read_bytes().rstrip(b"\0")
    make.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(UserError, match=r"damaged or cut short|neither a tar nor a zip"):
        extract(make, tmp_path / "out")


@pytest.mark.parametrize("length", [20, 100])
def test_a_compressed_tar_cut_in_its_first_block_is_one_message(
    tmp_path: Path, length: int
) -> None:
    path = tar_of(tmp_path / "set.tar.gz")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match=r"damaged or cut short|neither a tar nor a zip"):
        extract(path, tmp_path / "out")


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.tar.gz").write_text("<html>please log in</html>")
    assert_refused(tmp_path / "set.tar.gz", tmp_path, "neither a tar nor a zip")


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.zip")
    content = bytearray(path.read_bytes())
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):  # set the flag bit of the first member
        content[content.index(mark) + (6 if mark[2] == 3 else 8)] |= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="encrypted"):
        extract(path, tmp_path / "out")


def test_a_second_archive_cannot_replace_files_of_the_first(tmp_path: Path) -> None:
    extract(tar_of(tmp_path / "a.tar"), tmp_path / "out")
    with pytest.raises(UserError, match="as does another archive"):
        extract(tar_of(tmp_path / "b.tar", files={"set/a.txt": b"other"}), tmp_path / "out")
    assert content_of(tmp_path / "out") == GOOD


def test_a_full_disk_while_unpacking_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar_of(tmp_path / "a.tar")
    fill_disk(monkeypatch, lambda path: path.name == "b.bin")
    with pytest.raises(UserError, match=r"no space left while writing .*b\.bin.*Free some space"):
        extract(archive, tmp_path / "out")


def test_too_little_space_is_seen_before_unpacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "free_bytes", lambda folder: 1000)
    assert_refused(tar_of(tmp_path / "a.tar"), tmp_path, "unpacks to more than the 0.0 MB")


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_a_compressed_archive_with_a_wrong_checksum_at_its_end_is_damaged(
    tmp_path: Path, mode: str
) -> None:
    """tarfile stops reading before it: without a look at the end, wrong bytes would be unpacked."""
    archive = tmp_path / "set.tar"
    with tarfile.open(archive, f"w:{mode}") as tar:
        entry = tarfile.TarInfo("file")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    content = bytearray(archive.read_bytes())
    content[{"gz": -8, "bz2": -5, "xz": -40}[mode]] ^= 0xFF  # CRC of the stream, or of its block
    archive.write_bytes(content)
    with pytest.raises(UserError, match="damaged or cut short"):
        extract(archive, tmp_path / "target")
