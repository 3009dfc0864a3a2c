"""Steps and parts in a child process: glibc reads its allocator settings only at the start.

By default it gives large buffers back and faults them in again in every step, a third of the time
and most of the scatter on a CPU.
"""

import functools
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from benchmarks.lab import Workbench
from benchmarks.parts import parts_seconds
from dac.config import load
from dac.io.device import choose_device
from dac.io.environment import ALLOCATOR


@dataclass(frozen=True)
class Reading:
    """Median seconds; without any, the note says why."""

    steps: dict[str, float] = field(default_factory=dict)
    shares_outside: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)
    note: str = ""


@functools.cache
def under_allocator(bench: Workbench) -> Reading:
    if "allocator" in bench.skip:
        return Reading(note="skipped")
    if bench.device.type != "cpu" or platform.libc_ver()[0] != "glibc":
        return Reading(note="concerns glibc on a CPU")
    values = (bench.params.path, bench.task, bench.pool, bench.rounds, bench.repetitions)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.allocator", *map(str, values)],
        env=os.environ | ALLOCATOR,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Reading(note=f"child process failed: {reason[-1]}")
    return Reading(**json.loads(done.stdout))


def main(path: str, task: str, pool: str, rounds: str, repetitions: str) -> None:
    """The child."""
    torch.set_num_threads(1)
    bench = Workbench(
        load(Path(path)),
        choose_device("cpu"),
        task=task,
        pool=int(pool),
        rounds=int(rounds),
        repetitions=int(repetitions),
    )
    reading = Reading(
        steps=bench.step_seconds,
        shares_outside=bench.dac.shares_outside,
        parts=parts_seconds(bench.dac, bench.repetitions),
    )
    print(json.dumps(asdict(reading)))


if __name__ == "__main__":
    main(*sys.argv[1:])
