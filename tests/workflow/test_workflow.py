"""The workflow itself: what is built, what is built again, and what is not.

Builds from nothing and after a change, and what an interrupted build leaves: test_dvc.py.
"""

import os
import random
import re
import time
from collections.abc import Callable

import pytest
from tiny_sets import jpeg, write_files
from workflow_project import TOP, WHOLE, Project, executed

from dac import config
from dac.config import DownloadSet, suites
from dac.data.prepare import prepare
from dac.workflow import cost

pytestmark = pytest.mark.slow
RESULTS = {"table": 1, "aggregate": 1}
ADDED = {"train": 2, "evaluate": 2, **RESULTS}  # two more runs in the table
OTHER = "runs/digits-6-30/fixmatch/seed3"
RUN = {"download": 1, "prepare": 1, "split": 1, "train": 1, "evaluate": 1}


# --- what is there ------------------------------------------------------------------------------


def test_every_result_of_the_suite_is_there(finished: Project) -> None:
    for name in ("tables/toy.csv", "tables/toy.md", "tables/toy.tex", "tables/toy.html"):
        assert finished.text(f"results/{name}")
    assert (finished.folder / "results/figures/toy-heads.pdf").stat().st_size > 1000
    assert len(finished.text("results/summary/demo/runs.csv").splitlines()) == 1 + 4
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
        ("all", WHOLE),
        ("data", {"download": 1, "prepare": 1}),
        ("splits", {"download": 1, "prepare": 1, "split": 2}),
        ("runs/digits-6-30/dac/seed1/metrics.json", RUN),
        ("toy-heads", RUN | {"figure": 1}),
    ],
)
def test_targets_by_name_and_by_path(fresh: Project, target: str, jobs: dict[str, int]) -> None:
    assert {**fresh.planned(target), target: 1} == {**jobs, target: 1}


def test_a_run_outside_the_suite_can_be_asked_for(finished: Project) -> None:
    said = finished.planned("runs/digits-6-60/fixmatch/seed7/metrics.json")
    assert said == {"split": 1, "train": 1, "evaluate": 1}


# --- what is built again, and what is not ---------------------------------------------------------


def test_comments_in_code_rules_and_parameters_rerun_nothing(project: Project) -> None:
    for name in (
        "dac/train.py",
        "dac/losses/supervised.py",
        "workflow/rules/train.smk",
        "params.yaml",
    ):
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


def test_parameters_that_no_result_of_the_suite_depends_on_rerun_nothing(project: Project) -> None:
    project.change("train", "defaults", "workers", value=2)
    project.change("train", "by_data", "digits", "checkpoint_every", value=5)
    project.change("train", "by_data", "digits", "log_every", value=3)
    project.change("train", "by_data", "cifar100", "weight_decay", value=0.5)
    project.change("methods", "softmatch", "settings", "num_sigma", value=3.0)
    project.change("figures", "histogram_bins", value=7)
    project.change("plan", "teraflops", value=1.0)
    assert project.planned("all") == {}


