"""Own pictures: classes and their numbers, the layout, and broken files."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tiny_sets import jpeg, write_files

from dac import config
from dac.config import DownloadSet
from dac.data.decode import decode
from dac.data.prepare import prepare
from dac.data.prepared import load
from dac.io.errors import exit_code_of

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


def test_a_changed_picture_is_prepared_again(tmp_path: Path, own: Own) -> None:
    own()
    assert "already prepared" in own()[1]
    write_files(tmp_path / "mine", {"unlabeled/2024/0.jpg": jpeg(99, (64, 48))})
    assert "prepared folder in" in own()[1]
    image = load(tmp_path, "folder").part("train").images[4]
    assert (image == decode(tmp_path / "mine/unlabeled/2024/0.jpg", 32)).all()


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
