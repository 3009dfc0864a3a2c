"""The workflow itself: what is built, what is built again, and what is not."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import wait_for
from workflow_project import FIGURE, TOP, WHOLE, Project, executed, variables

from dac import grid, params, plan

pytestmark = pytest.mark.slow
RESULTS = {"table": 1, "aggregate": 1}


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Project:
    """The toy suite, built once. Tests must copy it before they change anything."""
    project = Project.new(tmp_path_factory.mktemp("workflow") / "project")
    assert project.build("all") == WHOLE
    return project


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    return finished.copy(tmp_path / "project")


# --- what is there ------------------------------------------------------------------------------


def test_every_result_of_the_suite_is_there(finished: Project) -> None:
    for name in ("tables/toy.csv", "tables/toy.md", "tables/toy.tex", "tables/toy.html"):
        assert finished.text(f"results/{name}")
    assert (finished.folder / "results/figures/toy-heads.pdf").stat().st_size > 1000
    assert len(finished.text("results/tables/runs.csv").splitlines()) == 1 + 4
    assert len(list((finished.folder / "runs").rglob("train.log"))) == 4
    assert len(list((finished.folder / "runs").rglob("train.tsv"))) == 4


def test_a_finished_suite_has_nothing_to_do(finished: Project) -> None:
    assert finished.planned("all") == {}


def test_the_log_of_a_run_says_where_it_ran(finished: Project) -> None:
    first = finished.text("runs/digits-6-30/dac/seed1/train.log").splitlines()[0]
    assert re.fullmatch(r"on \S+, GPU none", first)


@pytest.mark.parametrize(
    ("target", "jobs"),
    [
        ("data", {"download": 1, "prepare": 1}),
        ("splits", {"download": 1, "prepare": 1, "split": 2}),
        ("runs/digits-6-30/dac/seed1/metrics.json", None),
        ("toy-heads", None),
    ],
)
def test_targets_by_name_and_by_path(tmp_path: Path, target: str, jobs: dict[str, int]) -> None:
    one_run = {"download": 1, "prepare": 1, "split": 1, "train": 1, "evaluate": 1}
    expected = jobs or one_run | ({"figure": 1} if target == "toy-heads" else {})
    assert {**Project.new(tmp_path / "p").planned(target), target: 1} == {**expected, target: 1}


def test_a_run_outside_the_suite_can_be_asked_for(finished: Project) -> None:
    said = finished.planned("runs/digits-6-60/fixmatch/seed7/metrics.json")
    assert said == {"split": 1, "train": 1, "evaluate": 1}


# --- what is built again, and what is not ---------------------------------------------------------


def test_comments_in_code_rules_and_parameters_rerun_nothing(project: Project) -> None:
    for name in ("dac/train.py", "dac/losses.py", "workflow/rules/train.smk", "params.yaml"):
        path = project.folder / name
        path.write_text(path.read_text() + "\n# a comment\n")
    assert project.planned("all") == {}


def test_files_that_were_pulled_again_rerun_nothing(project: Project) -> None:
    touch_in_random_order(project)
    assert project.planned("all") == {}


def test_a_clone_without_snakemakes_own_memory_reruns_nothing(project: Project) -> None:
    project.run("rm", "-rf", ".snakemake")
    touch_in_random_order(project)
    assert project.planned("all") == {}


def test_a_parameter_of_one_method_reruns_its_runs_only(project: Project) -> None:
    project.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    others = digest_of(project, "runs/digits-6-30/labeled-only/*/*.json")
    assert project.planned("all") == {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}
    assert project.build("all") == {"train": 2, "evaluate": 2, "figure": 1, **RESULTS}
    assert digest_of(project, "runs/digits-6-30/labeled-only/*/*.json") == others
    assert '"lambda_kd": 0.25' in project.text("runs/digits-6-30/dac/seed2/run.json")
    assert project.planned("all") == {}


@pytest.mark.parametrize(
    ("path", "value", "jobs"),
    [
        (("train", "defaults", "workers"), 2, {}),
        (("train", "by_data", "digits", "checkpoint_every"), 5, {}),
        (("train", "by_data", "digits", "log_every"), 3, {}),
        (("methods", "labeled-only", "settings", "reject_below"), 0.5, {"evaluate": 2, **RESULTS}),
        (("train", "by_data", "cifar100", "weight_decay"), 0.5, {}),
        (("methods", "softmatch", "settings", "num_sigma"), 3.0, {}),
        (  # what DAC's target head learns with
            ("methods", "fixmatch", "settings", "tau"),
            0.5,
            {"train": 2, "evaluate": 2, "figure": 1, **RESULTS},
        ),
        (("evaluate", "last_evaluations"), 3, {"evaluate": 4, "figure": 1, **RESULTS}),
        (("aggregate", "tables", "toy", "title"), "Other", RESULTS),
        (("figures", "drawn", "toy-heads", "title"), "Other", {"figure": 1}),
        (("figures", "histogram_bins"), 7, {}),
        (("plan", "teraflops"), 1.0, {}),
        (
            ("prepare", "digits", "mean"),
            [0.3, 0.3, 0.3],
            {"train": 4, "evaluate": 4, "figure": 1, **RESULTS},
        ),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_changed_parameter_reruns_what_depends_on_it(
    project: Project, path: tuple[str, ...], value: object, jobs: dict[str, int]
) -> None:
    project.change(*path, value=value)
    assert project.planned("all") == jobs


def test_an_added_seed_adds_only_its_runs(project: Project) -> None:
    project.change("aggregate", "tables", "toy", "seeds", value=[1, 2, 3])
    assert project.planned("all") == {"split": 1, "train": 2, "evaluate": 2, **RESULTS}


def test_an_added_method_adds_only_its_runs(project: Project) -> None:
    methods = ["labeled-only", "fixmatch", "dac"]
    project.change("aggregate", "tables", "toy", "methods", value=methods)
    assert project.planned("all") == {"train": 2, "evaluate": 2, **RESULTS}
    project.build("all")
    assert "fixmatch" in project.text("results/tables/toy.md")
    assert project.planned("all") == {}


def test_another_split_retrains_the_runs_on_it(project: Project) -> None:
    project.change("tasks", "digits-6-30", "labels_per_class", value=4)
    assert project.planned("all") == {"split": 2, "train": 4, "evaluate": 4, "figure": 1, **RESULTS}


def test_results_of_other_parameters_never_count_even_without_any_memory(project: Project) -> None:
    project.run("rm", "-rf", ".snakemake", "provenance")
    project.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    said = project.run(sys.executable, "-m", "dac.aggregate", "--suite", "demo")
    assert "other parameters" in said and "lambda_kd" in said
    row = next(line for line in said.splitlines() if line.startswith("| dac "))
    assert re.search(r"\| –", row)  # noqa: RUF001


def test_another_published_value_or_order_of_columns_makes_the_table_again(
    project: Project,
) -> None:
    values = project.folder / "dac/paper_values.csv"
    values.write_text(values.read_text().replace("26.8", "26.9"))
    assert project.planned("all") == {"table": 1}
    project.build("all")
    metrics = {"AUROC": "auroc", "closed": "closed.best"}
    project.change("aggregate", "tables", "toy", "metrics", value=metrics)
    project.build("all")
    turned = dict(reversed(metrics.items()))
    project.change("aggregate", "tables", "toy", "metrics", value=turned)
    assert project.planned("all") == RESULTS


def test_results_that_came_from_elsewhere_are_taken_as_they_are(
    finished: Project, project: Project, tmp_path: Path
) -> None:
    """A colleague changes a parameter and builds; the files come here, over an older state."""
    colleague = finished.copy(tmp_path / "colleague")
    colleague.change("aggregate", "tables", "toy", "title", value="Other")
    colleague.change("methods", "labeled-only", "settings", "labeled_views", value=2)
    colleague.build("all")
    for name in ("params.yaml", "data", "runs", "results", "provenance"):
        project.run("cp", "-r", "--remove-destination", f"{colleague.folder}/{name}", ".")
    assert project.planned("all") == {}


def test_a_figure_of_several_models_is_drawn(project: Project) -> None:
    figure = FIGURE | {"kind": "models", "methods": ["labeled-only"], "seeds": [1, 2]}
    project.change("figures", "drawn", "toy-models", value=figure)
    project.change("suites", "demo", "figures", value=["toy-heads", "toy-models"])
    assert project.build("all") == {"outputs": 2, "figure": 1}
    assert project.planned("all") == {}


def test_the_pretraining_chain_is_built_and_shared(project: Project) -> None:
    project.change("aggregate", "tables", "toy", "tasks", value=["digits-6-30-pretrained"])
    counts = project.build("toy")
    assert counts == {"split": 2, "pretrain": 1, "train": 4, "evaluate": 4, "table": 1, "toy": 1}


# --- faults ---------------------------------------------------------------------------------------


def test_one_failing_run_leaves_the_others_and_no_file_that_looks_finished(
    tmp_path: Path,
) -> None:
    project = Project.new(tmp_path / "p")
    project.change("methods", "labeled-only", "train", value={"lr": 1e30})
    said = project.snakemake("--keep-going", "all", check=False)
    assert executed(said)["train"] == 4
    assert not (project.folder / "runs/digits-6-30/labeled-only/seed1/model.pt").exists()
    assert (project.folder / "runs/digits-6-30/dac/seed2/metrics.json").exists()
    assert "not finite" in project.text("runs/digits-6-30/labeled-only/seed1/train.log")
    said = project.run(sys.executable, "-m", "dac.aggregate", "--suite", "demo")
    assert "labeled-only" in said and "2 of 4 runs missing" in said


def test_a_killed_workflow_goes_on_where_it_was(tmp_path: Path, finished: Project) -> None:
    project = Project.new(tmp_path / "p")
    target = "runs/digits-6-30/dac/seed1/run.json"
    project.snakemake("splits")
    project.change("train", "by_data", "digits", "epochs", value=400)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", target]
    process = subprocess.Popen(
        command,
        cwd=project.folder,
        start_new_session=True,
        env=variables({}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    work = project.folder / "runs/digits-6-30/dac/seed1/work"
    wait_for(lambda: any(work.rglob("last-*.pt")))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    project.snakemake("--unlock")
    assert executed(project.snakemake("--rerun-incomplete", target)) == {"train": 1}
    assert "resuming" in project.text("runs/digits-6-30/dac/seed1/train.log")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--config", "suite=papr"), "suite 'papr' is not in params.yaml; valid: demo"),
        (("--config", "train=1"), "--config gives train; only suite=NAME may be given there"),
        (("tabel1",), "tabel1"),
        (("runs/digits-6-30/dacc/seed1/run.json",), "method 'dacc' is not in params.yaml"),
        (("runs/digits-6-3/dac/seed1/run.json",), "task 'digits-6-3' is not in params.yaml"),
    ],
)
def test_wrong_requests_are_told_in_one_message(
    finished: Project, options: tuple[str, ...], message: str
) -> None:
    said = finished.snakemake("-n", *options, check=False)
    assert message in said and "Traceback (most recent call last)" not in said


def test_faults_of_the_parameter_file_are_told(project: Project) -> None:
    project.change("methods", "dac", "settings", "head_tau", value=1.95)
    said = project.snakemake("-n", check=False)
    assert "methods.dac.settings.head_tau: input should be less than or equal to 1" in said


def test_a_network_that_is_gone_is_trained_again_only_when_somebody_needs_it(
    project: Project,
) -> None:
    (
        project.folder / "runs/digits-6-30/dac/seed1/model.pt"
    ).unlink()  # as after a pull of results without networks
    assert project.planned("all") == {}
    project.change("evaluate", "last_evaluations", value=3)
    expected = {"train": 1, "evaluate": 4, "figure": 1, **RESULTS}
    assert project.planned("all") == expected


# --- scale, several GPUs ------------------------------------------------------------------------


def test_the_whole_paper_is_planned_in_one_go(
    tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    project = Project.new(tmp_path / "p")
    (project.folder / "params.yaml").write_bytes((TOP / "params.yaml").read_bytes())
    started = time.monotonic()
    counts = project.planned("all", "--config", "suite=paper")
    seconds = time.monotonic() - started
    jobs = sum(counts.values())
    figure = (
        f"snakemake -n all: {counts['train']} runs, {jobs} jobs in {seconds:.1f} s; 15 are allowed"
    )
    record_property("figure", figure)
    assert counts["train"] == counts["evaluate"] == 967
    found = params.load(TOP / "params.yaml")
    assert jobs == plan.cost(found, grid.results(found, "paper"), is_suite=True).jobs


def test_the_plan_counts_the_jobs_of_the_demo(tmp_path: Path) -> None:
    project = Project.new(tmp_path / "p")
    (project.folder / "params.yaml").write_bytes((TOP / "params.yaml").read_bytes())
    found = params.load(TOP / "params.yaml")
    expected = plan.cost(found, grid.results(found, "demo"), is_suite=True).jobs
    assert sum(project.planned("all").values()) == expected
    assert project.planned("table3")["train"] == 42  # also what the suite does not have


def test_jobs_on_one_machine_get_gpus_of_their_own(tmp_path: Path) -> None:
    project = Project.new(tmp_path / "p")
    project.build(
        "models", "--resources", "gpu=2", CUDA_VISIBLE_DEVICES="5,7", TMPDIR=str(tmp_path)
    )
    logs = sorted((project.folder / "runs").rglob("train.log"))
    seen = {re.search(r"GPU (\S+)$", log.read_text().splitlines()[0])[1] for log in logs}
    assert seen == {"5", "7"}


# --- helpers ------------------------------------------------------------------------------------


def touch_in_random_order(project: Project) -> None:
    """As after a pull: every file has a new time, in any order."""
    now, draw = time.time(), random.Random(1)
    for folder in ("data", "runs", "results", "provenance"):
        for path in (project.folder / folder).rglob("*"):
            when = now - draw.uniform(0, 1000)
            os.utime(path, (when, when))


def digest_of(project: Project, pattern: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(project.folder.glob(pattern))}
