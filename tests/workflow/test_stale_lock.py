"""Locks of a killed Snakemake are freed; those of one that runs, here or elsewhere, never are."""

import fcntl
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dac.workflow import stale_lock
from dac.workflow.stale_lock import ADVICE, advise, take_over

HERE = socket.gethostname()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`.snakemake` as a Snakemake that was killed here leaves it."""
    (tmp_path / "locks").mkdir()
    for name in ("0.input.lock", "0.output.lock"):
        (tmp_path / "locks" / name).write_text("runs/x/model.pt\n")
    (tmp_path / "dac-owner").write_text(f"{HERE}\n")
    return tmp_path


def start(folder: Path, *, is_local: bool = True) -> bool:
    """Whether a Snakemake that starts and is killed at once could say where it runs."""
    file = take_over(folder, is_local=is_local)
    if file is not None:
        file.close()
    return file is not None


def owners(folder: Path) -> list[str]:
    return (folder / "dac-owner").read_text().split()


def left(folder: Path) -> int:
    return len(list((folder / "locks").iterdir()))


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another Snakemake, in a process of its own."""
    code = f"""
import sys
from pathlib import Path
from dac.workflow.stale_lock import take_over
file = take_over(Path({str(folder)!r}), is_local=True)
print(file is not None, flush=True)
sys.stdin.read()
"""
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        yield other
        other.kill()


def test_locks_of_a_dead_one_are_freed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(folder) and left(folder) == 0
    assert "was killed here" in capsys.readouterr().err
    assert start(folder) and capsys.readouterr().err == "", "said once"


def test_whoever_starts_says_where_it_runs_before_snakemake_locks_anything(tmp_path: Path) -> None:
    assert start(tmp_path / "project/.snakemake")
    assert owners(tmp_path / "project/.snakemake") == [HERE]


def test_locks_of_another_machine_stay(folder: Path) -> None:
    (folder / "dac-owner").write_text("another\n")
    for _ in range(2):  # a start that is refused makes nobody else the owner
        assert start(folder) and left(folder) == 2
    assert "another" in owners(folder)


def test_locks_stay_if_nobody_says_where_their_owner_runs(folder: Path) -> None:
    (folder / "dac-owner").unlink()
    for _ in range(2):
        assert start(folder) and left(folder) == 2


def test_locks_of_one_that_gave_its_jobs_to_a_cluster_stay(folder: Path) -> None:
    assert start(folder, is_local=False) and left(folder) == 0
    (folder / "locks/0.output.lock").touch()
    for _ in range(2):
        assert start(folder) and left(folder) == 1
    (folder / "locks/0.output.lock").unlink()  # snakemake --unlock
    assert start(folder) and owners(folder) == [HERE]


def test_locks_of_one_that_runs_stay_until_it_ends(folder: Path) -> None:
    with running(folder):
        (folder / "locks/1.output.lock").touch()
        assert start(folder) and left(folder) == 1
    assert start(folder) and left(folder) == 0


def test_locks_of_a_second_one_stay_when_the_first_one_has_ended(folder: Path) -> None:
    """Snakemake lets two work in one folder if they make different files."""
    with running(folder) as first, running(folder):
        assert owners(folder) == [HERE, HERE]
        first.kill()
        first.wait()
        (folder / "locks/1.output.lock").touch()
        assert start(folder) and left(folder) == 1
    assert start(folder) and left(folder) == 0, "both were killed"


def test_a_start_waits_for_jobs_that_are_still_saving_but_not_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stale_lock, "PATIENCE", 0.2)
    with (folder / "dac-jobs").open("w") as job:
        fcntl.flock(job, fcntl.LOCK_SH)
        assert start(folder)
        assert "are still saving; waiting, at most" in capsys.readouterr().err
    assert start(folder) and capsys.readouterr().err == ""


def test_nobody_waits_for_the_jobs_of_a_snakemake_that_runs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(folder), (folder / "dac-jobs").open("w") as job:
        fcntl.flock(job, fcntl.LOCK_SH)
        assert start(folder) and capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_is_left_to_snakemake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not start(tmp_path / "file")


@pytest.mark.parametrize("fault", [OSError("no locks here"), BlockingIOError()])
def test_a_file_that_cannot_be_locked_is_closed(
    folder: Path, fault: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: object, kind: int) -> None:
        raise fault

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(stale_lock.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(stale_lock.time, "monotonic", iter(range(0, 100, 10)).__next__)
    opened, true_open = [], Path.open

    def kept(path: Path, mode: str) -> object:  # else the file closes when it is forgotten
        opened.append(true_open(path, mode))
        return opened[-1]

    monkeypatch.setattr(Path, "open", kept)
    assert take_over(folder, is_local=True) is None and left(folder) == 2
    assert [file.closed for file in opened] == [True]


def test_the_advice_follows_the_message_that_a_lock_stops_snakemake() -> None:
    def shown(exception: str | None) -> str:
        record = logging.LogRecord("", logging.ERROR, "", 0, "It failed.", None, None)
        record.exception = exception
        assert advise(record)
        return record.getMessage()

    assert shown("LockException") == f"It failed.\n{ADVICE}"
    assert shown("WorkflowError") == shown(None) == "It failed."
