"""What a suite will cost, before anything is submitted: runs, jobs, GPU hours, disk, longest chain.

    python -m dac.plan --suite paper

The model is in dac/workflow/cost.py; its assumptions are under `plan:` in params.yaml and printed
below the table.
"""

import sys

from dac.config import Params, load, suites
from dac.config.arguments import command
from dac.io.errors import exit_code_of
from dac.io.text_table import text_table
from dac.workflow import cost


def describe(params: Params, suite: str | None) -> str:
    """The plan as text: a row per table and figure, the sum, and what it rests on."""
    results = suites.results(params, suite)
    rows: list[tuple[str, ...]] = [
        ("", "runs", "jobs", f"hours on one {params.file.plan.gpu}", "GB", "longest chain, h")
    ]
    for one in cost.one_by_one(results):
        rows.append(_row(next(iter(one.grids())), cost.cost(params, one, is_suite=False)))
    everything = cost.cost(params, results, is_suite=True)
    rows.append(_row(f"suite {results.suite}", everything))
    lines = [text_table(rows, right=True), "", "shared runs are counted once in the last row"]
    lines += ["hours: training and pre-training; every evaluation takes a GPU for minutes more"]
    lines += [f"longest chain: {everything.chain}, {everything.chain_hours:.1f} h"]
    return "\n".join([*lines, *_assumptions(params)])


def _row(name: str, found: cost.Cost) -> tuple[str, ...]:
    numbers = (found.gpu_hours, found.gigabytes, found.chain_hours)
    return (name, str(found.runs), str(found.jobs), *(f"{number:,.1f}" for number in numbers))


def _assumptions(params: Params) -> list[str]:
    plan = params.file.plan
    backbones = ", ".join(f"{name} {value:g}" for name, value in plan.gigaflops_per_view.items())
    methods = ", ".join(f"{name} {value:g}" for name, value in plan.step_over_floor.items())
    return [
        f"assumed: the {plan.gpu} sustains {plan.teraflops:g} TFLOPS (not measured)",
        "disk: data and results, without checkpoints of runs under way and DVC's own copy",
        f"counted: GFLOPs of a forward pass per view: {backbones}",
        f"measured on a CPU: time of a step / time of the backbone in it: {methods}",
        f"jobs ask for {plan.safety:g} times their hours, "
        f"{plan.shortest_job_minutes} to {plan.longest_job_minutes} minutes; longer runs resume",
    ]


def main() -> None:
    options = command("plan", __doc__, "--suite", "--params").parse_args()
    print(describe(load(options.params), options.suite))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
