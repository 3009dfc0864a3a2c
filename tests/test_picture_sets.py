"""ImageNet-30, Semi-iNat-2021 and own pictures: order, labels, sizes, and broken files."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sets import (
    imagenet30_files,
    jpeg,
    picture,
    semi_inat_files,
    write_files,
    write_params,
)

from dac import prepare
from dac.data.decode import decode
from dac.data.picture_sets import IMAGENET30, read_list
from dac.data.prepared import load
from dac.errors import UserError, exit_code_of
from dac.torchvision_schemas import torchvision

transforms = torchvision.transforms
Stage = Callable[..., tuple[int, str]]
SMALL = {"side": 20, "size": 16}


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stage:
    """Run `python -m dac.prepare`'s main; returns its exit code and messages."""

    def run(data: str, params: Path, *options: object) -> tuple[int, str]:
        arguments = ["--data", data, "--params", params, "--root", tmp_path, *options]
        monkeypatch.setattr(sys, "argv", ["prepare", *map(str, arguments)])
        return exit_code_of(prepare.main), capsys.readouterr().err

    return run


def place_raw(root: Path, name: str, files: dict[str, bytes]) -> Path:
    return write_files(root / "raw" / name, files | {"receipt.json": b'{"digests": {}}'})


# --- decoding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(60, 41), (41, 60), (50, 50), (333, 100), (17, 500)])
@pytest.mark.parametrize("side", [32, 64])
def test_sizes_are_torchvisions(tmp_path: Path, size: tuple[int, int], side: int) -> None:
    path = tmp_path / "a.png"
    original = picture(5, (min(size[0], 400), min(size[1], 280)))
    original.save(path)
    exact = transforms.Resize((side, side))(original)
    short = transforms.CenterCrop(side - 4)(transforms.Resize(side)(original))
    assert (decode(path, side).transpose(1, 2, 0) == np.asarray(exact)).all()
    assert (decode(path, side, side - 4).transpose(1, 2, 0) == np.asarray(short)).all()


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1", "I;16"])
def test_every_kind_of_picture_becomes_rgb(tmp_path: Path, mode: str) -> None:
    grey = picture(3, mode="L")
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    if mode == "I;16":
        Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(path)
    elif mode == "P":
        grey.convert("RGB").quantize(256).save(path)
    else:
        grey.convert("RGB").convert(mode).save(path)
    found = decode(path, 30)
    expected = np.asarray(grey.resize((30, 30), Image.Resampling.BILINEAR))
    assert found.shape == (3, 30, 30) and found.dtype == np.uint8
    if mode != "1":  # black and white only: not close to grey
        assert np.abs(found.astype(int) - expected).max() <= 6


# --- ImageNet-30 ------------------------------------------------------------------------------


def imagenet30_params(path: Path, train: int = 60, test: int = 30) -> Path:
    counts = {"one_class_train": train, "one_class_test": test}
    small = SMALL | {"train_per_class": None, "test_per_class": 1}  # tasks want 65 of 1,300
    return write_params(path, download_imagenet30={"counts": counts}, prepare_imagenet30=small)


def test_imagenet30_rows_are_sorted_and_labeled_alphabetically(
    tmp_path: Path, stage: Stage
) -> None:
    raw = place_raw(tmp_path, "imagenet30", imagenet30_files())
    assert stage("imagenet30", imagenet30_params(tmp_path / "p.yaml"))[0] == 0
    found = load(tmp_path, "imagenet30")
    train, test = found.part("train"), found.part("test")
    assert found.classes == IMAGENET30
    assert train.labels.tolist() == [label for label in range(30) for _ in range(2)]
    assert test.labels.tolist() == list(range(30))
    assert found.files("train")[3] == "one_class_train/airliner/n00000001_1.JPEG"
    assert found.files("test")[2] == "one_class_test/ambulance/n00000002/v0.JPEG"
    assert train.images.shape == (60, 3, 20, 20) and test.images.shape == (30, 3, 16, 16)
    for row in (0, 31, 59):
        assert (train.images[row] == decode(raw / found.files("train")[row], 20)).all()
    assert (test.images[7] == decode(raw / found.files("test")[7], 20, 16)).all()


