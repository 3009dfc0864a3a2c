"""The demo: four methods on handwritten digits, three seeds, one table and two pictures.

    python -m dac.demo --out demo

Every stage is called as a user would call it. Runs go side by side, one thread each. An
interrupted demo goes on where it was; a finished one only prints its table again.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dac import aggregate
from dac.checkpoint import refuse_other_run
from dac.errors import RunFailed, UserError, exit_code_of
from dac.files import read_json, write_text
from dac.logs import Progress, say
from dac.params import DEFAULT_PATH, load

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}  # busy threads on a shared core crawl
LONGEST_RUN_FIRST = ("dac-released", "dac", "fixmatch", "labeled-only")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--suite", default="demo")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if options.jobs < 1:
        raise UserError(f"--jobs is {options.jobs}, expected at least 1")
    started = time.monotonic()
    suite = load(options.params).suite(options.suite)
    stages = Stages(options.out, options.params)
    for data in dict.fromkeys(load(options.params).task(task).data for task in suite.tasks):
        stages.call("prepare", "--data", data, *stages.places)
    for task in suite.tasks:
        for seed in suite.seeds:
            stages.call("split", "--task", task, "--seed", seed, *stages.places)
    runs = [(t, m, s) for m in _ordered(suite.methods) for t in suite.tasks for s in suite.seeds]
    _train_all(stages, runs, options.jobs)
    table = aggregate.collect(stages.runs)
    summary = aggregate.markdown(aggregate.summarize(table, suite.methods))
    write_text(options.out / "table.csv", table.to_csv(index=False))
    write_text(options.out / "table.md", summary)
    if "dac" in suite.methods:
        _draw(stages, suite.tasks[0], suite.seeds[0])
    print(summary, end="")
    say(f"table and pictures are in {options.out}; {time.monotonic() - started:.0f} s")


class Stages:
    """Calls `python -m dac.<stage>` with the demo's folders; logs stay in the output folder."""

    def __init__(self, out: Path, params: Path) -> None:
        self.out, self.runs = out, out / "runs"
        self.params = params
        self.settings = ("--params", params)
        self.places = ("--root", out / "data", *self.settings)

    def call(self, stage: str, *options: object, log: str | None = None) -> None:
        path = self.out / "logs" / f"{log or stage}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", f"dac.{stage}", *map(str, options)]
        with path.open("a") as file:
            done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=ONE_THREAD)
        if done.returncode:
            last = path.read_text().strip().splitlines()[-1:] or ["no message"]
            raise RunFailed(f"`{' '.join(command[1:])}` ended with {done.returncode}: {last[0]}")

    def is_finished(self, out: Path, task: str, method: str, seed: int) -> bool:
        """Whether the run's metrics are there; those of other parameters are an error."""
        path = out / "metrics.json"
        if not path.exists():
            return False
        metrics = read_json(path, "metrics of a run")
        split_hash = {"split_hash": metrics["run"].get("split_hash")}
        expected = load(self.params).run(task, method, seed).identity() | split_hash
        refuse_other_run(metrics, expected, out)
        return True

    def run(self, task: str, method: str, seed: int) -> None:
        out = self.runs / task / method / f"seed{seed}"
        if self.is_finished(out, task, method, seed):
            return
        log = f"{task}-{method}-seed{seed}"
        chosen = ("--task", task, "--method", method, "--seed", seed)
        self.call("train", *chosen, "--out", out, *self.places, log=log)
        self.call("evaluate", "--run", out, *self.places, log=log)


def _ordered(methods: tuple[str, ...]) -> list[str]:
    """The longest first, so that no long run is left over at the end."""
    rank = {name: place for place, name in enumerate(LONGEST_RUN_FIRST)}
    return sorted(methods, key=lambda name: rank.get(name, -1))


def _train_all(stages: Stages, runs: list[tuple[str, str, int]], jobs: int) -> None:
    shown = Progress("training", len(runs), unit=" runs", seconds_between_lines=0)
    shown.update(0)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(stages.run, *run) for run in runs]
        try:
            for done, (run, future) in enumerate(zip(runs, waiting, strict=True), start=1):
                future.result()
                shown.update(done, "/".join(map(str, run)))
        finally:
            for future in waiting:
                future.cancel()


def _draw(stages: Stages, task: str, seed: int) -> None:
    run = stages.runs / task / "dac" / f"seed{seed}"
    picture = stages.out / "consensus.png"
    stages.call("figures.histogram", "--run", run, "--out", picture, *stages.settings)
    stages.call("figures.heatmap", "--run", run, "--out", stages.out / "heads.png")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
