"""The shipped profile on a real Slurm: the whole suite, and every way in which jobs end early."""

import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from slurm_cluster import (
    CANNOT,
    Cluster,
    Controller,
    Job,
    SlurmProject,
    processes_in,
    processes_of_job,
    running_cluster,
    wait_for,
)
from workflow_project import WHOLE, executed, stats

from dac.runs import checkpoint

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
ON_SUBMIT_HOST = {"download", "split"}
ON_GPU = {"train", "evaluate"}
SEEDS = (1, 2, 3, 4, 5)
RUNS = [f"runs/digits-6-30/dac/seed{seed}" for seed in SEEDS]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("slurm") / "s") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_data(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> SlurmProject:
    """Data and splits are there; runs last until they are let go. Tests must copy it."""
    project = SlurmProject.new(tmp_path_factory.mktemp("with-data") / "p").on(cluster)
    for name, value in {"epochs": 40, "evaluate_every": 40, "checkpoint_every": 2}.items():
        project.change("train", "by_data", "digits", name, value=value)
    project.change("aggregate", "tables", "toy", "methods", value=["dac"])
    project.change("aggregate", "tables", "toy", "seeds", value=[*SEEDS])
    project.snakemake("splits")
    project.make_slow()
    return project


@pytest.fixture
def project(with_data: SlurmProject, tmp_path: Path) -> SlurmProject:
    return with_data.copy(tmp_path / "p")


def test_a_second_cluster_leaves_the_first_alone(cluster: Cluster, tmp_path: Path) -> None:
    other = Cluster(tmp_path / "s")
    with cluster.taken(a40_1=1):
        (job,) = cluster.ask("squeue", "-h", "-t", "R", "-o", "%i").split()

        def sleepers() -> list[int]:
            names = {pid: Path(f"/proc/{pid}/comm") for pid in processes_of_job(job)}
            return [pid for pid, name in names.items() if name.read_text() == "sleep\n"]

        before = wait_for("the job to begin", sleepers)
        refused = other.script("start", check=False)
        assert refused.returncode == CANNOT and "may belong to a real cluster" in refused.stderr
        other.script("stop", "--purge")
        assert sleepers() == before


# --- undisturbed --------------------------------------------------------------------------------


def test_one_command_builds_the_suite(cluster: Cluster, tmp_path: Path) -> None:
    project = SlurmProject.new(tmp_path / "p").on(cluster)
    assert executed(project.submit("all")) == WHOLE
    assert project.text("results/tables/toy.md")

    jobs = project.jobs()
    show("the suite", jobs)
    in_slurm = {rule: n for rule, n in WHOLE.items() if rule not in ON_SUBMIT_HOST}
    assert Counter(job.rule for job in jobs) == in_slurm, project.explain()
    assert {job.state for job in jobs} == {"COMPLETED"}
    for job in jobs:
        on_gpu = job.rule in ON_GPU
        assert job.gpus == ("gres:gpu:a40:1" if on_gpu else ""), job
        assert re.fullmatch(r"a40-[12]" if on_gpu else "cpu-1", job.node), job
    assert {job.fields["TimeLimit"] for job in jobs if job.rule == "train"} == {"00:10:00"}

    gpus = {}
    for log in sorted((project.folder / "runs").rglob("train.log")):
        first = log.read_text().splitlines()[0]
        node, id, gpu = re.fullmatch(r"on (\S+), Slurm job (\d+), GPU (\d)", first).groups()
        job = project.job(id)
        assert (job.rule, job.node) == ("train", node)
        assert (project.folder / "logs/slurm/rule_train" / job.run / f"{id}.log").stat().st_size
        gpus[id] = (node, gpu)
    pairs = combinations([job for job in jobs if job.rule == "train"], 2)
    together = [(a, b) for a, b in pairs if a.node == b.node and a.overlaps(b)]
    assert together, "no two runs shared a node; the next line would show nothing"
    assert all(gpus[a.id] != gpus[b.id] for a, b in together), gpus

    assert stats(project.submit("all")) == {}
    assert len(project.jobs()) == len(jobs)


# --- disturbed ----------------------------------------------------------------------------------


@dataclass
class Struck:
    """Five runs, each hit by another fault, and what they would have been without."""

    project: SlurmProject
    undisturbed: SlurmProject
    runs: dict[str, str]
    said: str


@pytest.fixture(scope="module")
def struck(
    with_data: SlurmProject, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Struck:
    """All faults in one go of the controller, because each costs minutes."""
    folder = tmp_path_factory.mktemp("struck")
    project = with_data.copy(folder / "p").on(cluster, partition="preempt")
    undisturbed = with_data.copy(folder / "undisturbed")
    undisturbed.make_fast()
    with (
        ThreadPoolExecutor(1) as aside,
        cluster.taken(a40_2=3) as release,  # leaves four GPUs and one
        project.controller("models") as controller,
    ):
        controller.wait_for("checkpoints of all runs", lambda: all(map(project.steps_saved, RUNS)))
        runs = {project.jobs_of(run)[0].id: run for run in RUNS}
        alone, *others = sorted(map(project.job, runs), key=lambda job: job.node, reverse=True)
        assert [alone.node, *(job.node for job in others)] == ["a40-2", *4 * ["a40-1"]]

        def restarted(*jobs: Job) -> Job | None:
            return next((job for job in map(project.job, ids(jobs)) if job.restarts), None)

        with cluster.taken(a40_1=1):  # all four are in use, so one must go
            pushed = controller.wait_for("a job to be preempted", lambda: restarted(*others))
        limited, hung, cancelled = (job for job in others if job.id != pushed.id)
        # The jobs were submitted with ten minutes; five minutes before the end comes the warning.
        cluster.ask("scontrol", "update", f"JobId={limited.id}", "TimeLimit=6")
        project.hang(hung)  # so Slurm must kill it
        cluster.ask("scontrol", "update", f"JobId={hung.id}", "TimeLimit=1")
        cluster.ask("scancel", cancelled.id)
        release()
        cluster.crash(alone.node)
        controller.wait_for("the job of the lost node to be requeued", lambda: restarted(alone))
        cluster.repair()

        reference = aside.submit(undisturbed.snakemake, "--cores", "1", "models")
        controller.wait_for("the warning", lambda: project.job(limited.id).is_over)
        controller.wait_for("the time limit", lambda: project.job(hung.id).is_over)
        project.make_fast()
        code = controller.wait()
        show("disturbed", project.jobs())
        assert code == 0, controller.explain()
        reference.result()
    hit = {
        "limit": limited,
        "timeout": hung,
        "cancel": cancelled,
        "crash": alone,
        "preempt": pushed,
    }
    named = {fault: runs[job.id] for fault, job in hit.items()}
    return Struck(project, undisturbed, named, controller.output.read_text())


@pytest.mark.parametrize("fault", ["limit", "timeout", "cancel", "crash", "preempt"])
def test_a_disturbed_run_ends_with_the_same_bits(struck: Struck, fault: str) -> None:
    run, project, undisturbed = struck.runs[fault], struck.project, struck.undisturbed
    step = project.resumed_at(run)
    print(f"\n{fault}: {run} went on at step {step}")
    assert step > 0, project.text(f"{run}/train.log")
    assert_same(model_of(project, run), model_of(undisturbed, run))
    assert project.text(f"{run}/history.csv") == undisturbed.text(f"{run}/history.csv")


@pytest.mark.parametrize(
    ("fault", "state"), [("limit", "FAILED"), ("timeout", "TIMEOUT"), ("cancel", "CANCELLED")]
)
def test_a_job_that_was_ended_is_submitted_again(struck: Struck, fault: str, state: str) -> None:
    states = [job.state for job in struck.project.jobs_of(struck.runs[fault])]
    assert states == [state, "COMPLETED"]


@pytest.mark.parametrize("fault", ["crash", "preempt"])
def test_a_job_that_lost_its_place_comes_back_under_its_number(struck: Struck, fault: str) -> None:
    jobs = struck.project.jobs_of(struck.runs[fault])
    assert [(job.state, job.restarts) for job in jobs] == [("COMPLETED", 1)]


def test_training_saves_at_the_warning_before_the_limit(struck: Struck) -> None:
    run = struck.runs["limit"]
    first = struck.project.jobs_of(run)[0]
    log = rf"Slurm job {first.id}, GPU \d\n(?:.+\n)*?stopped: SIGTERM at step (\d+) of"
    assert int(re.search(log, struck.said)[1]) == struck.project.resumed_at(run)
    assert "returned non-zero exit status 75" in first.log.read_text()


# --- the controller goes away -------------------------------------------------------------------


@pytest.mark.usefixtures("failing")  # it fails while we wait here; looked at below
def test_ctrl_c_leaves_nothing_behind_and_the_next_start_goes_on(project: SlurmProject) -> None:
    runs = RUNS[:2]
    targets = [f"{run}/run.json" for run in runs]
    with project.controller(*targets) as controller:
        controller.wait_for("checkpoints", lambda: all(map(project.steps_saved, runs)))
        controller.send(signal.SIGINT)
        assert controller.wait() == 1, controller.explain()
        wait_for("the jobs to end", lambda: all(job.is_over for job in project.jobs()))
        show("Ctrl-C", project.jobs())
        assert [job.state for job in project.jobs()] == ["CANCELLED"] * 2, controller.explain()
    # Without cgroups Slurm may lose an inner Snakemake without a parent (seen once in five runs):
    # it does nothing, and what counts is that nothing trains on.
    wait_for(
        "all stages to end",
        lambda: not [line for line in processes_in(project.folder) if "-m dac." in line],
        explain=lambda: "\n".join(processes_in(project.folder)),
    )
    assert not locks(project)
    project.make_fast()
    assert executed(project.submit(*targets)) == {"train": 2}
    assert all(project.resumed_at(run) > 0 for run in runs)


def test_jobs_outlive_a_closed_terminal(project: SlurmProject) -> None:
    target = f"{RUNS[0]}/run.json"
    with project.controller(target) as controller:
        controller.wait_for("a checkpoint", lambda: project.steps_saved(RUNS[0]))
        controller.send(signal.SIGHUP)
        assert controller.wait() != 0
        assert [job.state for job in project.jobs()] == ["RUNNING"]
        project.make_fast()
        wait_for("the job to end", lambda: project.jobs()[0].is_over, explain=project.explain)
        show("closed terminal", project.jobs())
    assert locks(project)
    project.submit("--unlock")
    assert stats(project.submit(target)) == {}
    assert [job.state for job in project.jobs()] == ["COMPLETED"]


# --- a run fails by itself ----------------------------------------------------------------------

BAD, GOOD = RUNS[0].replace("dac", "labeled-only"), RUNS[0]


@pytest.fixture(scope="module")
def failing(
    with_data: SlurmProject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """The controller of a run that fails and of one that does not."""
    project = with_data.copy(tmp_path_factory.mktemp("failing") / "p")
    project.change("methods", "labeled-only", "train", value={"lr": 100.0, "weight_decay": 10.0})
    project.make_fast()
    with project.controller("--retries", "1", f"{BAD}/run.json", f"{GOOD}/run.json") as controller:
        yield controller


def test_a_failing_run_is_tried_again_and_leaves_the_others(failing: Controller) -> None:
    project = failing.project
    assert failing.wait() == 1, failing.explain()
    show("failing", project.jobs())
    assert [job.state for job in project.jobs_of(BAD)] == ["FAILED"] * 2, failing.explain()
    assert [job.state for job in project.jobs_of(GOOD)] == ["COMPLETED"]
    assert "not finite" in failing.output.read_text()
    assert not (project.folder / BAD / "model.pt").exists()


# --- helpers ------------------------------------------------------------------------------------


def show(title: str, jobs: list[Job]) -> str:
    text = "\n".join([f"\n{title}:", *map(str, jobs)])
    print(text)
    return text


def ids(jobs: tuple[Job, ...]) -> list[str]:
    return [job.id for job in jobs]


def locks(project: SlurmProject) -> list[Path]:
    return list((project.folder / ".snakemake" / "locks").glob("*"))


def model_of(project: SlurmProject, run: str) -> dict[str, Any]:
    return checkpoint.from_file(project.folder / run / "model.pt")


def assert_same(found: Any, expected: Any, where: str = "model.pt") -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name in expected:
            assert_same(found[name], expected[name], f"{where}: {name}")
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), where
    else:
        assert found == expected, where
