"""Own pictures: classes and their numbers, the layout, and broken files."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tiny_sets import jpeg, unreadable_folder, write_files

from dac import config
from dac.config import DownloadSet
from dac.data.decode import decode
from dac.data.prepare import prepare
from dac.data.prepared import load
from dac.io.errors import UserError, exit_code_of

DATA = config.load(Path(__file__).parents[2] / "params.yaml").file.prepare["folder"]
Own = Callable[[], tuple[int, str]]


def own_files() -> dict[str, bytes]:
    """Known cat and dog; the test part also holds a bird and no cat."""
    labeled = {f"labeled/{name}/{i}.jpg": jpeg(i) for name in ("dog", "cat") for i in range(2)}
    pool = {f"unlabeled/2024/{i}.jpg": jpeg(40 + i) for i in range(3)}
    return labeled | pool | {"test/bird/0.jpg": jpeg(50), "test/dog/0.jpg": jpeg(51)}


@pytest.fixture
def own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Own:
    """Prepare the pictures; returns the exit code that the command would have, and its messages."""
    folder = write_files(tmp_path / "mine", own_files())

    def run() -> tuple[int, str]:
        code = exit_code_of(lambda: prepare(tmp_path, "folder", DATA, DownloadSet(), folder))
        return code, capsys.readouterr().err

    return run


def test_own_pictures_get_known_ids_first_and_unknown_ones_behind(tmp_path: Path, own: Own) -> None:
    write_files(tmp_path / "mine", {".DS_Store": b"x", "labeled/.DS_Store": b"x"})
    assert own()[0] == 0
    found = load(tmp_path, "folder")
    assert found.classes == ("cat", "dog", "bird")
    assert found.labeled_count == 4
    assert found.part("train").labels.tolist() == [0, 0, 1, 1, -1, -1, -1]
    assert found.part("test").labels.tolist() == [1, 2]
    assert found.files("test") == ("test/dog/0.jpg", "test/bird/0.jpg")
    assert found.part("train").images.shape == (7, 3, 32, 32)
    assert found.part("test").images.shape == (2, 3, 32, 32)
    assert (found.part("train").images[2] == decode(tmp_path / "mine/labeled/dog/0.jpg", 32)).all()


def test_without_the_pictures_a_set_of_other_sides_is_refused_and_stays(
    tmp_path: Path, own: Own
) -> None:
    own()
    prepare(tmp_path, "folder", DATA, DownloadSet())
    told = "with side 32, size 32, and .* ask for side 40, size 32; run .* FOLDER` again"
    with pytest.raises(UserError, match=told):
        prepare(tmp_path, "folder", DATA.model_copy(update={"side": 40}), DownloadSet())
    assert load(tmp_path, "folder").part("train").images.shape == (7, 3, 32, 32)


def test_a_changed_picture_is_prepared_again(tmp_path: Path, own: Own) -> None:
    own()
    assert "already prepared" in own()[1]
    write_files(tmp_path / "mine", {"unlabeled/2024/0.jpg": jpeg(99, (64, 48))})
    assert "prepared folder in" in own()[1]
    image = load(tmp_path, "folder").part("train").images[4]
    assert (image == decode(tmp_path / "mine/unlabeled/2024/0.jpg", 32)).all()


def test_a_set_of_a_former_version_is_refused_at_once_and_prepared_again(
    tmp_path: Path, own: Own
) -> None:
    """Its names are in train_files.txt: it would train, and fail only in evaluate."""
    own()
    meta = tmp_path / "prepared/folder/meta.json"
    meta.write_text(meta.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(UserError, match=r"has the format 1, .* to prepare folder again"):
        load(tmp_path, "folder")
    code, messages = own()
    assert code == 0 and "cannot be used" in messages
    load(tmp_path, "folder").verify()


def remove(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).rename(folder.parent / name.replace("/", "-"))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("labeled"), "labeled/ does not exist"),
        (remove("unlabeled"), "unlabeled/ does not exist"),
        (remove("unlabeled/2024"), "unlabeled/ has no pictures"),
        (remove("test"), "test/ does not exist"),
        (remove("labeled/cat"), "labeled/ has 1 class folder(s), expected 2 or more"),
        (lambda folder: (folder / "labeled/cow").mkdir(), "class folder labeled/cow/ is empty"),
        (
            lambda folder: write_files(folder, {"test/a.jpg": jpeg(1)}),
            "test/a.jpg is outside a class folder",
        ),
    ],
)
def test_a_wrong_layout_is_explained(
    tmp_path: Path,
    own: Own,
    change: Callable[[Path], object],
    message: str,
) -> None:
    change(tmp_path / "mine")
    code, messages = own()
    assert code == 2
    assert message in messages
    assert "labeled/<class>/ (two classes or more)" in messages


# --- names, links and what is no file ---------------------------------------------------------

LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
ODD_NAMES = [*(f"a{c}b" for c in LINE_BREAKS), os.fsdecode(b"caf\xe9"), "=1", "-1", 'a,"b', "\\"]


def test_pictures_and_classes_may_have_any_name(tmp_path: Path, own: Own) -> None:
    odd = {f"labeled/{name}/{name}.jpg": jpeg(i) for i, name in enumerate(ODD_NAMES)}
    odd |= {f"unlabeled/{name}/{name}.jpg": jpeg(20 + i) for i, name in enumerate(ODD_NAMES)}
    odd |= {f"test/{name}/{name}.jpg": jpeg(40 + i) for i, name in enumerate(ODD_NAMES)}
    write_files(tmp_path / "mine", odd)
    assert own()[0] == 0
    found = load(tmp_path, "folder")
    assert set(found.classes) == {*ODD_NAMES, "cat", "dog", "bird"}
    assert {*found.files("train"), *found.files("test")} == {*odd, *own_files()}
    for part in ("train", "test"):
        for name, image in zip(found.files(part), found.part(part).images, strict=True):
            assert (image == decode(tmp_path / "mine" / name, 32)).all(), ascii(name)
    for name, label in zip(found.files("test"), found.labels("test"), strict=True):
        assert name.split("/")[1] == found.classes[label]


def test_a_broken_picture_with_a_line_break_in_its_name_is_one_line(
    tmp_path: Path, own: Own
) -> None:
    write_files(tmp_path / "mine", {"unlabeled/a\nb.jpg": b"?"})
    code, messages = own()
    assert code == 2
    assert r"unlabeled/a\nb.jpg': not a picture" in messages


FAR = ("0.jpg", "deep/1.jpg")


def test_pictures_behind_links_are_used(tmp_path: Path, own: Own) -> None:
    far = write_files(tmp_path / "far", dict.fromkeys(FAR, jpeg(60)))
    for name in ("unlabeled/link", "labeled/cow", "test/cow"):
        (tmp_path / "mine" / name).symlink_to(far)
    assert own()[0] == 0
    found = load(tmp_path, "folder")
    assert found.classes == ("cat", "cow", "dog", "bird")
    linked = {f"{place}/{name}" for place in ("unlabeled/link", "labeled/cow") for name in FAR}
    assert linked <= set(found.files("train"))
    assert {f"test/cow/{name}" for name in FAR} <= set(found.files("test"))


def test_the_same_folder_twice_in_a_part_is_refused(tmp_path: Path, own: Own) -> None:
    """Its pictures would be in the pool twice, or in two classes."""
    (tmp_path / "mine/labeled/kitten").symlink_to("cat")
    code, messages = own()
    assert code == 2
    mine = tmp_path / "mine/labeled"
    assert f"{mine}/kitten is the same folder as {mine}/cat" in messages


def test_every_folder_is_listed_once(
    tmp_path: Path, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = os.scandir, Counter[str]()

    def scandir(path: Path) -> Any:
        seen[str(path)] += 1
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert own()[0] == 0
    listed = {path: n for path, n in seen.items() if path.startswith(f"{tmp_path}/mine/")}
    folders = [path for path in (tmp_path / "mine").rglob("*") if path.is_dir()]
    assert listed == {str(folder): 1 for folder in folders}


def test_what_is_left_out_is_counted_and_named(tmp_path: Path, own: Own) -> None:
    others = ("unlabeled/.cache/0.jpg", "labeled/cat/._0.jpg", "notes.txt", "more/0.jpg")
    write_files(tmp_path / "mine", dict.fromkeys(others, jpeg(1)))
    code, messages = own()
    assert code == 0
    assert "left out 4 file(s) or folder(s)" in messages
    assert "more; notes.txt; labeled/cat/._0.jpg; and 1 more" in messages
    assert len(load(tmp_path, "folder").files("train")) == 7


def test_nothing_is_said_if_nothing_is_left_out(own: Own) -> None:
    assert "left out" not in own()[1]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    "place", ["unlabeled/2024/x.jpg", "test/dog/x.jpg", "labeled/x", "unlabeled/2024/\n\udcff"]
)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (pipe, " is a pipe, expected a file or a folder"),
        (socket, " is a socket, expected a file or a folder"),
        (link("/dev/zero"), " is a device, expected a file or a folder"),
        (link("gone"), " is a link to gone, which cannot be read (No such file"),
        (link("../.."), " is the same folder as "),
    ],
)
def test_what_is_neither_file_nor_folder_is_named(
    tmp_path: Path, own: Own, place: str, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "mine" / place)
    code, messages = own()
    assert code == 2
    assert message in messages and "repair or remove that" in messages
    assert len(messages.splitlines()) == 1


@pytest.mark.parametrize("name", ["labeled", "labeled/cat", "unlabeled/2024", "test"])
def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, own: Own, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable_folder(monkeypatch, tmp_path / "mine" / name)
    code, messages = own()
    assert code == 2
    assert f"mine/{name} cannot be read (Permission denied)" in messages


def test_a_picture_that_cannot_be_opened_is_named(
    tmp_path: Path, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Image.open

    def refuse(path: Path) -> Image.Image:
        if path.name == "2.jpg":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Image, "open", refuse)
    code, messages = own()
    assert code == 2
    assert "unlabeled/2024/2.jpg: Permission denied\n" in messages


# --- pictures that cannot be decoded ----------------------------------------------------------


def test_a_failed_attempt_leaves_the_pictures_prepared_before(tmp_path: Path, own: Own) -> None:
    own()
    folder = tmp_path / "prepared/folder"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}
    write_files(tmp_path / "mine", {"unlabeled/x.jpg": b"hello"})
    code, messages = own()
    assert code == 2
    assert "unlabeled/x.jpg: not a picture" in messages and "is unchanged" in messages
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}
    assert after == before
    load(tmp_path, "folder").verify()


def test_all_unreadable_pictures_of_both_parts_are_named_at_once(tmp_path: Path, own: Own) -> None:
    broken = {
        "labeled/cat/cut.jpg": jpeg(1, (200, 150))[:2000],
        "unlabeled/notes.txt": b"not a picture",
        "test/dog/empty.png": b"",
    }
    write_files(tmp_path / "mine", broken)
    code, messages = own()
    assert code == 2
    assert "3 file(s) are not readable pictures" in messages
    assert "labeled/cat/cut.jpg: image file is truncated" in messages
    assert "unlabeled/notes.txt: not a picture" in messages
    assert "test/dog/empty.png: not a picture" in messages
    assert {path.name for path in (tmp_path / "prepared/folder").iterdir()} == {"lock"}
    for name in broken:
        (tmp_path / "mine" / name).unlink()
    assert own()[0] == 0


def test_many_unreadable_pictures_are_counted(tmp_path: Path, own: Own) -> None:
    write_files(tmp_path / "mine", {f"unlabeled/{i:02}.jpg": b"?" for i in range(12)})
    messages = own()[1]
    assert "12 file(s)" in messages and "unlabeled/09.jpg" in messages
    assert "unlabeled/10.jpg" not in messages and "and 2 more" in messages


def test_a_picture_that_would_fill_the_memory_is_refused(
    tmp_path: Path, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # the others have 1,200
    write_files(tmp_path / "mine", {"unlabeled/bomb.jpg": jpeg(1, (100, 64))})
    code, messages = own()
    assert code == 2
    assert "unlabeled/bomb.jpg" in messages and "decompression bomb" in messages
