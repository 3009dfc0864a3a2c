"""Locks of a killed Snakemake are freed; those of one that runs, here or elsewhere, never are."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dac.workflow.stale_lock import say_where, take_over

HERE = socket.gethostname()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project folder as a Snakemake that was killed here leaves it."""
    (tmp_path / "locks").mkdir()
    for name in ("0.input.lock", "0.output.lock"):
        (tmp_path / "locks" / name).write_text("runs/x/model.pt\n")
    (tmp_path / "owner").write_text(HERE)
    return tmp_path


def take(folder: Path) -> bool:
    """Whether the folder is ours now; the lock is released at once."""
    file = take_over(folder / "locks", folder / "owner")
    say_where(file)
    if file is not None:
        file.close()
    return file is not None


def left(folder: Path) -> int:
    return len(list((folder / "locks").iterdir()))


def test_locks_of_a_dead_one_are_freed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert take(folder) and left(folder) == 0
    assert "was killed here" in capsys.readouterr().err
    assert take(folder) and capsys.readouterr().err == "", "said once"


def test_the_first_one_becomes_the_owner(tmp_path: Path) -> None:
    assert take(tmp_path / "project/.snakemake")
    assert (tmp_path / "project/.snakemake/owner").read_text() == HERE


def test_locks_of_another_machine_stay(folder: Path) -> None:
    (folder / "owner").write_text("another")
    assert not take(folder) and left(folder) == 2
    assert not take(folder), "a refusal makes nobody the owner"
    assert (folder / "owner").read_text() == "another"


def test_locks_stay_if_their_owner_does_not_say_where_it_runs(folder: Path) -> None:
    """It gave its jobs to a cluster, where they may still run."""
    (folder / "owner").write_text("")
    assert not take(folder) and left(folder) == 2
    (folder / "owner").unlink()
    assert not take(folder) and left(folder) == 2


def test_locks_of_one_that_runs_stay_until_it_ends(folder: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from dac.workflow.stale_lock import say_where, take_over
file = take_over(Path({str(folder)!r}) / "none", Path({str(folder)!r}) / "owner")
say_where(file)
print(file is not None, flush=True)
sys.stdin.read()
"""
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    other = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    with other:
        assert other.stdout.readline() == "True\n"
        assert not take(folder) and left(folder) == 2
        other.kill()
    assert take(folder) and left(folder) == 0


def test_a_folder_that_cannot_be_written_is_left_to_snakemake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not take(tmp_path / "file")
