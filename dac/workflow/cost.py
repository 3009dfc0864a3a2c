"""What runs cost, before anything is submitted: runs, jobs, GPU hours, disk, longest chain.

Hours = steps x forward passes per step (a backward pass is two) x the method's overhead / sustained
FLOPS. Passes come from what the methods draw (dac/config/methods/phase.py), the assumptions from
`plan:` in params.yaml.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from dac.config import (
    GRADIENT,
    STAGE_TARGETS,
    Backbone,
    Forwards,
    MethodSettings,
    Params,
    PretrainRun,
    Run,
    suites,
)
from dac.config.suites import Key, SuiteResults

_KNOWN: dict[tuple[Any, ...], tuple[Forwards, int]] = {}


def forwards_per_step(run: Run, epochs: range | None = None) -> float:
    """Forward passes of images in a step, a backward pass counted as two; mean over epochs."""
    epochs = range(run.train.epochs) if epochs is None else epochs
    total = _passes(run, epochs)[0]
    return run.train.batch * (total.labeled + run.train.mu * total.unlabeled) / len(epochs)


def _passes(run: Run, epochs: range) -> tuple[Forwards, int]:
    """Sums over the epochs: passes per image of a step, and passes over the pool.

    Seeds and tasks share settings, and the workflow asks for the cost of a thousand runs.
    """
    settings = [part.model_dump_json() for part in (run.method, run.objective) if part is not None]
    key = (run.method.method, *settings, epochs)
    if key not in _KNOWN:
        _KNOWN[key] = _count_passes(run.method, epochs)
    return _KNOWN[key]


def _count_passes(method: MethodSettings, epochs: range) -> tuple[Forwards, int]:
    turns = sorted({turn for turn in method.turns(epochs) if epochs.start < turn < epochs.stop})
    spans = list(pairwise((epochs.start, *turns, epochs.stop)))
    phases = [(method.phase(first), end - first) for first, end in spans]
    forwards = [(phase.forwards(), length) for phase, length in phases]
    labeled = sum(length * each.labeled for each, length in forwards)
    unlabeled = sum(length * each.unlabeled for each, length in forwards)
    return Forwards(labeled, unlabeled), sum(length * p.pool_passes for p, length in phases)


def train_hours(params: Params, run: Run) -> float:
    """GPU hours of training one run, evaluations during training included."""
    plan, train = params.file.plan, run.train
    method = params.file.methods[run.method_name].method
    passes = _passes(run, range(train.epochs))[1] * plan.train_images[run.task.data]
    evaluations = train.steps / train.evaluate_every * plan.test_images[run.task.data]
    steps = train.steps * forwards_per_step(run) * plan.step_over_floor.get(method, 1.0)
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
    minutes = max(plan.shortest_job_minutes, 60 * hours * plan.safety)
    return math.ceil(min(plan.longest_job_minutes, minutes))


# --- suites -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    runs: int
    jobs: int
    gpu_hours: float
    gigabytes: float
    chain: str
    chain_hours: float


def cost(params: Params, results: SuiteResults, *, is_suite: bool) -> Cost:
    """The cost of tables and figures with all that they need, and of the summary of a suite."""
    plan = params.file.plan
    keys = suites.all_runs(results.grids().values())
    hours = {key: train_hours(params, params.run(key.task, key.method, key.seed)) for key in keys}
    origins = {key: suites.pretraining_of(params, key) for key in keys}
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
        gigabytes=sum(plan.gigabytes_of_data[name] for name in sorted(sets)) + run_megabytes / 1e3,
        chain=_chain(longest, origins[longest]) if longest else "",
        chain_hours=chains[longest] if longest else 0.0,
    )


def _num_jobs(params: Params, results: SuiteResults, *, is_suite: bool) -> int:
    files = suites.targets(params, results)
    if not is_suite:  # no summary, for which every run is evaluated whatever its figure reads
        tables = suites.all_runs(results.tables.values())
        figures = [f for figure in results.figures.values() for f in suites.figure_inputs(figure)]
        files |= {"runs": [*suites.of_runs(tables, "metrics.json"), *figures], "summary": []}
    return sum(len(files[stage]) for stage in STAGE_TARGETS)


def _backbone(params: Params, key: Key) -> Backbone:
    return params.run(key.task, key.method, key.seed).train.backbone


def _chain(key: Key, origin: PretrainRun | None) -> str:
    stages = ["download", "prepare", "split", *(["pretrain"] if origin else []), "train"]
    return f"{' > '.join(stages)} {key.folder} > evaluate > aggregate"


def one_by_one(results: SuiteResults) -> list[SuiteResults]:
    """Every table and every figure as a suite of its own."""
    return [
        *(replace(results, tables={name: t}, figures={}) for name, t in results.tables.items()),
        *(replace(results, tables={}, figures={name: f}) for name, f in results.figures.items()),
    ]
