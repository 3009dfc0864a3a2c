"""DVC around the workflow: what is rebuilt, what a clone gets, and remotes."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from dvc_project import (
    UP_TO_DATE,
    DvcProject,
    SshServer,
    folder_of_sshd,
    jobs,
    sshd_program,
    without_network,
)
from workflow_project import FIGURE, TOP, Project, stats

pytestmark = pytest.mark.slow
RESULTS = {"table": 1, "aggregate": 1}
TABLE, METRICS = "results/tables/toy.md", "results/summary/demo/metrics.json"
RUN = "runs/digits-6-30/dac/seed1"
SHIPPED = ("digits", "digits-all", "digits-compositions")


@pytest.fixture
def project(finished_dvc: DvcProject, tmp_path: Path) -> DvcProject:
    return finished_dvc.copy(tmp_path / "project")


@pytest.fixture
def clone(finished_dvc: DvcProject, tmp_path: Path) -> DvcProject:
    return finished_dvc.clone_without_results(tmp_path / "clone")


# --- a finished project (tests/workflow/conftest.py builds it with `dvc repro`) -----------------


def test_a_second_repro_has_nothing_to_do(finished_dvc: DvcProject) -> None:
    said = finished_dvc.dvc("repro")
    assert UP_TO_DATE in said and "snakemake" not in said.lower()
    assert finished_dvc.dvc("status").strip() == UP_TO_DATE
    assert finished_dvc.git("status", "--short") == ""


def test_metrics_are_those_of_the_table(finished_dvc: DvcProject) -> None:
    shown = json.loads(finished_dvc.dvc("metrics", "show", "--json"))
    assert shown[""]["data"][METRICS]["data"] == json.loads(finished_dvc.text(METRICS))
    closed = json.loads(finished_dvc.text(METRICS))["toy"]["digits-6-30"]["dac"]["closed"]
    assert f"{closed:.1f} ±" in finished_dvc.text(TABLE)
    assert re.search(rf"\b{closed}\b", finished_dvc.dvc("metrics", "show"))


@pytest.mark.parametrize(("command", "rows"), [(("show",), 4), (("diff", "HEAD"), 2 * 4)])
def test_plots_are_written_without_a_network(
    finished_dvc: DvcProject, tmp_path: Path, command: tuple[str, ...], rows: int
) -> None:
    said = finished_dvc.dvc_offline("plots", *command, "--out", str(tmp_path / "plots"))
    assert "failed" not in said and "WARNING" not in said
    page = (tmp_path / "plots/index.html").read_text()
    drawn = re.findall(r"var spec = (\{.*\});", page)
    assert len(drawn) == 2
    for spec in map(json.loads, drawn):
        fields = [spec["encoding"][axis]["field"].replace("\\", "") for axis in "xy"]
        assert len(spec["data"]["values"]) == rows
        assert all(0 <= float(row[name]) <= 1 for row in spec["data"]["values"] for name in fields)


# --- what is built again, and what is not -------------------------------------------------------


@pytest.fixture(scope="module")
def changed(finished_dvc: DvcProject, tmp_path_factory: pytest.TempPathFactory) -> DvcProject:
    """Built again after another parameter of DAC, an added method and an added figure."""
    project = finished_dvc.copy(tmp_path_factory.mktemp("changed") / "project")
    project.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    of_dac = {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}
    assert project.planned("all") == of_dac
    methods = ["labeled-only", "fixmatch", "dac"]
    project.change("aggregate", "tables", "toy", "methods", value=methods)
    of_models = FIGURE | {"kind": "models", "methods": ["labeled-only"], "seeds": [1, 2]}
    project.change("figures", "drawn", "toy-models", value=of_models)
    project.change("suites", "demo", "figures", value=["toy-heads", "toy-models"])
    added = {"train": 4, "evaluate": 4, "figure": 2, "outputs": 2}
    assert project.repro() == of_dac | added
    return project


def test_a_parameter_of_one_method_rebuilds_its_runs_only(
    finished_dvc: DvcProject, changed: DvcProject
) -> None:
    before, after = finished_dvc.contents(), changed.contents()
    differing = {name for name in before if before[name] != after[name]}
    assert before.keys() < after.keys() and f"{RUN}/run.json" in differing
    assert not any(name.startswith(("data", "runs/digits-6-30/labeled-only")) for name in differing)
    assert '"lambda_kd": 0.25' in changed.text("runs/digits-6-30/dac/seed2/run.json")
    assert changed.dvc("status").strip() == UP_TO_DATE
    assert changed.planned("all") == {}


def test_an_added_method_and_an_added_figure_add_only_their_files(
    finished_dvc: DvcProject, changed: DvcProject
) -> None:
    added = changed.contents().keys() - finished_dvc.contents().keys()
    places = {"/".join(name.split("/")[:3]).partition(".")[0] for name in added}
    assert places == {
        "runs/digits-6-30/fixmatch",
        "runs/digits-6-30/labeled-only",  # its outputs
        "results/figures/toy-models",
    }
    assert all(Path(name).stem == "outputs" for name in added if "/labeled-only/" in name)
    assert "fixmatch" in changed.text(TABLE)
    assert (changed.folder / "results/figures/toy-models.pdf").stat().st_size > 1000


def test_results_that_came_from_elsewhere_are_taken_as_they_are(
    finished: Project, changed: DvcProject, tmp_path: Path
) -> None:
    """A colleague changed a parameter and built; the files come here, over an older state."""
    here = finished.copy(tmp_path / "project")
    for name in ("params.yaml", "data", "runs", "results", "provenance"):
        here.run("cp", "-r", "--remove-destination", f"{changed.folder}/{name}", ".")
    assert here.planned("all") == {}


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
    assert project.repro("--single-item", "aggregate") == RESULTS
    assert "digits-6-30,dac,2," not in project.text("results/summary/demo/runs.csv")
    project.change("figures", "drawn", "toy-heads", "seeds", value=[2])  # it is still there
    assert project.repro("--single-item", "aggregate") == {"aggregate": 1}
    assert "digits-6-30,dac,2," in project.text("results/summary/demo/runs.csv")


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


def test_a_suite_with_pretraining_tracks_its_network_and_trains_from_it(
    project: DvcProject,
) -> None:
    project.change("aggregate", "tables", "toy", "tasks", value=["digits-6-30-pretrained"])
    chain = {"split": 2, "pretrain": 1, "train": 4, "evaluate": 4, "table": 1}
    assert project.planned("toy") == chain | {"toy": 1}, "one network for all runs"
    assert project.repro("--single-item", "pretrain") == {"pretrain": 1}
    assert any(project.folder.glob("pretrained/digits/*/model.pt"))
    assert project.dvc("status", "pretrain").strip() == UP_TO_DATE
    run = "runs/digits-6-30-pretrained/labeled-only/seed1"
    assert project.build(f"{run}/metrics.json") == {"split": 1, "train": 1, "evaluate": 1}
    assert '"pretrained_hash"' in project.text(f"{run}/metrics.json")


# --- remotes ------------------------------------------------------------------------------------


def test_a_clone_is_whole_after_a_pull_without_a_network(
    finished_dvc: DvcProject, clone: DvcProject
) -> None:
    print(f"\nnetwork cut by: {' '.join(without_network()) or 'nothing; unshare is not allowed'}")
    clone.dvc_offline("pull")
    assert clone.contents() == finished_dvc.contents()
    assert list((clone.folder / "pretrained").iterdir()) == [], "a suite without pre-training"
    assert_nothing_to_do(clone)
    clone.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    assert clone.planned("all") == {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}


def test_a_shared_folder_is_a_remote(
    finished_dvc: DvcProject, project: DvcProject, tmp_path: Path
) -> None:
    project.dvc("remote", "add", "--default", "lab", str(tmp_path / "shared"))
    assert_travels(finished_dvc, project, tmp_path / "clone")


@pytest.mark.sshd
def test_an_ssh_server_is_a_remote(
    finished_dvc: DvcProject, project: DvcProject, tmp_path: Path
) -> None:
    program = sshd_program() or refuse("sshd is not installed: apt-get install openssh-server")
    server = SshServer(tmp_path)
    with folder_of_sshd(), server.running(program):
        project.dvc("remote", "add", "--default", "lab", f"ssh://lab{tmp_path}/there")
        assert_travels(finished_dvc, project, tmp_path / "clone", HOME=str(server.home))
    assert "Accepted publickey" in server.log()


def test_the_shipped_results_are_restored_offline(tmp_path: Path) -> None:
    """The results that the repository itself carries, as a user gets them."""
    if not (TOP / ".git").exists():
        pytest.skip("no Git checkout: nothing can be cloned")
    clone = DvcProject(TOP).clone(tmp_path / "clone")
    clone.dvc_offline("pull")
    assert_nothing_to_do(clone)
    assert clone.planned("all", "--config", "suite=demo-all") == {}
    shown = {"README.md": ("digits",), "docs/results.md": SHIPPED}
    for document, tables in shown.items():
        text = (TOP / document).read_text()
        for name in tables:
            assert clone.text(f"results/tables/{name}.md").strip() in text, (document, name)


# --- helpers ------------------------------------------------------------------------------------


def assert_nothing_to_do(project: DvcProject) -> None:
    """Snakemake and DVC agree that everything is there, and leave it as it is."""
    assert stats(project.snakemake("-n", "all")) == {}
    said = project.dvc_offline("repro")
    assert UP_TO_DATE in said and "snakemake" not in said.lower()
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


def refuse(reason: str) -> str:
    """Skip, or fail where the machine is meant to have it (DAC_REQUIRE_SSHD=1)."""
    if os.environ.get("DAC_REQUIRE_SSHD"):
        pytest.fail(reason)
    pytest.skip(reason)
