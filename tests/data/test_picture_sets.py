"""ImageNet-30 and Semi-iNat-2021: order, labels, lists and sizes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_sets import imagenet30_files, semi_inat_files, write_files

from dac import config
from dac.config import Data, DataName, DownloadSet
from dac.data.decode import decode
from dac.data.picture_sets import IMAGENET30, read_list
from dac.data.prepare import prepare
from dac.data.prepared import load
from dac.io.errors import UserError, exit_code_of

SHIPPED = config.load(Path(__file__).parents[2] / "params.yaml").file.prepare
Stage = Callable[..., tuple[int, str]]
SMALL = {"side": 20, "size": 16}


@pytest.fixture
def stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stage:
    """Prepare a set; returns the exit code that the command would have, and its messages."""

    def run(name: DataName, data: Data, spec: DownloadSet) -> tuple[int, str]:
        code = exit_code_of(lambda: prepare(tmp_path, name, data, spec))
        return code, capsys.readouterr().err

    return run


def place_raw(root: Path, name: str, files: dict[str, bytes]) -> Path:
    return write_files(root / "raw" / name, files | {"receipt.json": b'{"digests": {}}'})


# --- ImageNet-30 ------------------------------------------------------------------------------


IMAGENET = (
    SHIPPED["imagenet30"].model_copy(update=SMALL | {"train_per_class": 2, "test_per_class": 1}),
    DownloadSet(counts={"one_class_train": 60, "one_class_test": 30}),
)


def test_imagenet30_rows_are_sorted_and_labeled_alphabetically(
    tmp_path: Path, stage: Stage
) -> None:
    raw = place_raw(tmp_path, "imagenet30", imagenet30_files())
    assert stage("imagenet30", *IMAGENET)[0] == 0
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
    code, messages = stage("imagenet30", *IMAGENET)
    assert code == 2
    assert "should have the 30 classes of ImageNet-30, see acorn, oak" in messages


def test_imagenet30_with_a_picture_in_the_wrong_class_is_refused(
    tmp_path: Path, stage: Stage
) -> None:
    raw = place_raw(tmp_path, "imagenet30", imagenet30_files())
    test = raw / "one_class_test"
    (test / "tank/n00000027/v0.JPEG").rename(test / "volcano/n00000029/stray.JPEG")
    code, messages = stage("imagenet30", *IMAGENET)
    assert code == 2
    assert "one_class_test/tank holds 0 pictures, expected 1" in messages


# --- Semi-iNat-2021 ---------------------------------------------------------------------------

TEST_LIST = b"test/hash2.jpg 0\ntest/test/hash0.jpg 2\nhash1.jpg 1\n"


SEMI_INAT = (
    SHIPPED["semi-inat-2021"].model_copy(update=SMALL | {"num_classes": 3}),
    DownloadSet(counts={"l_train": 4, "u_train": 5, "test": 3}),
)


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
    assert stage("semi-inat-2021", *SEMI_INAT)[0] == 0
    found = load(tmp_path, "semi-inat-2021")
    assert found.labeled_count == 4
    assert found.part("train").labels.tolist() == [0, 0, 1, 2, 3, 7, -1, 1, 3]
    assert found.part("test").labels.tolist() == [2, 1, 0]
    assert found.files("train")[:2] == ("l_train/0/0.jpg", "l_train/0/1.jpg")
    assert found.files("test") == ("test/hash0.jpg", "test/hash1.jpg", "test/hash2.jpg")


def test_lists_that_come_later_are_applied_by_preparing_again(tmp_path: Path, stage: Stage) -> None:
    files = semi_inat_files() | {"filelist/test.txt": TEST_LIST}
    raw = place_raw(tmp_path, "semi-inat-2021", files)
    stage("semi-inat-2021", *SEMI_INAT)
    assert load(tmp_path, "semi-inat-2021").part("train").labels.tolist()[4:] == [-1] * 5
    write_files(raw, {"filelist/u_train_in.txt": b"u_train/0.jpg 2\n"})
    stage("semi-inat-2021", *SEMI_INAT)
    assert load(tmp_path, "semi-inat-2021").part("train").labels.tolist()[4:] == [2, -1, -1, -1, -1]


def test_semi_inat_without_test_labels_says_where_they_are(tmp_path: Path, stage: Stage) -> None:
    place_raw(tmp_path, "semi-inat-2021", semi_inat_files())
    code, messages = stage("semi-inat-2021", *SEMI_INAT)
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
    code, messages = stage("semi-inat-2021", *SEMI_INAT)
    assert code == 2
    assert "has no label for test/hash1.jpg (1 such files)" in messages
