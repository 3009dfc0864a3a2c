"""What faults do to a project under DVC: builds that are broken off, remotes, caches.

Every test states the exit code, the message, and that the files at hand are unharmed.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from dvc_project import UP_TO_DATE, DvcProject, damage, dvc_command, jobs
from waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.slow]
TABLE = "results/tables/toy.md"
RUN = "runs/digits-6-30/dac/seed1"


@pytest.fixture(scope="module")
def finished(finished_dvc: DvcProject) -> DvcProject:
    return finished_dvc


@pytest.fixture
def project(finished: DvcProject, tmp_path: Path) -> DvcProject:
    return finished.copy(tmp_path / "project")


@pytest.fixture
def clone(finished: DvcProject, tmp_path: Path) -> DvcProject:
    return finished.clone_without_results(tmp_path / "clone")


# --- a build that is broken off -----------------------------------------------------------------


def test_a_repro_that_was_broken_off_goes_on_where_it_was(project: DvcProject) -> None:
    """By Ctrl-C; test_broken_off.py has kill -9, which leaves Snakemake's locks."""
    project.change("aggregate", "tables", "toy", "seeds", value=[1])
    recorded, whole = project.recorded("train"), project.contents()
    others = {name: md5 for name, md5 in whole.items() if "/labeled-only/" in name}
    project.change("methods", "dac", "train", value={"epochs": 4})
    project.pause(at_step=4)
    code, said = interrupt(project, when=lambda: has_checkpoint(project))
    assert code == 255 and "Terminating processes on user request" in said
    assert "failed to reproduce 'train'" in said
    assert project.recorded("train") == recorded
    assert not (project.folder / f"{RUN}/model.pt").exists()
    assert others.items() <= project.contents().items()

    project.go_on()
    assert project.repro("--single-item", "train") == {"train": 1, "evaluate": 1}
    assert has_resumed(project)
    assert project.dvc("status", "train").strip() == UP_TO_DATE


# --- remotes ----------------------------------------------------------------------------


def test_a_pull_never_overwrites_what_was_changed_here(project: DvcProject) -> None:
    original = project.text(TABLE)
    (project.folder / TABLE).write_text("my notes")
    state = project.folder / RUN / "work/state.pt"
    state.write_bytes(b"half a training")
    said = project.dvc("pull", code=1)
    assert "unsaved files without confirmation. Use `--force`" in said
    assert project.text(TABLE) == "my notes"
    project.dvc("pull", "--force")
    assert project.text(TABLE) == original
    assert state.read_bytes() == b"half a training"


def test_an_object_that_the_remote_lacks_is_named(clone: DvcProject, finished: DvcProject) -> None:
    lost = finished.object_of(TABLE, ".dvc-remote").relative_to(finished.folder)
    content = (clone.folder / lost).read_bytes()
    (clone.folder / lost).unlink()
    said = clone.dvc("pull", code=1)
    assert f"failed to transfer '{lost.parent.name}{lost.name}' - [Errno 2] No such file" in said
    assert clone.contents() == {}
    (clone.folder / lost).write_bytes(content)
    clone.dvc("pull")
    assert clone.contents() == finished.contents()


def test_a_damaged_object_of_the_remote_is_never_pulled(
    clone: DvcProject, finished: DvcProject
) -> None:
    bad = finished.object_of(TABLE, ".dvc-remote").relative_to(finished.folder)
    damage(clone.folder / bad, 0o444)
    said = clone.dvc("pull", code=1)
    assert "Checkout failed for following targets:\nresults/tables\n" in said
    whole = finished.contents()
    assert clone.contents() == {name: whole[name] for name in whole if not is_table(name)}
    shutil.copy(finished.folder / bad, clone.folder / bad)
    clone.dvc("pull")
    assert clone.contents() == finished.contents()


# --- the cache --------------------------------------------------------------------------


def test_a_lost_object_of_the_cache_is_told_and_pulled(project: DvcProject) -> None:
    before = project.contents()
    project.object_of(TABLE).unlink()
    (project.folder / TABLE).unlink()
    said = project.dvc("checkout", code=255)
    assert "Checkout failed for following targets:\nresults/tables\n" in said
    # DVC takes a folder away that it cannot restore as a whole; all of it was in the cache.
    assert project.contents() == {name: before[name] for name in before if not is_table(name)}
    project.dvc("pull")
    assert project.contents() == before


