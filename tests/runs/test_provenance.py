"""Where a number comes from: the commit, the versions and the machine."""

import re
import subprocess
from pathlib import Path

import pytest
import torch

import dac
from dac.io.files import portable
from dac.runs import provenance as module
from dac.runs.provenance import commit, peak_memory_bytes, provenance

CPU = torch.device("cpu")


def test_the_record_has_commit_versions_and_device_and_fits_into_json() -> None:
    found = provenance(CPU)
    assert found["packages"]["torch"] == torch.__version__
    assert found["host"].startswith("Linux")
    capability = torch.backends.cpu.get_cpu_capability()
    assert found["device"].endswith(f", {capability}, 1 thread"), "sums depend on them"
    assert portable(found) == found


@pytest.mark.parametrize(("changes", "mark"), [("", ""), (" M dac/train.py", "+")])
def test_changed_files_are_marked(monkeypatch: pytest.MonkeyPatch, changes: str, mark: str) -> None:
    answers = {"rev-parse": "0123abc", "status": changes}
    asked = set()

    def git(folder: Path, command: str, *rest: str) -> str:
        asked.add(folder)
        return answers[command]

    monkeypatch.setattr(module, "_git", git)
    assert commit() == f"0123abc{mark}"
    assert asked == {Path(dac.__file__).parent}, "changes anywhere in the package count"


@pytest.mark.parametrize("error", [FileNotFoundError(), subprocess.CalledProcessError(128, "git")])
def test_outside_a_checkout_the_commit_is_unknown(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*arguments: object) -> str:
        raise error

    monkeypatch.setattr(module, "_git", fail)
    assert commit() == "unknown"


def test_in_a_checkout_the_commit_is_a_hash_or_unknown() -> None:
    assert re.fullmatch(r"[0-9a-f]{40}\+?|unknown", commit())


def test_peak_memory_is_in_bytes() -> None:
    assert 10**7 < peak_memory_bytes(CPU) < 10**12
