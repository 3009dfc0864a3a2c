"""A real Slurm on this machine (workflow/local-slurm), its faults, and controllers to strike."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pytest
from workflow_project import TOP, Project, variables

SCRIPT = TOP / "workflow" / "local-slurm"
NEEDS = "needs root and Debian's Slurm; `make test-slurm` installs it"
MINUTES = 60.0
PATIENCE = 5 * MINUTES  # for one event on a busy machine; never how long something should take
CANNOT = 2  # exit code of the script where this machine does not allow it
Found = TypeVar("Found")

# Added to a copy of dac/training/loop.py: a run lasts until the test lets it go, without work.
PACE = """

_true_rate = learning_rate


def learning_rate(settings: Train, step: int) -> float:
    import os
    from pathlib import Path

    if Path("slow").exists():
        time.sleep(0.6)
    while Path("hung", os.environ.get("SLURM_JOB_ID", "no job")).exists():
        time.sleep(0.2)
    return _true_rate(settings, step)
"""


def wait_for(
    what: str,
    look: Callable[[], Found],
    seconds: float = PATIENCE,
    explain: Callable[[], str] = str,
) -> Found:
    """The first true answer of `look`."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{explain()}"
        time.sleep(0.2)
    return found


def tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])


# --- the cluster --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A Slurm job, as `scontrol show job` tells it."""

    fields: dict[str, str]

    @property
    def id(self) -> str:
        return self.fields["JobId"]

    @property
    def state(self) -> str:
        return self.fields["JobState"]

    @property
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED")

    @property
    def node(self) -> str:
        return self.fields.get("NodeList", "")

    @property
    def gpus(self) -> str:
        """What was asked for, `gres:gpu:a40:1`, or nothing."""
        return self.fields.get("TresPerJob") or self.fields.get("TresPerNode", "")

    @property
    def restarts(self) -> int:
        return int(self.fields["Restarts"])

    @property
    def log(self) -> Path:
        return Path(self.fields["StdOut"])

    @property
    def rule(self) -> str:
        return re.search(r"/rule_([a-z]+)/", f"{self.log}")[1]

    @property
    def run(self) -> str:
        """Wildcards of the job, as the executor names its folder of logs."""
        return self.log.parent.name

    def overlaps(self, other: "Job") -> bool:
        (start, end), (began, ended) = self._times, other._times
        return start < ended and began < end

    @property
    def _times(self) -> list[datetime]:
        return [datetime.fromisoformat(self.fields[name]) for name in ("StartTime", "EndTime")]

    def __str__(self) -> str:
        names = ("JobId", "JobState", "ExitCode", "Restarts", "Partition", "NodeList", "TimeLimit")
        return f"{self.rule} {self.run}: " + " ".join(
            f"{name}={self.fields.get(name)}" for name in names
        )


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"DAC_SLURM_DIR": str(self.folder)}
        done = subprocess.run(
            [SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert not check or done.returncode == 0, f"local-slurm {arguments}: {done.stderr}"
        return done

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def variables(self, gpus: str = "gpu") -> dict[str, str]:
        """The environment of a submit host of this cluster."""
        path = os.pathsep.join([f"{self.folder}/bin", str(Path(sys.executable).parent)])
        return {
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
            "DAC_GPU_PARTITION": gpus,
            "DAC_CPU_PARTITION": "cpu",
            "DAC_GPU_MODEL": "a40",
            "DAC_ACCOUNT": "",
        }

    def jobs(self, project: Project, rule: str | None = None) -> list[Job]:
        """The jobs of a project that Slurm remembers, oldest first."""
        lines = self.ask("scontrol", "--oneliner", "show", "jobs").splitlines()
        read = (dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines if "JobId=" in line)
        mine = [Job(job) for job in read if job.get("WorkDir") == str(project.folder)]
        found = [job for job in mine if rule is None or job.rule == rule]
        return sorted(found, key=lambda job: int(job.id))

    @contextmanager
    def taken(self, **gpus: int) -> Iterator[Callable[[], None]]:
        """Others hold GPUs: `a40_1=3` leaves one of the four of node a40-1. Yields the way out."""
        ids = []
        for node, count in gpus.items():
            options = f"--parsable -p gpu -w {node.replace('_', '-')} --gres=gpu:a40:{count} -n1"
            where = ("-D", str(self.folder), "-o", "/dev/null")
            ids.append(self.ask("sbatch", *options.split(), *where, "--wrap=sleep 900").strip())

        def release() -> None:
            self.ask("scancel", *ids)

        try:
            for id in ids:
                self.wait_until_running(id)
            yield release
        finally:
            release()

    def wait_until_running(self, id: str) -> None:
        wait_for(f"job {id} to run", lambda: self.ask("squeue", "-h", "-t", "R", "-j", id))

    # --- faults ---

    def crash(self, node: str) -> None:
        """The power fails: everything of the node is gone at once, and Slurm learns of it."""
        ids = self.ask("squeue", "-h", "-t", "R", "-w", node, "-o", "%i").split()
        daemon = int((self.folder / "pid" / f"{node}.pid").read_text())
        doomed = [daemon, *(pid for id in ids for pid in processes_of_job(id))]
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def repair(self) -> None:
        self.script("start")


def processes_of_job(id: str) -> list[int]:
    """Its keepers and all that it started."""
    found = []
    for pid, command, environment in processes():
        marks = (f"SLURM_JOB_ID={id}", "SLURM_CLUSTER_NAME=dac-local")
        is_keeper = command.startswith(f"slurmstepd: [{id}.")
        if is_keeper or all(mark in environment.split("\0") for mark in marks):
            found.append(pid)
    return found


def processes_in(folder: Path) -> list[str]:
    """Living processes that work in a folder or name it."""
    found = []
    for pid, command, environment in processes():
        with suppress(OSError):
            here = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - deleted folders have odd names
            if str(folder) in "\0".join((here, command, environment)):
                found.append(f"{pid}: {command.replace(chr(0), ' ')[:200]}")
    return found


def processes() -> Iterator[tuple[int, str, str]]:
    """Number, command line and environment of all but zombies and ourselves."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (path / "cmdline").read_text(errors="replace")
            environment = (path / "environ").read_text(errors="replace")
            if command and int(path.name) != os.getpid():
                yield int(path.name), command, environment


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Skips where there can be none, unless DAC_REQUIRE_SLURM=1."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "munged"))):
        _unavailable(NEEDS)
    cluster = Cluster(folder)
    started = cluster.script("start", check=False)
    if started.returncode == CANNOT:
        _unavailable(started.stderr.strip())
    try:
        assert started.returncode == 0, started.stderr
        yield cluster
    finally:
        cluster.script("stop", "--purge")


def _unavailable(reason: str) -> None:
    if os.environ.get("DAC_REQUIRE_SLURM") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


# --- projects and controllers -------------------------------------------------------------------


class SlurmProject(Project):
    """A toy project whose jobs go to the cluster."""

    cluster: Cluster
    partition = "gpu"

    def copy(self, folder: Path, *, without: tuple[str, ...] = ()) -> "SlurmProject":
        copy = SlurmProject(super().copy(folder, without=without).folder)
        return copy.on(self.cluster, self.partition)

    def command(self, *options: str) -> list[str]:
        """The shipped profile; only the time between looks at the queue is shorter."""
        snakemake = (sys.executable, "-m", "snakemake", "--profile", "slurm", "--nocolor")
        looks = ("--slurm-init-seconds-before-status-checks", "2")
        return [*snakemake, *options, *looks, "--config", "suite=demo"]

    def on(self, cluster: Cluster, partition: str = "gpu") -> "SlurmProject":
        self.cluster, self.partition = cluster, partition
        return self

    def submit(self, *options: str, check: bool = True) -> str:
        environment = self.cluster.variables(self.partition)
        return self.run(*self.command(*options), check=check, **environment)

    def jobs(self, rule: str | None = None) -> list[Job]:
        return self.cluster.jobs(self, rule)

    def job(self, id: str) -> Job:
        return next(job for job in self.jobs() if job.id == id)

    def jobs_of(self, run: str) -> list[Job]:
        """The training jobs of one run."""
        _, task, method, seed = Path(run).parts
        name = f"{task}_{method}_{seed.removeprefix('seed')}"
        return [job for job in self.jobs("train") if job.run == name]

    @contextmanager
    def controller(self, *options: str) -> Iterator["Controller"]:
        """Snakemake in the background. It is stopped at the end, with all its jobs."""
        controller = Controller(self, options)
        try:
            yield controller
        finally:
            controller.kill()

    def make_slow(self) -> None:
        """Steps take their time until `make_fast`."""
        loop = self.folder / "dac" / "training" / "loop.py"
        if PACE not in loop.read_text():
            loop.write_text(loop.read_text() + PACE)
        (self.folder / "slow").touch()

    def hang(self, job: Job) -> None:
        """Its training makes no step any more, so it answers no warning."""
        (self.folder / "hung" / job.id).mkdir(parents=True)

    def make_fast(self) -> None:
        (self.folder / "slow").unlink()

    def steps_saved(self, run: str) -> int:
        """The newest step that a run has saved."""
        names = [path.name for path in (self.folder / run / "work").rglob("last-*.pt")]
        return max((int(name.split("-")[1]) for name in names), default=0)

    def resumed_at(self, run: str) -> int:
        """The step at which the last start of a run went on, 0 if it began anew."""
        found = re.search(r"^resuming \S+ at step (\d+) of", self.text(f"{run}/train.log"), re.M)
        return int(found[1]) if found else 0

    def explain(self) -> str:
        """Slurm's records and the ends of the logs of jobs."""
        logs = [
            *(self.folder / "runs").rglob("*.log"),
            *(self.folder / "logs/slurm").rglob("*.log"),
        ]
        ends = [f"--- {log.relative_to(self.folder)}\n{tail(log.read_text(), 12)}" for log in logs]
        return "\n".join([*map(str, self.jobs()), *ends])


class Controller:
    """`snakemake --profile slurm` in a session of its own, as in a terminal."""

    def __init__(self, project: SlurmProject, options: tuple[str, ...]) -> None:
        self.project = project
        self.output = project.folder / f"controller-{time.time_ns()}.txt"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                project.command(*options),
                cwd=project.folder,
                env=variables(project.cluster.variables(project.partition)),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_as_in_a_terminal,
            )

    def wait_for(self, what: str, look: Callable[[], Found]) -> Found:
        """As long as the controller lives."""

        def look_and_check() -> Found:
            found = look()
            assert found or self.process.poll() is None, f"ended before {what}\n{self.explain()}"
            return found

        return wait_for(what, look_and_check, explain=self.explain)

    def send(self, number: int) -> None:
        """To all of the session, as a terminal does."""
        os.killpg(self.process.pid, number)

    def wait(self) -> int:
        """Its exit code."""
        over = lambda: self.process.poll() is not None  # noqa: E731
        wait_for("the controller to end", over, explain=self.explain)
        return self.process.returncode

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        alive = [job.id for job in self.project.jobs() if not job.is_over]
        if alive:
            self.project.cluster.ask("scancel", *alive)

    def explain(self) -> str:
        said = tail(self.output.read_text())
        return f"--- controller\n{said}\n--- jobs\n{self.project.explain()}"


def _as_in_a_terminal() -> None:
    """Background processes of shells ignore Ctrl-C, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