def test_imagenet30_with_a_class_missing_or_renamed_is_refused(
    tmp_path: Path, stage: Stage
) -> None:
    raw = place_raw(tmp_path, "imagenet30", imagenet30_files())
    (raw / "one_class_train/acorn").rename(raw / "one_class_train/oak")
    code, messages = stage("imagenet30", imagenet30_params(tmp_path / "p.yaml"))
    assert code == 2
    assert "should hold the 30 classes of ImageNet-30, see acorn, oak" in messages


def test_imagenet30_with_a_picture_in_the_wrong_class_is_refused(
    tmp_path: Path, stage: Stage
) -> None:
    raw = place_raw(tmp_path, "imagenet30", imagenet30_files())
    test = raw / "one_class_test"
    (test / "tank/n00000027/v0.JPEG").rename(test / "volcano/n00000029/stray.JPEG")
    code, messages = stage("imagenet30", imagenet30_params(tmp_path / "p.yaml"))
    assert code == 2
    assert "one_class_test/tank holds 0 pictures, expected 1" in messages


# --- Semi-iNat-2021 ---------------------------------------------------------------------------

TEST_LIST = b"test/hash2.jpg 0\ntest/test/hash0.jpg 2\nhash1.jpg 1\n"


def semi_params(path: Path) -> Path:
    counts = {"l_train": 4, "u_train": 5, "test": 3}
    changes: dict[str, dict[str, Any]] = {
        "download_semi-inat-2021": {"counts": counts},
        "prepare_semi-inat-2021": SMALL | {"num_classes": 3},
    }
    return write_params(path, **changes)


@pytest.mark.parametrize("doubled", [False, True])
def test_semi_inat_has_labeled_rows_first_and_labels_from_lists(
    tmp_path: Path, stage: Stage, doubled: bool
) -> None:
    lists = {
        "filelist/test.txt": TEST_LIST,
        "filelist/u_train_in.txt": b"u_train/3.jpg 1\n",
        "filelist/u_train_out.txt": b"u_train/u_train/0.jpg -1\nu_train/1.jpg 7\nu_train/4.jpg\n",
    }
    place_raw(tmp_path, "semi-inat-2021", semi_inat_files(doubled) | lists)
    assert stage("semi-inat-2021", semi_params(tmp_path / "p.yaml"))[0] == 0
    found = load(tmp_path, "semi-inat-2021")
    assert found.labeled_count == 4
    assert found.part("train").labels.tolist() == [0, 0, 1, 2, 3, 7, -1, 1, 3]
    assert found.part("test").labels.tolist() == [2, 1, 0]
    assert found.files("train")[:2] == ("l_train/0/0.jpg", "l_train/0/1.jpg")
    assert found.files("test") == ("test/hash0.jpg", "test/hash1.jpg", "test/hash2.jpg")


def test_lists_that_come_later_are_applied_by_preparing_again(tmp_path: Path, stage: Stage) -> None:
    files = semi_inat_files() | {"filelist/test.txt": TEST_LIST}
    raw = place_raw(tmp_path, "semi-inat-2021", files)
    params = semi_params(tmp_path / "p.yaml")
    stage("semi-inat-2021", params)
    assert load(tmp_path, "semi-inat-2021").part("train").labels.tolist()[4:] == [-1] * 5
    write_files(raw, {"filelist/u_train_in.txt": b"u_train/0.jpg 2\n"})
    stage("semi-inat-2021", params)
    assert load(tmp_path, "semi-inat-2021").part("train").labels.tolist()[4:] == [2, -1, -1, -1, -1]


