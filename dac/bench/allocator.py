"""The child of section a: floor and parts under the allocator settings it was started with."""

import json
import sys
from pathlib import Path

import torch

from dac import params
from dac.bench.lab import Workbench
from dac.bench.steps import parts_seconds
from dac.bench.timing import medians
from dac.train import choose_device


def main(path: str, task: str, pool: str, rounds: str, repetitions: str) -> None:
    torch.set_num_threads(1)
    bench = Workbench(
        params.load(Path(path)),
        choose_device("cpu"),
        task=task,
        pool=int(pool),
        rounds=int(rounds),
        repetitions=int(repetitions),
    )
    floor = medians({"floor": bench.dac.floor}, bench.rounds, bench.device, warm_up=False)
    print(json.dumps(floor | {"parts": parts_seconds(bench.dac, bench.repetitions)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
