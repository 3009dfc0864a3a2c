"""DVC around the workflow: what is rebuilt, what a clone gets, and what faults do to results.

Every fault test states the exit code, the message, and that the files at hand are unharmed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from dvc_project import (
    OUTPUTS,
    DvcProject,
    SshServer,
    damage,
    dvc_command,
    folder_of_sshd,
    jobs,
    sshd_program,
    without_network,
)
from waiting import wait_for
from workflow_project import TOP, WHOLE, stats

pytestmark = pytest.mark.slow
UP_TO_DATE = "Data and pipelines are up to date."
RESULTS = {"table": 1, "aggregate": 1}
TABLE, METRICS = "results/tables/toy.md", "results/tables/metrics.json"
RUN = "runs/digits-6-30/dac/seed1"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> DvcProject:
    """Built, pushed into the repository and committed. Tests must copy it before they change it."""
    project = DvcProject.new(tmp_path_factory.mktemp("dvc") / "project")
    assert project.repro() == WHOLE
    project.dvc("push")
    project.commit("Results")
    return project


@pytest.fixture
def project(finished: DvcProject, tmp_path: Path) -> DvcProject:
    return finished.copy(tmp_path / "project")


@pytest.fixture
def clone(finished: DvcProject, tmp_path: Path) -> DvcProject:
    """Of another user: no results, no cache, no memory of Snakemake."""
    clone = finished.clone(tmp_path / "clone")
    assert not any((clone.folder / name).exists() for name in (*OUTPUTS, ".snakemake"))
    return clone


# --- a finished project -------------------------------------------------------------------------


def test_a_second_repro_has_nothing_to_do(finished: DvcProject) -> None:
    said = finished.dvc("repro")
    assert UP_TO_DATE in said and "snakemake" not in said.lower()
    assert finished.dvc("status").strip() == UP_TO_DATE
    assert finished.git("status", "--short") == ""


def test_a_suite_without_pretraining_has_an_empty_folder_for_it(clone: DvcProject) -> None:
    clone.dvc("pull")
    assert list((clone.folder / "pretrained").iterdir()) == []
    assert clone.dvc("status").strip() == UP_TO_DATE


def test_metrics_are_those_of_the_table(finished: DvcProject) -> None:
    shown = json.loads(finished.dvc("metrics", "show", "--json"))
    assert shown[""]["data"][METRICS]["data"] == json.loads(finished.text(METRICS))
    closed = json.loads(finished.text(METRICS))["toy"]["digits-6-30"]["dac"]["closed"]
    assert f"{closed:.1f} ±" in finished.text(TABLE)
    assert re.search(rf"\b{closed}\b", finished.dvc("metrics", "show"))


@pytest.mark.parametrize(("command", "rows"), [(("show",), 4), (("diff", "HEAD"), 2 * 4)])
def test_plots_are_written_without_a_network(
    finished: DvcProject, tmp_path: Path, command: tuple[str, ...], rows: int
) -> None:
    said = finished.dvc_offline("plots", *command, "--out", str(tmp_path / "plots"))
    assert "failed" not in said and "WARNING" not in said
    page = (tmp_path / "plots/index.html").read_text()
    drawn = re.findall(r"var spec = (\{.*\});", page)
    assert len(drawn) == 2
    for spec in map(json.loads, drawn):
        fields = [spec["encoding"][axis]["field"].replace("\\", "") for axis in "xy"]
        assert len(spec["data"]["values"]) == rows
        assert all(0 <= float(row[name]) <= 1 for row in spec["data"]["values"] for name in fields)


# --- what is built again, and what is not -------------------------------------------------------


def test_a_parameter_of_one_method_rebuilds_its_runs_only(project: DvcProject) -> None:
    before = project.contents()
    project.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    assert project.repro() == {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}
    after = project.contents()
    changed = {name for name in before if before[name] != after[name]}
    assert before.keys() == after.keys() and f"{RUN}/run.json" in changed
    assert not any(name.startswith(("data", "runs/digits-6-30/labeled-only")) for name in changed)
    assert project.dvc("status").strip() == UP_TO_DATE


def test_an_added_seed_adds_only_its_runs(project: DvcProject) -> None:
    before = project.contents()
    project.change("aggregate", "tables", "toy", "seeds", value=[1, 2, 3])
    assert project.repro() == {"split": 1, "train": 2, "evaluate": 2, **RESULTS}
    after = project.contents()
    assert all(after[name] == before[name] for name in before if name.startswith(("data", "runs")))
    assert project.dvc("status").strip() == UP_TO_DATE


def test_comments_rebuild_nothing(project: DvcProject) -> None:
    for name in ("params.yaml", "dac/train.py", "workflow/rules/train.smk"):
        path = project.folder / name
        path.write_text(path.read_text() + "\n# a comment\n")
    said = project.dvc("repro")
    assert UP_TO_DATE in said and "snakemake" not in said.lower()


def test_a_parameter_that_changes_no_result_runs_a_stage_but_no_job(project: DvcProject) -> None:
    project.change("train", "defaults", "workers", value=2)
    before = project.contents()
    said = project.dvc("repro")
    assert re.findall(r"Running stage '(\w+)'", said) == ["pretrain", "train"]
    assert jobs(said) == {}
    assert project.contents() == before


def test_a_run_that_only_a_figure_needs_is_in_the_list_of_runs_at_once(project: DvcProject) -> None:
    project.change("aggregate", "tables", "toy", "seeds", value=[1])
    project.repro()
    project.change("figures", "drawn", "toy-heads", "seeds", value=[2])  # it is still there
    assert project.repro() == {"aggregate": 1, "figure": 1}
    assert "digits-6-30,dac,2," in project.text("results/tables/runs.csv")
    assert project.dvc("status").strip() == UP_TO_DATE


def test_a_report_changes_nothing_that_is_tracked(project: DvcProject) -> None:
    project.snakemake("report")
    assert "<html" in project.text("results/report.html")
    assert project.dvc("status").strip() == UP_TO_DATE


def test_a_dry_repro_tells_what_it_would_do(clone: DvcProject) -> None:
    assert UP_TO_DATE in clone.dvc("repro", "--dry", "--allow-missing")
    clone.dvc("pull")
    clone.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    said = clone.dvc("repro", "--dry")  # which DVC can tell only where the inputs are
    assert re.findall(r"Running stage '(\w+)'", said)[:2] == ["download", "split"]


def test_preparing_the_same_data_again_is_no_change(project: DvcProject) -> None:
    before = project.recorded("prepare")
    shutil.rmtree(project.folder / "data/prepared")
    said = project.dvc("repro", "prepare")
    assert jobs(said) == {"prepare": 1}
    assert project.recorded("prepare") == before
    assert project.git("diff", "--stat", "dvc.lock") == ""


def test_a_suite_with_pretraining_tracks_its_networks(project: DvcProject) -> None:
    project.change("aggregate", "tables", "toy", "tasks", value=["digits-6-30-pretrained"])
    said = project.dvc("repro", "pretrain")
    assert jobs(said) == {"pretrain": 1}
    assert any(project.folder.glob("pretrained/digits/*/model.pt"))
    assert project.dvc("status", "pretrain").strip() == UP_TO_DATE


# --- remotes ------------------------------------------------------------------------------------


def test_a_clone_is_whole_after_a_pull_without_a_network(
    finished: DvcProject, clone: DvcProject
) -> None:
    print(f"\nnetwork cut by: {' '.join(without_network()) or 'nothing; unshare is not allowed'}")
    clone.dvc_offline("pull")
    assert clone.contents() == finished.contents()
    assert_nothing_to_do(clone)
    clone.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    assert clone.planned("all") == {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}


def test_a_shared_folder_is_a_remote(
    finished: DvcProject, project: DvcProject, tmp_path: Path
) -> None:
    project.dvc("remote", "add", "--default", "lab", str(tmp_path / "shared"))
    assert_travels(finished, project, tmp_path / "clone")


def test_an_ssh_server_is_a_remote(
    finished: DvcProject, project: DvcProject, tmp_path: Path
) -> None:
    program = sshd_program() or refuse("sshd is not installed: apt-get install openssh-server")
    server = SshServer(tmp_path)
    with folder_of_sshd(), server.running(program):
        project.dvc("remote", "add", "--default", "lab", f"ssh://lab{tmp_path}/there")
        assert_travels(finished, project, tmp_path / "clone", HOME=str(server.home))
    assert "Accepted publickey" in server.log()


def test_the_shipped_results_are_restored_offline(tmp_path: Path) -> None:
    """The results that the repository itself carries, as a user gets them."""
    if not (TOP / ".git").exists():
        pytest.skip("no Git checkout: nothing can be cloned")
    clone = DvcProject(TOP).clone(tmp_path / "clone")
    clone.dvc_offline("pull")
    assert_nothing_to_do(clone)
    assert clone.planned("all", "--config", "suite=demo-all") == {"aggregate": 1}  # of its runs
    shown = (TOP / "README.md").read_text()
    for name in ("digits", "digits-all", "digits-compositions"):
        assert clone.text(f"results/tables/{name}.md").strip() in shown, name


# --- faults: a build that is broken off ---------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_a_repro_that_was_broken_off_goes_on_where_it_was(
    project: DvcProject, number: signal.Signals
) -> None:
    recorded, finished_run = project.recorded("train"), project.contents()
    project.change("methods", "dac", "train", value={"epochs": 50})
    code, said = break_off(project, number)
    if number == signal.SIGINT:
        assert code == 255 and "Terminating processes on user request" in said
    else:
        assert code == -signal.SIGKILL
        said = project.dvc("repro", code=255)
        assert "If it runs on no machine: snakemake --unlock; then run the same command" in said
        project.snakemake("--unlock")
    assert "failed to reproduce 'train'" in said
    assert project.recorded("train") == recorded
    assert not (project.folder / f"{RUN}/model.pt").exists()
    others = {name: md5 for name, md5 in finished_run.items() if "/labeled-only/" in name}
    assert others.items() <= project.contents().items()

    assert project.repro() == {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}
    assert "resuming" in project.text(f"{RUN}/train.log")
    assert project.dvc("status").strip() == UP_TO_DATE


# --- faults: remotes ----------------------------------------------------------------------------


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


# --- faults: the cache --------------------------------------------------------------------------


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


def test_a_pull_mends_a_damaged_object_of_the_cache_that_is_writable(project: DvcProject) -> None:
    before = project.contents()
    damage(project.object_of(TABLE), 0o644)
    (project.folder / TABLE).unlink()
    assert "1 file fetched" in project.dvc("pull")
    assert project.contents() == before
    assert "objects intact" in project.call(sys.executable, "-m", "dac.cache_check")


def test_a_damaged_object_of_the_cache_that_dvc_believes_is_found_by_us(
    project: DvcProject,
) -> None:
    before, bad = project.contents(), project.object_of(TABLE)
    damage(bad, 0o444)  # the mode that DVC itself gives
    (project.folder / TABLE).unlink()
    project.dvc("pull")
    assert project.text(TABLE).endswith("!"), "DVC looks by itself now: dac.cache_check can go"
    assert project.dvc("status").strip() == UP_TO_DATE
    said = project.call(sys.executable, "-m", "dac.cache_check", code=1)
    assert f"{bad.relative_to(project.folder)}: its content has the MD5" in said
    assert f"  {TABLE}: damaged or changed, too" in said
    bad.unlink()
    (project.folder / TABLE).unlink()
    project.dvc("pull")
    assert project.contents() == before
    assert "objects intact" in project.call(sys.executable, "-m", "dac.cache_check")


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


def assert_nothing_to_do(project: DvcProject) -> None:
    """DVC and Snakemake agree that everything is there."""
    assert project.dvc("status").strip() == UP_TO_DATE
    said = project.dvc_offline("repro")
    assert UP_TO_DATE in said and "snakemake" not in said.lower()
    assert stats(project.snakemake("-n", "all")) == {}
    assert project.dvc("status").strip() == UP_TO_DATE
    assert project.git("status", "--short") == ""


def assert_travels(
    finished: DvcProject, project: DvcProject, folder: Path, **environment: str
) -> None:
    """Push to the default remote, clone, pull there: the same files."""
    shutil.rmtree(project.folder / ".dvc-remote")
    project.dvc("push", **environment)
    project.commit("Another remote")
    clone = project.clone(folder)
    clone.dvc("pull", **environment)
    assert clone.contents() == finished.contents()
    assert clone.dvc("status").strip() == UP_TO_DATE


def break_off(project: DvcProject, number: signal.Signals) -> tuple[int, str]:
    """Send a signal to all of `dvc repro` when training has left a checkpoint."""
    with (project.folder.parent / "said").open("w+") as said:
        process = subprocess.Popen(
            dvc_command("repro"),
            cwd=project.folder,
            start_new_session=True,
            env=project.environment({}),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_for(lambda: any((project.folder / RUN / "work").rglob("last-*.pt")))
            os.killpg(process.pid, number)
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


def refuse(reason: str) -> str:
    """Skip, or fail where the machine is meant to have it (DAC_REQUIRE_SSHD=1)."""
    if os.environ.get("DAC_REQUIRE_SSHD"):
        pytest.fail(reason)
    pytest.skip(reason)
