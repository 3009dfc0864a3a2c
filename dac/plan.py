"""What a suite will cost, before anything is submitted: runs, jobs, GPU hours, disk, longest chain.

    python -m dac.plan --suite paper

Hours = steps x forward passes per step (a backward pass is two) x the method's overhead / sustained
FLOPS. The model and its assumptions stand under `plan:` in params.yaml and below the table.
"""

import argparse
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from dac import grid
from dac.errors import exit_code_of
from dac.grid import Key, Results
from dac.params import DEFAULT_PATH, Params, PretrainRun, Run, load
from dac.settings import GRADIENT, STAGE_TARGETS, Backbone


def train_hours(params: Params, run: Run) -> float:
    """GPU hours of training one run, with the evaluations on the way."""
    plan, train = params.file.plan, run.train
    method = params.file.methods[run.method_name].method
    epochs = range(train.epochs)
    passes = sum(run.method.pool_passes(e) for e in epochs) * plan.train_images[run.task.data]
    evaluations = train.steps / train.evaluate_every * plan.test_images[run.task.data]
    steps = train.steps * run.forwards_per_step() * plan.step_over_floor[method]
    return _hours(params, train.backbone, run.data.size, steps + evaluations + passes)


def pretrain_hours(params: Params, run: PretrainRun) -> float:
    images = params.file.plan.train_images[run.data_name]
    forwards = GRADIENT * 2 * run.settings.epochs * images
    return _hours(params, run.backbone, run.data.size, forwards)


def _hours(params: Params, backbone: Backbone, side: int, forwards: float) -> float:
    plan = params.file.plan
    area = (side / plan.side_of_view[backbone]) ** 2
    return forwards * area * plan.gigaflops_per_view[backbone] / (1e3 * plan.teraflops) / 3600


def job_minutes(params: Params, hours: float) -> int:
    """The time limit of a job: expected time with a margin, within what the queue allows."""
    plan = params.file.plan
    minutes = math.ceil(60 * hours * plan.safety)
    return min(plan.longest_job_minutes, max(plan.shortest_job_minutes, minutes))


# --- the printed plan -------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    runs: int
    jobs: int
    gpu_hours: float
    gigabytes: float
    chain: str
    chain_hours: float


def cost(params: Params, results: Results, *, is_suite: bool) -> Cost:
    """Of tables and figures with all that they need; a suite also has a summary of its runs."""
    plan = params.file.plan
    keys = grid.all_runs(params, results.grids().values())
    hours = {key: train_hours(params, params.run(key.task, key.method, key.seed)) for key in keys}
    origins = {key: grid.pretraining_of(params, key) for key in keys}
    first = {(o.data_name, o.backbone): pretrain_hours(params, o) for o in origins.values() if o}
    chains = {
        key: hours[key] + (first[o.data_name, o.backbone] if (o := origins[key]) else 0.0)
        for key in keys
    }
    longest = max(chains, key=lambda key: chains[key], default=None)
    sets = {params.task(key.task).data for key in keys}
    run_megabytes = sum(plan.megabytes_per_run[_backbone(params, key)] for key in keys)
    return Cost(
        runs=len(keys),
        jobs=_num_jobs(params, results, is_suite=is_suite),
        gpu_hours=sum(hours.values()) + sum(first.values()),
        gigabytes=sum(plan.gigabytes_of_data[name] for name in sets) + run_megabytes / 1e3,
        chain=_chain(longest, origins[longest]) if longest else "",
        chain_hours=chains[longest] if longest else 0.0,
    )


def _num_jobs(params: Params, results: Results, *, is_suite: bool) -> int:
    files = grid.targets(params, results)
    if not is_suite:  # no summary, for which every run is evaluated whatever its figure reads
        tables = grid.all_runs(params, results.tables.values())
        figures = [
            f for figure in results.figures.values() for f in grid.figure_inputs(params, figure)
        ]
        files |= {"runs": [*grid.of_runs(tables, "metrics.json"), *figures], "summary": []}
    return sum(len(files[stage]) for stage in STAGE_TARGETS)


def _backbone(params: Params, key: Key) -> Backbone:
    return params.run(key.task, key.method, key.seed).train.backbone


def _chain(key: Key, origin: PretrainRun | None) -> str:
    stages = ["download", "prepare", "split", *(["pretrain"] if origin else []), "train"]
    return f"{' > '.join(stages)} {key.folder} > evaluate > aggregate"


def one_by_one(results: Results) -> list[Results]:
    """Every table and every figure as a suite of its own."""
    return [
        *(replace(results, tables={name: t}, figures={}) for name, t in results.tables.items()),
        *(replace(results, tables={}, figures={name: f}) for name, f in results.figures.items()),
    ]


def describe(params: Params, suite: str | None) -> str:
    """The plan as text: a row per table and figure, the sum, and what it rests on."""
    results = grid.results(params, suite)
    grids = results.grids()
    rows: list[tuple[str, ...]] = [
        ("", "runs", "jobs", f"hours on one {params.file.plan.gpu}", "GB", "longest chain, h")
    ]
    for one in one_by_one(results):
        rows.append(_row(next(iter(one.grids())), cost(params, one, is_suite=False)))
    everything = cost(params, results, is_suite=True)
    rows.append(_row(f"suite {results.suite}", everything))
    lines = [*_aligned(rows), "", "shared runs are counted once in the last row"]
    lines += ["hours: training and pre-training; every evaluation takes a GPU for minutes more"]
    lines += [f"longest chain: {everything.chain}, {everything.chain_hours:.1f} h"]
    return "\n".join([*lines, *_assumptions(params), *grid.left_out(params, grids)])


def _row(name: str, found: Cost) -> tuple[str, ...]:
    numbers = (found.gpu_hours, found.gigabytes, found.chain_hours)
    return (name, str(found.runs), str(found.jobs), *(f"{number:,.1f}" for number in numbers))


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]


def _assumptions(params: Params) -> list[str]:
    plan = params.file.plan
    backbones = ", ".join(f"{name} {value:g}" for name, value in plan.gigaflops_per_view.items())
    methods = ", ".join(f"{name} {value:g}" for name, value in plan.step_over_floor.items())
    return [
        f"assumed: the {plan.gpu} sustains {plan.teraflops:g} TFLOPS (not measured)",
        "disk: data and results, without checkpoints of runs under way and DVC's own copy",
        f"counted: GFLOPs of a forward pass per view: {backbones}",
        f"measured on a CPU: a step over the backbone's share of it: {methods}",
        f"jobs ask for {plan.safety:g} times their hours, "
        f"{plan.shortest_job_minutes} to {plan.longest_job_minutes} minutes; longer runs resume",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.plan", description=__doc__.split("\n")[0])
    parser.add_argument("--suite", help="default: the suite of the parameter file")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    options = parser.parse_args()
    print(describe(load(options.params), options.suite))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