def test_a_lost_object_of_the_cache_is_taken_from_the_workspace(project: DvcProject) -> None:
    lost, before = project.object_of(TABLE), project.contents()
    lost.unlink()
    assert "not in cache" in project.dvc("status")
    assert project.repro() == {}
    assert lost.is_file() and project.contents() == before


def test_a_pull_repairs_a_damaged_object_of_the_cache_that_is_writable(project: DvcProject) -> None:
    before = project.contents()
    damage(project.object_of(TABLE), 0o644)
    (project.folder / TABLE).unlink()
    assert "1 file fetched" in project.dvc("pull")
    assert project.contents() == before
    assert "objects intact" in project.call(sys.executable, "-m", "dac.workflow.cache_check")


def test_a_damaged_object_of_the_cache_that_dvc_believes_is_found_by_us(
    project: DvcProject,
) -> None:
    before, bad = project.contents(), project.object_of(TABLE)
    damage(bad, 0o444)  # the mode that DVC itself gives
    (project.folder / TABLE).unlink()
    project.dvc("pull")
    assert project.text(TABLE).endswith("!"), "DVC looks by itself now: drop our cache check"
    assert project.dvc("status").strip() == UP_TO_DATE
    said = project.call(sys.executable, "-m", "dac.workflow.cache_check", code=1)
    assert f"{bad.relative_to(project.folder)}: its content has the MD5" in said
    assert f"  {TABLE}: damaged or changed, too" in said
    bad.unlink()
    (project.folder / TABLE).unlink()
    project.dvc("pull")
    assert project.contents() == before
    assert "objects intact" in project.call(sys.executable, "-m", "dac.workflow.cache_check")


def test_a_read_only_cache_is_told_before_anything_is_run(project: DvcProject) -> None:
    read_only = mounted_read_only(project.folder / ".dvc/cache")
    before, recorded = project.contents(), project.text("dvc.lock")
    project.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    said = project.call(*read_only, *dvc_command("repro"), code=255)
    assert f"DVC's cache {project.folder}/.dvc/cache cannot be written; nothing was run" in said
    assert "nothing was run" in said and "failed to reproduce" in said and jobs(said) == {}
    assert project.text("dvc.lock") == recorded and project.contents() == before


def test_a_pull_into_a_read_only_cache_fails_without_harm(clone: DvcProject) -> None:
    cache = clone.folder / ".dvc/cache"
    cache.mkdir()
    said = clone.call(*mounted_read_only(cache), *dvc_command("pull"), code=255)
    assert f"[Errno 30] Read-only file system: '{cache}" in said
    assert clone.contents() == {}
    clone.dvc("pull")
    assert clone.dvc("status").strip() == UP_TO_DATE


# --- helpers ------------------------------------------------------------------------------------


def is_table(name: str) -> bool:
    return name.startswith("results/tables/")


def has_checkpoint(project: DvcProject) -> bool:
    return any((project.folder / RUN / "work").rglob("last-*.pt"))


def has_resumed(project: DvcProject) -> bool:
    log = project.folder / RUN / "train.log"
    return log.is_file() and "resuming" in log.read_text()


def interrupt(project: DvcProject, *, when: Callable[[], bool]) -> tuple[int, str]:
    """Send Ctrl-C to all processes of `dvc repro`."""
    with (project.folder.parent / "said").open("w+") as said:
        process = subprocess.Popen(
            dvc_command("repro", "--single-item", "train"),
            cwd=project.folder,
            start_new_session=True,
            env=project.environment({}),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(when)
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(timeout=120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        return code, said.read()


def mounted_read_only(folder: Path) -> list[str]:
    """A prefix for commands that see the folder read-only; permissions do not bind root."""
    script = f'mount --bind "{folder}" "{folder}" && mount -o remount,bind,ro "{folder}"'
    if os.getuid() != 0:
        pytest.skip("a read-only mount needs root")
    if subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True).returncode != 0:
        pytest.skip("this machine forbids mounts")
    return ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "read-only"]
