"""Preparing a set: when it is made, when it is left alone, and what must be there before."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from full_disk import fill_disk
from sklearn.datasets import load_digits
from tiny_sets import cifar100_files, cifar100_set, write_files

from dac import config
from dac.config import Data, DataName, DownloadSet
from dac.data import cifar
from dac.data.prepare import prepare
from dac.data.prepared import load
from dac.io.errors import exit_code_of
from dac.io.files import locked

SHIPPED = config.load(Path(__file__).parents[2] / "params.yaml").file.prepare
NOTHING = DownloadSet()
TRAIN = "cifar-100-python/train"
Stage = Callable[..., tuple[int, str]]


@pytest.fixture
def stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stage:
    """Prepare a set; returns the exit code that the command would have, and its messages."""

    def run(
        name: DataName, spec: DownloadSet = NOTHING, data: Data | None = None
    ) -> tuple[int, str]:
        settings = data or SHIPPED[name]
        code = exit_code_of(lambda: prepare(tmp_path, name, settings, spec))
        return code, capsys.readouterr().err

    return run


# --- a set that has no source on the disk: the digits -----------------------------------------


def test_the_digits_are_prepared_with_their_labels(tmp_path: Path, stage: Stage) -> None:
    assert stage("digits")[0] == 0
    found, labels = load(tmp_path, "digits"), load_digits().target
    assert found.classes == tuple("0123456789") and found.labeled_count is None
    assert (found.part("dev").labels == labels[5::6]).all()
    assert found.part("dev").images.shape == (299, 3, 16, 16)


def test_preparing_twice_gives_the_same_bytes(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    first = (tmp_path / "prepared/digits/meta.json").read_bytes()
    (tmp_path / "prepared/digits/meta.json").unlink()
    stage("digits")
    assert (tmp_path / "prepared/digits/meta.json").read_bytes() == first


def test_a_finished_set_is_left_alone(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "prepared/digits").glob("*.npy")}
    code, messages = stage("digits")
    assert code == 0
    assert "already prepared and intact" in messages
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_another_side_is_prepared_anew(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    small = SHIPPED["digits"].model_copy(update={"side": 8, "size": 8})
    assert stage("digits", data=small)[0] == 0
    assert load(tmp_path, "digits").part("train").images.shape == (899, 3, 8, 8)


def test_damage_is_found_and_the_set_prepared_again(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    array = tmp_path / "prepared/digits/test.npy"
    array.write_bytes(array.read_bytes()[:-1] + b"?")
    code, messages = stage("digits")
    assert code == 0
    assert "test.npy does not have the sha256" in messages
    load(tmp_path, "digits").verify()


def test_a_second_process_is_refused(tmp_path: Path, stage: Stage) -> None:
    with locked(tmp_path / "prepared/digits", "test"):
        code, messages = stage("digits")
    assert code == 2
    assert "is in use by process" in messages


@pytest.mark.parametrize("file", ["train.npy", "test_labels.npy", "meta.json"])
def test_a_full_disk_leaves_nothing_finished_and_the_next_run_succeeds(
    tmp_path: Path, stage: Stage, file: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fill_disk(patch, lambda path: path.name.startswith(f".{file}."))
        code, messages = stage("digits")
    assert code == 2
    assert f"{file}; nothing was changed there. Free some space" in messages
    assert {path.name for path in (tmp_path / "prepared/digits").iterdir()} == {"lock"}
    assert stage("digits")[0] == 0
    load(tmp_path, "digits").verify()


def test_too_little_space_is_said_before_any_work(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dac.io.disk.free_bytes", lambda folder: 1_000_000)
    code, messages = stage("digits")
    assert code == 2
    assert "needs 1.4 MB and its disk has 1.0 MB free" in messages
    assert "prepare train" not in messages


# --- a set with raw files: CIFAR --------------------------------------------------------------


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """The raw folder of the tiny CIFAR-100."""
    receipt = {"receipt.json": b'{"digests": {}}'}
    return write_files(tmp_path / "raw/cifar100", cifar100_files() | receipt)


@pytest.fixture
def cifar100(stage: Stage) -> Callable[[], tuple[int, str]]:
    tiny = SHIPPED["cifar100"].model_copy(update={"train_per_class": 3, "test_per_class": 2})
    return lambda: stage("cifar100", cifar100_set(), tiny)


def test_what_the_reader_yields_is_prepared(
    tmp_path: Path, raw: Path, cifar100: Callable[[], tuple[int, str]]
) -> None:
    assert cifar100()[0] == 0
    found = load(tmp_path, "cifar100")
    expected = cifar.read(raw / TRAIN)
    assert np.array_equal(found.part("train").images.reshape(-1, 3072), expected[b"data"])
    assert found.part("train").labels.tolist() == expected[b"fine_labels"]
    assert found.classes[42] == "class42"


def test_a_file_that_cannot_be_read_leaves_no_finished_set(
    tmp_path: Path, stage: Stage, raw: Path
) -> None:
    files = cifar100_files() | {TRAIN: b"<html>log in</html>"}
    write_files(raw, files)
    code, messages = stage("cifar100", cifar100_set(files=files))
    assert code == 2
    assert f"{TRAIN} cannot be read as a CIFAR file" in messages
    assert not (tmp_path / "prepared/cifar100/meta.json").exists()


def test_checksums_are_verified_before_a_file_is_parsed(
    raw: Path, cifar100: Callable[[], tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (raw / TRAIN).write_bytes(b"wrong")
    monkeypatch.setattr(cifar, "read", lambda path: pytest.fail("parsed"))
    code, messages = cifar100()
    assert code == 2
    assert f"{TRAIN} has md5" in messages and "python -m dac.download --data cifar100" in messages


def test_without_a_download_the_command_is_named(
    tmp_path: Path, cifar100: Callable[[], tuple[int, str]]
) -> None:
    code, messages = cifar100()
    assert code == 2
    assert f"run `python -m dac.download --data cifar100 --root {tmp_path}` first" in messages


def test_raw_files_may_be_deleted_once_prepared(
    raw: Path, cifar100: Callable[[], tuple[int, str]]
) -> None:
    cifar100()
    shutil.rmtree(raw.parent)
    code, messages = cifar100()
    assert code == 0
    assert "its source is gone, nothing to do" in messages
