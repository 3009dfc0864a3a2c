"""Build a suite with a compact progress instead of Snakemake's output, which goes into a log file.

    python -m dac.workflow.watch --suite demo

Shows which run is at which step and how long the rest will take, and ends with the tables as plain
text. Everything is Snakemake's work: started again after any interruption, it continues.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dac.config import DEFAULT_PATH, Params, load, suites
from dac.config.arguments import command
from dac.config.suites import Key
from dac.io.errors import RunFailed, exit_code_of
from dac.io.parent import end_with_parent
from dac.io.progress import Progress, say
from dac.results.collect import collect
from dac.results.formats import to_text
from dac.results.tables import compare, published

SECONDS = 0.5  # between two looks at the logs
TAIL = 25  # lines of the log that a failure shows
STEP = re.compile(r" (\d+)/\d+ steps")
FAILED = re.compile(r"^ +log: (\S+) \(check log file", re.MULTILINE)  # as Snakemake reports it
MEANING = {
    "demo": (
        "closed: accuracy on the known digits. open: balanced accuracy with all unknown digits as "
        "one more class,",
        "by the method's own rule, by a threshold that never saw the test set (inductive), or if "
        "nothing is rejected.",
        "AUROC: how well the score tells known from unknown; 50 is chance. A few hundred steps on "
        "digits show that",
        "the code works; they say nothing about the paper's tables.",
    )
}


@dataclass(frozen=True)
class Training:
    """The runs of a suite and how far each of them is."""

    steps: dict[Key, int]
    """Steps that every run takes."""
    folder: Path = Path("runs")
    since: float = 0.0
    """When the build started: a run whose log is older is not under way."""

    @classmethod
    def of(cls, params: Params, keys: list[Key]) -> "Training":
        steps = {key: params.run(key.task, key.method, key.seed).train.steps for key in keys}
        return cls(steps, since=time.time())

    def done(self, key: Key) -> int:
        """Steps of a run so far, from the last progress line of its log."""
        place = self.folder / key.folder
        if (place / "model.pt").exists():
            return self.steps[key]
        with suppress(OSError):
            found = STEP.findall((place / "train.log").read_text())
            return int(found[-1]) if found else 0
        return 0

    def note(self, done: dict[Key, int]) -> str:
        """How many runs are finished, and those under way."""
        finished = sum(done[key] == steps for key, steps in self.steps.items())
        active = [
            f"{self._name(key)} at step {done[key]}"
            for key, steps in self.steps.items()
            if done[key] < steps and self._is_active(key)
        ]
        return ", ".join([f"{finished} of {len(self.steps)} runs", *active[:2]])

    def _is_active(self, key: Key) -> bool:
        log = self.folder / key.folder / "train.log"
        return log.exists() and log.stat().st_mtime >= self.since

    def _name(self, key: Key) -> str:
        """The task is named where there is more than one."""
        name = f"{key.method} seed {key.seed}"
        has_tasks = len({other.task for other in self.steps}) > 1
        return f"{key.task} {name}" if has_tasks else name


def main() -> None:
    options = command("watch", __doc__, "--suite").parse_args()
    params = load(DEFAULT_PATH)
    results = suites.results(params, options.suite)
    log = Path("logs") / f"{results.suite}.log"
    log.parent.mkdir(exist_ok=True)
    keys = suites.all_runs(results.grids().values())
    say(f"building the suite {results.suite}: {len(keys)} runs; details in {log}")
    build(results.suite, Training.of(params, keys), log)
    for text in (*tables(params, results), *meaning(results.suite)):
        print(text)


def build(suite: str, training: Training, log: Path) -> None:
    """Run Snakemake to its end and show how far training is."""
    profile = ["--profile", "profiles/local", "--nocolor"]
    command = [sys.executable, "-m", "snakemake", *profile, "--config", f"suite={suite}"]
    total = sum(training.steps.values())
    done = {key: training.done(key) for key in training.steps}
    shown = None
    if sum(done.values()) < total:
        say("preparing data and starting the first runs")
    with log.open("w") as file:
        job = subprocess.Popen(
            [*command, "--", "all", "runs", "report"],
            stdout=file,
            stderr=file,
            preexec_fn=_stop_with_us,
        )
        try:
            while job.poll() is None and sum(done.values()) < total:
                # A run that starts again has an empty log until it has resumed.
                before, done = done, {key: max(done[key], training.done(key)) for key in done}
                if shown is None and done != before:  # the time left follows from training alone
                    shown = Progress("training", total, done=sum(done.values()), unit=" steps")
                if shown is not None:
                    shown.update(sum(done.values()), training.note(done))
                time.sleep(SECONDS)
            if job.poll() is None:
                say("all runs are trained; metrics, tables, figures and the report are next")
            job.wait()
        except KeyboardInterrupt:
            job.wait()  # Snakemake has the signal, too, and stops its jobs
            raise
        finally:
            job.terminate()  # does nothing to a process that has ended
    if job.returncode:
        said = log.read_text()
        last = "\n".join([*said.splitlines()[-TAIL:], *_reasons(said)])
        raise RunFailed(f"Snakemake ended with {job.returncode}; all it said is in {log}:\n{last}")


def _stop_with_us() -> None:
    """Snakemake dies with this process (kill -9), and its trainings, which save, with it: at a
    gentler signal it would wait for them."""
    end_with_parent(signal.SIGKILL)


def _reasons(said: str) -> Iterator[str]:
    """The last line of the log of every job that failed."""
    for name in dict.fromkeys(FAILED.findall(said)):
        with suppress(OSError):
            lines = Path(name).read_text().splitlines() or ["(empty)"]
            yield f"{name}: {lines[-1]}"


def tables(params: Params, results: suites.SuiteResults) -> Iterator[str]:
    """Every table of the suite as plain text."""
    keys = suites.all_runs(results.tables.values())
    found = collect(params, keys, Path("runs"))
    for name, table in results.tables.items():
        yield to_text(compare(params, name, table, found.share, published()))


def meaning(suite: str) -> Iterator[str]:
    yield from MEANING.get(suite, ())
    yield "tables: results/tables, pictures: results/figures, all on a page: results/report.html"


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
