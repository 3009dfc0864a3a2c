"""`python -m dac.download`: its options, its exit codes and the receipt."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tiny_sets import ARCHIVE, PARAMS, cifar100_files, cifar100_params, md5s, tar, write_files

from dac import download
from dac.config import load
from dac.io.errors import exit_code_of

FILES = cifar100_files()
Stage = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parameters that know no address of the tiny CIFAR-100."""
    return cifar100_params(tmp_path_factory.mktemp("download") / "params.yaml")


@pytest.fixture
def stage(
    params: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Stage:
    """Run the command's main; returns its exit code and messages."""
    monkeypatch.delenv("DAC_MIRROR", raising=False)

    def run(*options: object, data: str = "cifar100") -> tuple[int, str]:
        arguments = ["--data", data, "--params", params, "--root", tmp_path / "data", *options]
        monkeypatch.setattr(sys, "argv", ["download", *map(str, arguments)])
        return exit_code_of(download.main), capsys.readouterr().err

    return run


@pytest.mark.parametrize("how", ["option", "environment"])
def test_the_mirror_is_an_option_or_a_variable(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    mirror = write_files(tmp_path / "mirror", {ARCHIVE: tar(FILES)})
    if how == "environment":
        monkeypatch.setenv("DAC_MIRROR", str(mirror))
    assert stage(*(["--mirror", mirror] if how == "option" else []))[0] == 0
    for name, content in FILES.items():
        assert (tmp_path / "data/raw/cifar100" / name).read_bytes() == content


def test_a_mirror_that_is_no_folder_is_named(tmp_path: Path, stage: Stage) -> None:
    code, messages = stage("--mirror", tmp_path / "none")
    assert code == 2
    assert f"the mirror {tmp_path / 'none'} is not a folder" in messages


def test_an_extracted_copy_is_taken_and_its_receipt_copied(tmp_path: Path, stage: Stage) -> None:
    copy, receipt = write_files(tmp_path / "copy", FILES), tmp_path / "receipts/cifar100.json"
    assert stage("--extracted", copy, "--receipt", receipt)[0] == 0
    assert receipt.read_bytes() == (tmp_path / "data/raw/cifar100/receipt.json").read_bytes()
    written = json.loads(receipt.read_text())
    assert written["source"] == {"extracted copy": str(copy)}
    assert written["digests"]["files"] == md5s(FILES)


def test_without_any_source_the_command_fails_with_one_message(
    tmp_path: Path, stage: Stage
) -> None:
    code, messages = stage("--receipt", tmp_path / "receipt.json")
    assert code == 2
    assert "--mirror FOLDER" in messages and "Traceback" not in messages
    assert not (tmp_path / "receipt.json").exists()


@pytest.mark.parametrize(("data", "words"), [("digits", "scikit-learn"), ("folder", "--pictures")])
def test_sets_that_need_no_download_say_so_and_write_only_the_receipt(
    tmp_path: Path, stage: Stage, data: str, words: str
) -> None:
    code, messages = stage("--receipt", tmp_path / "receipt.json", data=data)
    assert code == 0
    assert words in messages
    assert not (tmp_path / "data").exists()
    assert words in json.loads((tmp_path / "receipt.json").read_text())["source"]["note"]


def without(path: Path, name: str) -> Path:
    """The shipped parameters with no entry of a set under `download.sets`."""
    content = yaml.load(PARAMS.read_text(), yaml.CSafeLoader)
    del content["download"]["sets"][name]
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
    return path


@pytest.mark.parametrize("data", ["digits", "folder"])
def test_sets_that_need_no_download_need_no_entry(tmp_path: Path, stage: Stage, data: str) -> None:
    params = without(tmp_path / "params.yaml", data)
    assert load(params).file.download == load(PARAMS).file.download, "the workflow sees no gap"
    code, messages = stage("--params", params, data=data)
    assert code == 0
    assert "nothing to download" in messages


def test_a_set_without_an_entry_is_not_taken_for_downloaded(tmp_path: Path, stage: Stage) -> None:
    params = without(tmp_path / "params.yaml", "cifar100")
    code, messages = stage("--params", params)
    assert code == 2
    assert f"{params} lists no archives, files or counts of cifar100" in messages
    assert "add download.sets.cifar100" in messages
    assert not (tmp_path / "data").exists()
