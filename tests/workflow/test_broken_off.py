"""Jobs and Snakemakes that end early: the next start of the same command goes on, unharmed."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait_for
from workflow_project import Project, variables

from dac.workflow.stale_lock import ADVICE

pytestmark = [pytest.mark.faults, pytest.mark.slow]
RUN = "runs/digits-6-30/fixmatch/seed1"
PREPARED = "data/prepared/digits/meta.json"


@contextmanager
def started(project: Project, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real Snakemake in the background, with nothing but `--cores 1`."""
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--", f"{RUN}/run.json"]
    with log.open("w") as said:
        process = subprocess.Popen(
            command,
            cwd=project.folder,
            env=variables({}),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_kill_9_of_snakemake_alone_ends_its_training_and_the_same_command_goes_on(
    project: Project, tmp_path: Path
) -> None:
    project.pause(at_step=7)
    run, said = project.folder / RUN, tmp_path / "said"
    with started(project, said) as first:
        wait_for((project.folder / "paused").exists)
        first.kill()
        first.wait()
    assert any((project.folder / ".snakemake/locks").iterdir()), "what a kill leaves"
    (run / "history.csv").touch()  # what a power cut leaves while results are written
    try:
        with started(project, said) as second:
            # Training has the signal, but looks at it only after a step, which we hold up.
            wait_for(lambda: "still saving; waiting" in said.read_text())
            project.go_on()
            assert second.wait(timeout=120) == 0, said.read_text() + project.logs()
    finally:
        (project.folder / "pause").unlink(missing_ok=True)  # nobody waits for ever
    assert "its locks are freed" in said.read_text() and "--unlock" not in said.read_text()
    log = (run / "train.log").read_text()
    assert "resuming" in log, "the first one has left before its end, its state saved"
    assert len((run / "history.csv").read_text().splitlines()) > 1
    assert (run / "model.pt").exists()


def test_only_a_real_run_takes_the_folder_over(project: Project) -> None:
    owner = project.folder / ".snakemake/dac-owner"
    owner.write_text("another")
    lock = project.folder / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text("results/tables/toy.md\n")
    for options in (("-n", "all"), ("--rulegraph", "dot", "all"), ("--list-rules",)):
        project.snakemake(*options)
        assert owner.read_text() == "another" and lock.exists()
    said = project.snakemake("-R", "table", "--", "all", check=False)
    assert "Directory cannot be locked" in said and ADVICE in said
    project.snakemake("--unlock")
    assert owner.read_text().startswith("another") and not lock.exists()
    project.snakemake("all")
    assert owner.read_text() == f"{socket.gethostname()}\n"


def test_a_failed_prepare_leaves_the_set_that_was_there(project: Project) -> None:
    def contents() -> dict[str, bytes]:
        files = {path for path in (project.folder / "data/prepared").rglob("*") if path.is_file()}
        return {str(path): path.read_bytes() for path in files if path.name != "lock"}

    before = contents()
    project.change("prepare", "digits", "side", value=18)
    writer = project.folder / "dac/data/prepared_writer.py"
    whole = "        assert rows == shape[0]"
    assert whole in writer.read_text()
    broken = '        raise UserError("the disk has gone")\n'
    writer.write_text(writer.read_text().replace(whole, broken + whole))
    said = project.snakemake(PREPARED, check=False)
    assert "Error in rule prepare" in said
    assert "the disk has gone" in project.text("logs/prepare/digits.log")
    assert len(before) >= 5 and contents() == before
    assert project.planned(PREPARED) == {"prepare": 1}, "it is not taken for the new one"
    project.run("rm", "-rf", ".snakemake")  # what travels with the results says the same
    assert project.planned(PREPARED) == {"prepare": 1}
    project.change("prepare", "digits", "side", value=16)
    assert project.planned("all") == {}, "the set is still that of these parameters"
