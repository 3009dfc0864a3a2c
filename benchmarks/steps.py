"""Sections a, e, f and g: steps, their parts and checkpoints against the backbone and FixMatch."""

import copy
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.allocator import under_allocator
from benchmarks.lab import FIXMATCH, Lab, Workbench, forward_and_backward
from benchmarks.parts import parts_seconds, sums
from benchmarks.table import Row
from benchmarks.timing import Work, medians
from dac.config import SHIPPED, Run
from dac.runs import checkpoint
from dac.workflow.cost import forwards_per_step

# Targets in % of the floor; the authors' code takes 5 to 8 without augmentation.
WITHOUT_AUGMENTATION, WITH_AUGMENTATION = 3.0, 6.0
WITHIN = "the floor is the backbone's share of the same step"
NUM_STEPS = 1000  # between checkpoints, about
ABOVE_EXPECTATION = 1.15  # what a method may cost over the passes it makes
METHODS = (
    *(name for name in SHIPPED if name not in ("labeled-only", FIXMATCH)),
    "mixmatch+dac",
    "simmatch+dac",
    "softmatch+dac",
)


def step_against_floor(bench: Workbench) -> Iterator[Row]:
    """Section a. One paired ratio scatters by about 8%, so the sum of the parts decides."""
    taken = bench.step_seconds
    floor = taken["floor"]
    rows = len(bench.dac.images)
    yield Row("a", f"floor: backbone, {rows} rows, forward and backward", floor, "s")
    yield Row("a", "DAC step / floor", taken["dac"] / floor, note="scatters by about 8%")
    share = statistics.median(bench.dac.shares_outside)
    yield Row("a", "DAC step / floor inside it", 1 + share, note=WITHIN)
    yield from _parts_against_floor(bench, floor)
    yield from _other_floors(bench)


def fixmatch_against_floor(bench: Workbench) -> Iterator[Row]:
    """Section f: the same for FixMatch, without its parts."""
    lab = bench.fixmatch
    for _ in range(bench.rounds):
        lab.step()
    share = statistics.median(lab.shares_outside)
    note = f"{len(lab.images)} rows; {WITHIN}"
    yield Row("f", "FixMatch step / floor", 1 + share, note=note)


def methods_against_fixmatch(bench: Workbench) -> Iterator[Row]:
    """Section g: a step of every method over FixMatch's, beside what its passes let expect."""
    labs = {name: bench.lab(name) for name in (FIXMATCH, *METHODS)}
    works: dict[str, Work] = {name: lab.step for name, lab in labs.items()}
    works[FIXMATCH]()  # the first step of a process also pays for its memory
    taken = medians(works, bench.rounds, bench.device, warm_up=False)
    fixmatch = labs[FIXMATCH].run
    for name in METHODS:
        expected = _last_forwards(labs[name].run) / _last_forwards(fixmatch)
        own = 1 + statistics.median(labs[name].shares_outside)
        note = f"expected {expected:.2f}; step over its backbone passes {own:.2f}"
        ratio = taken[name] / taken[FIXMATCH]
        limit = ABOVE_EXPECTATION * expected
        yield Row("g", f"{name} step / FixMatch step", ratio, at_most=limit, note=note)


def _last_forwards(run: Run) -> float:
    """Forward passes in the epoch that is measured."""
    last = run.train.epochs - 1
    return forwards_per_step(run, range(last, last + 1))


def checkpoint_against_steps(bench: Workbench) -> Iterator[Row]:
    """Section e, by the clock on the wall: writing waits for the disk."""
    lab, state = bench.dac, bench.dac.state.state_dict() | {"run": bench.dac.run.as_dict()}
    steps = NUM_STEPS * bench.step_seconds["dac"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        path = checkpoint.save(folder, lab.state.step, state)
        saved = time.perf_counter()
        found = checkpoint.newest(folder)
        assert found is not None
        lab.state.load_state_dict(found, lab.device)
        loaded = time.perf_counter()
        note = f"{path.stat().st_size / 1e6:.0f} MB, "
    for what, spent in (("save", saved - began), ("load", loaded - saved)):
        share = 100 * spent / steps
        yield Row(
            "e", f"checkpoint {what} / {NUM_STEPS:,} steps", share, "%", note=f"{note}{spent:.1f} s"
        )


def _parts_against_floor(bench: Workbench, floor: float) -> Iterator[Row]:
    taken = parts_seconds(bench.dac, bench.repetitions)
    for name, seconds in taken.items():
        yield Row("a", f"  {name}", 100 * seconds / floor, "%", note=f"{1000 * seconds:.1f} ms")
    without, whole = (100 * total / floor for total in sums(taken))
    what = "parts outside the backbone / floor"
    yield Row("a", what, without, "%", at_most=WITHOUT_AUGMENTATION)
    yield Row("a", f"{what}, with augmentation", whole, "%", at_most=WITH_AUGMENTATION)


def _other_floors(bench: Workbench) -> Iterator[Row]:
    """The same floor in other settings, each over the default, measured in turn with it."""
    works: dict[str, Work] = {"default": bench.dac.floor}
    notes: dict[str, str] = {}
    yield from _allocator_floor(bench)
    if "channels-last" not in bench.skip:
        works["channels-last"] = _channels_last_floor(bench.dac)
    if "compile" not in bench.skip:
        works["compile"] = _compiled_floor(bench.dac)
        notes["compile"] = _first_call(works)
    taken = medians(works, max(1, bench.rounds - 1), bench.device, warm_up=False)
    for name in ("channels-last", "compile"):
        value = taken[name] / taken["default"] if name in taken else None
        yield Row("a", _floor_of(name), value, note=notes.get(name, "" if value else "skipped"))


def _floor_of(name: str) -> str:
    return f"floor, {name} / default"


def _channels_last_floor(lab: Lab) -> Work:
    backbone = copy.deepcopy(lab.state.network.backbone)
    backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    images = lab.images.to(memory_format=torch.channels_last)
    return lambda: forward_and_backward(backbone, images)


def _compiled_floor(lab: Lab) -> Work:
    backbone = copy.deepcopy(lab.state.network.backbone)
    backbone.compile()
    return lambda: forward_and_backward(backbone, lab.images)


def _first_call(works: dict[str, Work]) -> str:
    """Compile; where that fails take the work off the list. A note for the row."""
    began = time.perf_counter()
    try:
        works["compile"]()
    except Exception as error:  # whatever the compiler says belongs into the row
        del works["compile"]
        reason = str(error).strip().splitlines() or [type(error).__name__]
        return f"no compilation: {reason[0]}"
    return f"first step, with compilation, {time.perf_counter() - began:.0f} s"


def _allocator_floor(bench: Workbench) -> Iterator[Row]:
    """Floor, step and parts under other allocator settings."""
    seen = under_allocator(bench)
    if not seen.steps:
        yield Row("a", _floor_of("allocator"), None, note=seen.note)
        return
    floor, both = seen.steps["floor"], "both with that allocator"
    ratio = floor / bench.step_seconds["floor"]
    yield Row("a", _floor_of("allocator"), ratio, note=f"{floor:.2f} s, in a child process")
    share = statistics.median(seen.shares_outside)
    yield Row("a", f"DAC step / floor inside it, {both}", 1 + share, note=WITHIN)
    without, whole = (100 * total / floor for total in sums(seen.parts))
    yield Row("a", f"parts / floor, {both}", without, "%", note=f"{whole:.1f} % with augmentation")