def test_semi_inat_without_test_labels_says_where_they_are(tmp_path: Path, stage: Stage) -> None:
    place_raw(tmp_path, "semi-inat-2021", semi_inat_files())
    code, messages = stage("semi-inat-2021", semi_params(tmp_path / "p.yaml"))
    assert code == 2
    assert "filelist/test.txt does not exist" in messages
    assert "cvl-umass/ssl-evaluation" in messages


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a.jpg 0\nb.jpg x\n", "line 2: 'b.jpg x', expected `path label`"),
        (b"a.jpg 3\n", "line 1: 'a.jpg 3', expected a label from 0 to 2"),
        (b"a.jpg -1\n", "expected a label from 0 to 2"),
        (b"a.jpg 0\n\nx/a.jpg 1\n", "line 3: 'x/a.jpg 1' contradicts an earlier line"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_a_broken_list_is_named_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = write_files(tmp_path, {"list.txt": content}) / "list.txt"
    with pytest.raises(UserError) as caught:
        read_list(path, below=3)
    assert str(path) in str(caught.value) and message in str(caught.value)


def test_a_test_image_without_a_label_is_named(tmp_path: Path, stage: Stage) -> None:
    lists = {"filelist/test.txt": b"hash0.jpg 0\nhash2.jpg 0\n"}
    place_raw(tmp_path, "semi-inat-2021", semi_inat_files() | lists)
    code, messages = stage("semi-inat-2021", semi_params(tmp_path / "p.yaml"))
    assert code == 2
    assert "gives no label for test/hash1.jpg (1 such files)" in messages


# --- own pictures -----------------------------------------------------------------------------


def own_files() -> dict[str, bytes]:
    """Known cat and dog; the test part also holds a bird and no cat."""
    labeled = {f"labeled/{name}/{i}.jpg": jpeg(i) for name in ("dog", "cat") for i in range(2)}
    pool = {f"unlabeled/2024/{i}.jpg": jpeg(40 + i) for i in range(3)}
    return labeled | pool | {"test/bird/0.jpg": jpeg(50), "test/dog/0.jpg": jpeg(51)}


@pytest.fixture
def own(tmp_path: Path, stage: Stage) -> Callable[[], tuple[int, str]]:
    folder = write_files(tmp_path / "mine", own_files())
    params = write_params(tmp_path / "p.yaml")
    return lambda: stage("folder", params, "--pictures", folder)


def test_own_pictures_get_known_ids_first_and_unknown_ones_behind(
    tmp_path: Path, own: Callable[[], tuple[int, str]]
) -> None:
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


def test_a_changed_picture_is_prepared_again(
    tmp_path: Path, own: Callable[[], tuple[int, str]]
) -> None:
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
        (remove("unlabeled/2024"), "unlabeled/ holds no pictures"),
        (remove("test"), "test/ does not exist"),
        (remove("labeled/cat"), "labeled/ holds 1 class folder(s), expected 2 or more"),
        (lambda folder: (folder / "labeled/cow").mkdir(), "class folder labeled/cow/ is empty"),
        (
            lambda folder: write_files(folder, {"test/a.jpg": jpeg(1)}),
            "test/a.jpg lies outside a class folder",
        ),
    ],
)
def test_a_wrong_layout_is_explained(
    tmp_path: Path,
    own: Callable[[], tuple[int, str]],
    change: Callable[[Path], object],
    message: str,
) -> None:
    change(tmp_path / "mine")
    code, messages = own()
    assert code == 2
    assert message in messages
    assert "labeled/<class>/ (two classes or more)" in messages


def test_pictures_must_be_given_and_only_for_folder(tmp_path: Path, stage: Stage) -> None:
    params = write_params(tmp_path / "p.yaml")
    assert "--data folder needs --pictures FOLDER" in stage("folder", params)[1]
    code, messages = stage("digits", params, "--pictures", tmp_path)
    assert code == 2 and "goes with --data folder only" in messages


def test_all_unreadable_pictures_of_both_parts_are_named_at_once(
    tmp_path: Path, own: Callable[[], tuple[int, str]]
) -> None:
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


def test_many_unreadable_pictures_are_counted(
    tmp_path: Path, own: Callable[[], tuple[int, str]]
) -> None:
    write_files(tmp_path / "mine", {f"unlabeled/{i:02}.jpg": b"?" for i in range(12)})
    messages = own()[1]
    assert "12 file(s)" in messages and "unlabeled/09.jpg" in messages
    assert "unlabeled/10.jpg" not in messages and "and 2 more" in messages


def test_a_picture_that_would_fill_the_memory_is_refused(
    tmp_path: Path, own: Callable[[], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # the others have 1,200
    write_files(tmp_path / "mine", {"unlabeled/bomb.jpg": jpeg(1, (100, 64))})
    code, messages = own()
    assert code == 2
    assert "unlabeled/bomb.jpg" in messages and "decompression bomb" in messages