@pytest.mark.parametrize(
    ("path", "value", "jobs"),
    [
        (("methods", "labeled-only", "settings", "reject_below"), 0.5, {"evaluate": 2, **RESULTS}),
        (  # what DAC's target head learns with
            ("methods", "fixmatch", "settings", "tau"),
            0.5,
            {"train": 2, "evaluate": 2, "figure": 1, **RESULTS},
        ),
        (("evaluate", "last_evaluations"), 3, {"evaluate": 4, "figure": 1, **RESULTS}),
        (("aggregate", "tables", "toy", "title"), "Other", RESULTS),
        (("aggregate", "tables", "toy", "seeds"), [1, 2, 3], RESULTS | ADDED | {"split": 1}),
        (("aggregate", "tables", "toy", "methods"), ["labeled-only", "fixmatch", "dac"], ADDED),
        (("figures", "drawn", "toy-heads", "title"), "Other", {"figure": 1}),
        (
            ("prepare", "digits", "mean"),
            [0.3, 0.3, 0.3],
            {"train": 4, "evaluate": 4, "figure": 1, **RESULTS},
        ),
        (  # another split retrains the runs on it
            ("tasks", "digits-6-30", "labels_per_class"),
            4,
            {"split": 2, "train": 4, "evaluate": 4, "figure": 1, **RESULTS},
        ),
        (  # the order of columns
            ("aggregate", "tables", "toy", "metrics"),
            {"AUROC": "auroc", "closed": "closed.best"},
            RESULTS,
        ),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_changed_parameter_reruns_what_depends_on_it(
    project: Project, path: tuple[str, ...], value: object, jobs: dict[str, int]
) -> None:
    project.change(*path, value=value)
    assert project.planned("all") == jobs


def test_results_of_other_parameters_never_count_even_without_any_memory(project: Project) -> None:
    project.run("rm", "-rf", ".snakemake", "provenance")
    project.change("methods", "dac", "settings", "lambda_kd", value=0.25)
    said = project.run("python", "-m", "dac.aggregate", "--suite", "demo")
    assert "other parameters" in said and "lambda_kd" in said
    row = next(line for line in said.splitlines() if line.startswith("| dac "))
    assert re.search(r"\| –", row)  # noqa: RUF001


def test_another_published_value_makes_the_table_again(project: Project) -> None:
    values = project.folder / "dac/results/paper_values.csv"
    values.write_text(values.read_text().replace("26.8", "26.9"))
    assert project.planned("all") == {"table": 1}


# --- faults ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failed(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """Two runs that cannot succeed and one that can, on two GPUs; what Snakemake said."""
    folder = tmp_path_factory.mktemp("failed")
    project = finished.copy(folder / "project")
    project.change("methods", "labeled-only", "train", value={"lr": 100.0, "weight_decay": 10.0})
    targets = ("all", f"{OTHER}/metrics.json", "--keep-going", "--resources", "gpu=2")
    gpus = {"CUDA_VISIBLE_DEVICES": "5,7", "TMPDIR": str(folder)}
    return project, project.snakemake(*targets, check=False, **gpus)


def test_a_failing_run_leaves_the_others_and_no_file_that_looks_finished(
    failed: tuple[Project, str],
) -> None:
    project, said = failed
    assert executed(said) == {"split": 1, "train": 3, "evaluate": 1}
    assert not (project.folder / "runs/digits-6-30/labeled-only/seed1/model.pt").exists()
    assert (project.folder / OTHER / "metrics.json").exists()
    assert "not finite" in project.text("runs/digits-6-30/labeled-only/seed1/train.log")
    said = project.run("python", "-m", "dac.aggregate", "--suite", "demo")
    assert "labeled-only" in said and "2 of 4 runs missing" in said


def test_jobs_on_one_machine_get_gpus_of_their_own(failed: tuple[Project, str]) -> None:
    project, _ = failed
    names = ("labeled-only/seed1", "labeled-only/seed2", "fixmatch/seed3")
    logs = [project.text(f"runs/digits-6-30/{name}/train.log") for name in names]
    assert {re.search(r"GPU (\S+)$", log.splitlines()[0])[1] for log in logs} == {"5", "7"}


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


def test_own_pictures_of_other_sides_are_told_before_a_finished_run_is_removed(
    project: Project,
) -> None:
    """They are prepared by hand, so Snakemake has no record that could tell it."""
    run = "runs/folder/labeled-only/seed1/metrics.json"
    project.change("tasks", "folder", value={"data": "folder", "known_rule": "all"})
    own = {
        f"{part}/{i}.jpg": jpeg(i) for i, part in enumerate(("labeled/a", "labeled/b", "test/a"))
    }
    pictures = write_files(project.folder / "mine", own | {"unlabeled/x.jpg": jpeg(9)})
    settings = config.load(project.folder / "params.yaml").file.prepare["folder"]
    prepare(project.folder / "data", "folder", settings, DownloadSet(), pictures)
    assert project.planned(run) == {"split": 1, "train": 1, "evaluate": 1}
    project.change("prepare", "folder", "side", value=40)
    said = project.snakemake("-n", run, check=False)
    assert "data/prepared/folder was prepared with side 32, size 32, and the parameters ask" in said


def test_faults_of_the_parameter_file_are_told(project: Project) -> None:
    project.change("methods", "dac", "settings", "head_tau", value=1.95)
    said = project.snakemake("-n", check=False)
    assert "methods.dac.settings.head_tau: input should be less than or equal to 1" in said


def test_a_network_that_is_gone_is_trained_again_only_when_somebody_needs_it(
    project: Project,
) -> None:
    network = project.folder / "runs/digits-6-30/dac/seed1/model.pt"
    network.unlink()  # as after a pull of results without networks
    assert project.planned("all") == {}
    project.change("evaluate", "last_evaluations", value=3)
    expected = {"train": 1, "evaluate": 4, "figure": 1, **RESULTS}
    assert project.planned("all") == expected


# --- scale ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project with its own suites, nothing built; for dry runs."""
    project = Project.new(tmp_path_factory.mktemp("paper") / "project")
    (project.folder / "params.yaml").write_bytes((TOP / "params.yaml").read_bytes())
    return project


def num_jobs(suite: str) -> int:
    """As `python -m dac.plan` counts them."""
    params = config.load(TOP / "params.yaml")
    return cost.cost(params, suites.results(params, suite), is_suite=True).jobs


def test_the_whole_paper_is_planned_in_one_go(
    paper: Project, record_property: Callable[[str, str], None]
) -> None:
    started = time.monotonic()
    counts = paper.planned("all", "--config", "suite=paper")
    seconds = time.monotonic() - started
    jobs = sum(counts.values())
    figure = (
        f"snakemake -n all: {counts['train']} runs, {jobs} jobs in {seconds:.1f} s; 15 are allowed"
    )
    record_property("figure", figure)
    assert counts["train"] == counts["evaluate"] == 967
    assert jobs == num_jobs("paper")


def test_the_plan_counts_the_jobs_of_the_demo(paper: Project) -> None:
    assert sum(paper.planned("all").values()) == num_jobs("demo")
    assert paper.planned("table3")["train"] == 42  # also what the suite does not have


# --- helpers ------------------------------------------------------------------------------------


def touch_in_random_order(project: Project) -> None:
    """As after a pull: every file has a new time, in any order."""
    now, draw = time.time(), random.Random(1)
    for folder in ("data", "runs", "results", "provenance"):
        for path in (project.folder / folder).rglob("*"):
            when = now - draw.uniform(0, 1000)
            os.utime(path, (when, when))
