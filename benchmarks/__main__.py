"""`python -m benchmarks`: measure, print a table, and keep it as JSON if asked to."""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch

from benchmarks.augmentation import augmentation
from benchmarks.information import information, otsu
from benchmarks.lab import Workbench
from benchmarks.steps import (
    checkpoint_against_steps,
    fixmatch_against_floor,
    methods_against_fixmatch,
    step_against_floor,
)
from benchmarks.table import Row, table
from dac.config import DEFAULT_PATH, load
from dac.io.device import choose_device
from dac.io.environment import ALLOCATOR
from dac.io.errors import UserError, exit_code_of
from dac.io.files import write_json
from dac.io.progress import say
from dac.runs.provenance import provenance

SECTIONS: dict[str, Callable[[Workbench], Iterator[Row]]] = {
    "a": step_against_floor,
    "b": augmentation,
    "c": information,
    "d": otsu,
    "e": checkpoint_against_steps,
    "f": fixmatch_against_floor,
    "g": methods_against_fixmatch,
}
SKIPPABLE = ("allocator", "channels-last", "compile")
ROUNDS, REPETITIONS = 3, 15
QUICK_ROUNDS, QUICK_REPETITIONS = 1, 5


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Ratios of our code to floors measured beside it."
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, for example a,c")
    parser.add_argument("--skip", default="", help=f"floors of section a: {', '.join(SKIPPABLE)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, more scatter")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    options = parser.parse_args()

    sections = chosen("--only", options.only, SECTIONS)
    skip = chosen("--skip", options.skip, SKIPPABLE)
    device = choose_device(options.device)
    torch.set_num_threads(1)
    bench = Workbench(
        load(options.params),
        device,
        rounds=QUICK_ROUNDS if options.quick else ROUNDS,
        repetitions=QUICK_REPETITIONS if options.quick else REPETITIONS,
        skip=frozenset(skip),
    )
    rows = list(measured(bench, sections))
    print(f"{ran_on(device)}\n\n{table(rows)}")
    if options.json:
        found = [row.as_dict() for row in rows]
        write_json(options.json, {"provenance": provenance(device), "rows": found})


def measured(bench: Workbench, sections: list[str]) -> Iterator[Row]:
    for section in sections:
        say(f"section {section} ...")
        for row in SECTIONS[section](bench):
            say("  ".join(filter(None, (cell.strip() for cell in row.cells()))))
            yield row


def chosen(option: str, text: str, valid: Collection[str]) -> list[str]:
    """The names of a comma-separated list, in the order of `valid`."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := sorted(names - set(valid)):
        raise UserError(f"{option} has {unknown[0]!r}; give some of {','.join(valid)}")
    return [name for name in valid if name in names]


def ran_on(device: torch.device) -> str:
    facts = provenance(device)
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    settings = " ".join(f"{name}={os.environ[name]}" for name in ALLOCATOR if name in os.environ)
    clock = "the clock on the wall" if device.type == "cuda" else "CPU time of the process"
    return (
        f"on {facts['device']}, {facts['host']}, Python {facts['python']}, {packages}\n"
        f"commit {facts['commit']}, {torch.get_num_threads()} thread, "
        f"allocator {settings or 'default'}, medians of {clock}"
    )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
