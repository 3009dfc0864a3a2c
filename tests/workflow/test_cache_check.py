"""Damage in DVC's cache is found, reported with the next step, and left as it is."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from toy import called

from dac.workflow import cache_check


def add(cache: Path, content: bytes, suffix: str = "") -> Path:
    """An object as DVC keeps it."""
    name = hashlib.md5(content).hexdigest()
    path = cache / "files/md5" / name[:2] / f"{name[2:]}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o444)
    return path


def damage(path: Path, content: bytes) -> None:
    """Other content under the same name and mode."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o444)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    add(cache, b"weights")
    add(cache, b"")
    add(cache, b'[{"md5": "0", "relpath": "a"}]', ".dir")
    return cache


Check = Callable[[Path], tuple[int, str, str]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Calls the command: exit code, output, messages."""

    def call(cache: Path) -> tuple[int, str, str]:
        code = called(cache_check.main, "--cache", cache)
        return code, *capsys.readouterr()

    return call


def test_an_intact_cache_is_said_to_be_so(cache: Path, check: Check) -> None:
    assert check(cache)[:2] == (0, "3 objects intact\n")


def test_damage_is_reported_with_the_next_step_and_nothing_is_changed(
    cache: Path, check: Check
) -> None:
    path = add(cache, b"numbers")
    damage(path, b"numbersX")
    before = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    code, out, err = check(cache)
    assert code == 1
    found = hashlib.md5(b"numbersX").hexdigest()
    assert out == f"{path}: its content has the MD5 {found}\n"
    assert "1 of 4 objects are damaged. Delete them and their damaged copies" in err
    assert "Traceback" not in err
    assert {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()} == before


def test_copies_in_the_workspace_are_judged_as_well(
    cache: Path, tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights, table = add(cache, b"weights"), add(cache, b"a table")
    files = [("good.pt", b"weights"), ("bad.pt", b"weights"), ("missing.pt", b"weights")]
    listed = [{"md5": hashlib.md5(content).hexdigest(), "relpath": n} for n, content in files]
    listing = add(cache, json.dumps(listed).encode(), ".dir")
    outs = [
        {"path": "runs", "md5": listing.parent.name + listing.name},
        {"path": "table.md", "md5": table.parent.name + table.name},
    ]
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"stages": {"train": {"outs": outs}}}))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/good.pt").write_bytes(b"weights")
    (tmp_path / "runs/bad.pt").write_bytes(b"weightsX")
    (tmp_path / "table.md").write_bytes(b"a table")
    damage(weights, b"weightsX")
    damage(table, b"?")
    lines = check(cache)[1].splitlines()
    copies = [line for line in lines if line.startswith("  ")]
    assert sorted(copies) == [
        "  runs/bad.pt: damaged or changed, too",
        "  runs/good.pt: intact",
        "  table.md: intact",
    ]


@pytest.mark.parametrize("content", [b"", b"[]", b"cut sho"])
def test_every_kind_of_object_is_read(cache: Path, content: bytes) -> None:
    folder = add(cache, b'[{"md5": "1", "relpath": "b"}]', ".dir")
    damage(folder, content)
    assert list(cache_check.damaged(cache_check.objects(cache))) == [folder]


def test_an_object_that_cannot_be_read_is_damaged(cache: Path) -> None:
    path = add(cache, b"gone")
    path.unlink()
    path.mkdir()
    assert cache_check.fault_of(path) == "cannot be read (Is a directory)"


def test_other_files_are_no_objects(cache: Path) -> None:
    (cache / "files/md5/ab").mkdir()
    (cache / "files/md5/ab/.unfinished.tmp").write_bytes(b"half")
    (cache / "runs").mkdir()
    (cache / "runs/lock").write_bytes(b"x")
    assert len(cache_check.objects(cache)) == 3


def test_a_missing_cache_is_one_message(tmp_path: Path, check: Check) -> None:
    code, _, err = check(tmp_path / "nowhere")
    assert code == 2
    assert "there is no cache" in err and "`dvc cache dir`" in err


def test_an_empty_cache_has_no_damage(tmp_path: Path, check: Check) -> None:
    assert check(tmp_path)[1] == "0 objects intact\n"
