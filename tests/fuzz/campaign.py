"""The campaign of hostile inputs: `make fuzz CASES=5000 SEED=1`.

Every case changes something a user could get wrong, or an attacker could send, in a way that its
number alone decides, and gives it to the real command. It must be refused (one message, exit code
2) or accepted with a right result. A traceback, another exit code, a wrong result or a hang fails.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import archive_cases
import file_cases
import http_cases
import kill_cases
import parameter_cases
import picture_cases
import torch
from verdicts import ACCEPTED, REFUSED

from dac.io.progress import Progress
from dac.io.text_table import text_table

KINDS = {
    "parameters": parameter_cases.Parameters,
    "files": file_cases.Files,
    "archives": archive_cases.Archives,
    "pictures": picture_cases.Pictures,
    "http": http_cases.Http,
    "kills": kill_cases.Kills,
}
SHARES = {"parameters": 8, "files": 4, "archives": 8, "pictures": 2, "http": 2, "kills": 1}  # of 25
SECONDS = 120  # a case that takes longer hangs; the slowest takes a few


@dataclass(frozen=True)
class Result:
    kind: str
    case: int
    verdict: str
    """`refused`, `accepted`, or what went wrong."""


def run(kinds: list[str], cases: int, seed: int) -> Iterator[Result]:
    """The results of `cases` cases, or a few more; slow kinds get fewer of them."""
    for kind, count in counts(kinds, cases).items():
        numbers = list(range(seed, seed + count))
        while numbers:
            for result in _in_a_child(kind, list(numbers)):
                numbers.remove(result.case)
                yield result


def counts(kinds: list[str], cases: int) -> dict[str, int]:
    total = sum(SHARES[kind] for kind in kinds)
    return {kind: -(-cases * SHARES[kind] // total) for kind in kinds}


def _in_a_child(kind: str, numbers: list[int]) -> Iterator[Result]:
    """Results until the child is done, hangs or dies; then of the case that it was at."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    child = context.Process(target=_work, args=(kind, numbers, folder, theirs))
    child.start()
    with suppress(OSError):  # whoever comes first, the child or we
        os.setpgid(child.pid, child.pid)
    theirs.close()
    try:
        for number in numbers:
            if not ours.poll(SECONDS):
                yield Result(kind, number, f"hangs: no answer in {SECONDS} s")
                return
            try:
                yield Result(kind, number, ours.recv())
            except EOFError:
                child.join()
                yield Result(kind, number, f"its process ended with {child.exitcode}")
                return
    finally:
        child.kill()
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # trainings that it has started, too
        child.join()
        shutil.rmtree(folder, ignore_errors=True)


def _work(kind: str, numbers: list[int], folder: Path, results: Connection) -> None:
    os.setpgrp()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Path(os.devnull).open("w") as quiet:  # what commands say is captured case by case
        os.dup2(quiet.fileno(), 2)
    subject = KINDS[kind](folder)
    for number in numbers:
        try:
            verdict = subject.case(random.Random(f"{kind} {number}"))
        except Exception:
            verdict = traceback.format_exc()
        results.send(verdict)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="number of the first case")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    results, seconds, failed = Counter[tuple[str, str]](), Counter[str](), 0
    total = sum(counts(options.kinds, options.cases).values())
    shown = Progress("fuzz", total, unit=" cases")
    started = time.monotonic()
    for done, result in enumerate(run(options.kinds, options.cases, options.seed), start=1):
        seconds[result.kind] += (now := time.monotonic()) - started
        started = now
        is_sound = result.verdict in (ACCEPTED, REFUSED)
        results[result.kind, result.verdict if is_sound else "failed"] += 1
        if not is_sound:
            failed += 1
            again = f"--kinds {result.kind} --seed {result.case} --cases 1"
            print(f"\n{result.kind} case {result.case} ({again}):\n{result.verdict}", flush=True)
        shown.update(done, result.kind)
    verdicts = (REFUSED, ACCEPTED, "failed")
    rows = [
        [kind, *(str(results[kind, verdict]) for verdict in verdicts), f"{seconds[kind]:.0f}"]
        for kind in options.kinds
    ]
    print(text_table([["kind", *verdicts, "seconds"], *rows], right=True))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
