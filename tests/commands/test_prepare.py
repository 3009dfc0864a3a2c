"""`python -m dac.prepare`: its options and exit codes."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_sets import jpeg, write_files

from dac import prepare
from dac.data.prepared import load
from dac.io.errors import exit_code_of

Stage = Callable[..., tuple[int, str]]


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stage:
    """Run the command's main with the shipped parameters; returns its exit code and messages."""
    params = Path(__file__).parents[2] / "params.yaml"

    def run(data: str, *options: object) -> tuple[int, str]:
        arguments = ["--data", data, "--params", params, "--root", tmp_path, *options]
        monkeypatch.setattr(sys, "argv", ["prepare", *map(str, arguments)])
        return exit_code_of(prepare.main), capsys.readouterr().err

    return run


def test_a_set_is_prepared_below_the_root(tmp_path: Path, stage: Stage) -> None:
    assert stage("digits")[0] == 0
    assert len(load(tmp_path, "digits").part("train").labels) == 899


def test_own_pictures_are_those_of_the_option(tmp_path: Path, stage: Stage) -> None:
    names = ("labeled/cat/0.jpg", "labeled/dog/0.jpg", "unlabeled/0.jpg", "test/dog/0.jpg")
    mine = write_files(tmp_path / "mine", {name: jpeg(i) for i, name in enumerate(names)})
    assert stage("folder", "--pictures", mine)[0] == 0
    assert load(tmp_path, "folder").classes == ("cat", "dog")


def test_pictures_must_be_given_and_only_for_folder(tmp_path: Path, stage: Stage) -> None:
    code, messages = stage("folder")
    assert code == 2 and "--data folder needs --pictures FOLDER" in messages
    code, messages = stage("digits", "--pictures", tmp_path)
    assert code == 2 and "is only for --data folder" in messages


def test_a_raw_folder_is_checked_against_the_checksums_of_the_parameters(
    tmp_path: Path, stage: Stage
) -> None:
    write_files(
        tmp_path / "raw/cifar100",
        {"receipt.json": b"{}", "cifar-100-python/train": b"not the published one"},
    )
    code, messages = stage("cifar100")
    assert code == 2
    assert "cifar-100-python/train has md5" in messages and "Traceback" not in messages
