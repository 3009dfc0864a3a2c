"""Medians of work done in turn, and the peak of what torch allocates."""

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]
MEGABYTE = 1e6


def now(device: torch.device) -> float:
    """Seconds. On a CPU the time of this process, which leaves other processes' turns out."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def seconds(work: Work, device: torch.device) -> float:
    began = now(device)
    work()
    return now(device) - began


def medians(
    works: Mapping[str, Work], rounds: int, device: torch.device, *, warm_up: bool = True
) -> dict[str, float]:
    """Median seconds of each; all are done once a round, so that a slow minute meets all alike."""
    if warm_up:
        for work in works.values():
            work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        gc.collect()  # now, and seldom in the middle of a measurement
        for name, work in works.items():
            taken[name].append(seconds(work, device))
    return {name: statistics.median(values) for name, values in taken.items()}


def peak_bytes(work: Work, device: torch.device) -> int:
    """The most memory that torch held at once during the call, beyond what it held before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with _silent_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()  # negative when memory is freed
        peak = max(peak, held)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """The profiler reports its start and stop there, past Python."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
