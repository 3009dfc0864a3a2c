"""The benchmark at toy size: every section runs, and its references do the same work as ours."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import tiles
from policies import CIFAR, seeded
from toy import called

from benchmarks import __main__ as command
from benchmarks import parts, steps
from benchmarks.allocator import under_allocator
from benchmarks.augmentation import augmentation, strong_views, weak_views
from benchmarks.information import gram_mutual_information, information, otsu
from benchmarks.lab import Workbench
from benchmarks.parts import AUGMENTATION, TOGETHER
from benchmarks.table import Row, table
from benchmarks.timing import medians, peak_bytes
from benchmarks.watch import BackboneWatch
from dac import config
from dac.augment import strong, weak
from dac.losses import mutual_information, textbook_mutual_information

CPU = torch.device("cpu")
Section = Callable[[Workbench], Iterator[Row]]


def small_information(bench: Workbench) -> Iterator[Row]:
    return information(bench, small=(8, 3, 4), large=(4, 3, 5))


@pytest.fixture(scope="module")
def bench() -> Workbench:
    skip = frozenset(("allocator", "compile"))
    return Workbench(
        config.load(Path(__file__).parents[2] / "params.yaml"),
        CPU,
        task="digits-6-30",
        pool=200,
        rounds=1,
        repetitions=1,
        skip=skip,
    )


@pytest.mark.parametrize(
    "section",
    [
        steps.step_against_floor,
        augmentation,
        small_information,
        otsu,
        steps.checkpoint_against_steps,
        steps.fixmatch_against_floor,
        steps.methods_against_fixmatch,
    ],
)
def test_every_section_measures_finite_positive_ratios(bench: Workbench, section: Section) -> None:
    rows = list(section(bench))
    values = [row.value for row in rows if row.note != "skipped"]
    assert values and all(v is not None and math.isfinite(v) and v > 0 for v in values)
    assert table(rows).count("\n") == len(rows) + 1


def test_the_child_process_measures_steps_and_parts(bench: Workbench) -> None:
    seen = under_allocator(dataclasses.replace(bench, skip=frozenset()))
    assert seen.steps.keys() == {"floor", "dac"}, seen.note
    assert seen.parts.keys() == parts.parts(bench.dac).keys() | {TOGETHER}


def test_a_missing_compiler_is_a_note_and_not_an_error() -> None:
    def fails() -> None:
        raise RuntimeError("No working C++ compiler found\nand a long trace")

    works: dict[str, Callable[[], object]] = {"default": int, "compile": fails}
    assert steps._first_call(works) == "no compilation: No working C++ compiler found"
    assert works == {"default": int}


def test_the_parts_are_the_step_without_the_backbone(bench: Workbench) -> None:
    """Every loss term of a real step has its part, and the sums count every part once."""
    taken = parts.parts_seconds(bench.dac, 1)
    without, whole = parts.sums(dict.fromkeys(taken, 1.0))
    assert (without, whole) == (len(taken) - 2, len(taken) - 1)  # TOGETHER is a cross-check
    assert {AUGMENTATION, TOGETHER, "distillation", "mutual information"} <= taken.keys()


def test_a_measured_step_is_one_step_of_the_training_loop(bench: Workbench) -> None:
    lab = bench.dac
    weights = [p.detach().clone() for p in lab.state.network.parameters()]
    before = lab.state.step
    lab.step()
    assert lab.state.step == before + 1
    assert lab.clock.epoch >= 1  # past the warm-up, so that all losses are measured
    assert "distillation" in lab.state.meter.sums
    changed = zip(weights, lab.state.network.parameters(), strict=True)
    assert any(not torch.equal(old, p) for old, p in changed)


def test_the_backbone_is_watched_forward_and_backward_within_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pass through the backbone takes 100 s, through a loss 10 s, the rest of the step 1 s."""
    clock = [0.0]
    monkeypatch.setattr("benchmarks.watch.now", lambda device: clock[0])

    class Takes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, seconds: float) -> torch.Tensor:
            ctx.seconds = seconds
            clock[0] += seconds
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            clock[0] += ctx.seconds
            return gradients[0], None

    class Backbone(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = Takes.apply(super().forward(x), 100)
            return out

    backbone = Backbone(2, 2)
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1)
    with BackboneWatch(backbone, optimizer, CPU) as watch:
        features = backbone(torch.ones(1, 2))
        # Heads read detached features: their backward does not lead to the backbone.
        head = Takes.apply(features.detach().requires_grad_(), 10)
        (Takes.apply(features, 10).sum() + head.sum()).backward()
        optimizer.step()
        clock[0] += 1
    assert (watch.inside, watch.outside) == (200, 41)
    backbone(torch.ones(1, 2))
    assert watch.inside == 200  # nothing is watched any more


def test_the_pillow_reference_gives_the_same_views() -> None:
    images = tiles(100, 32)
    on_host = images.permute(0, 2, 3, 1).numpy()
    for batched, one_by_one in ((weak, weak_views), (strong, strong_views)):
        expected = one_by_one(on_host, CIFAR, seeded(1))
        assert torch.equal(batched(images, CIFAR, seeded(1)), expected)


@pytest.mark.parametrize("reference", [textbook_mutual_information, gram_mutual_information])
def test_the_references_are_the_same_mutual_information(
    reference: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    logits = (3 * torch.randn(9, 4, 5, generator=seeded(2))).double().requires_grad_()
    expected, found = reference(logits), mutual_information(logits)
    assert torch.allclose(found, expected)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (found, expected)]
    assert torch.allclose(*gradients)


def test_peak_counts_what_lives_at_the_same_time() -> None:
    def work() -> None:
        first = torch.empty(1_000_000, dtype=torch.uint8)
        second = torch.empty(2_000_000, dtype=torch.uint8)
        del first, second
        torch.empty(2_500_000, dtype=torch.uint8)

    assert 3_000_000 <= peak_bytes(work, CPU) < 3_100_000


def test_medians_take_turns() -> None:
    order: list[str] = []
    medians({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, CPU)
    assert order == ["a", "b"] * 3  # a warm-up and two rounds


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("a", "x", 2.9, "%", at_most=3), "ok"),
        (Row("a", "x", 3.1, "%", at_most=3), "MISSED"),
        (Row("a", "x", 5.0, at_least=5), "ok"),
        (Row("a", "x", 4.9, at_least=5), "MISSED"),
        (Row("a", "x", 1.0), "info"),
        (Row("a", "x", None, at_most=3, note="skipped"), "info"),
    ],
)
def test_verdicts(row: Row, verdict: str) -> None:
    assert row.verdict == verdict


def test_the_command_prints_a_table_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.json"
    assert (
        called(command.main, "--quick", "--only", "d", "--json", str(path), "--device", "cpu") == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("on ") and "skimage / ours" in out
    rows = json.loads(path.read_text())["rows"]
    assert [row["section"] for row in rows] == ["d"]


@pytest.mark.parametrize(
    ("option", "value"), [("--only", "a,z"), ("--skip", "compile,floor"), ("--device", "abacus")]
)
def test_unknown_names_are_bad_input(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(command.main, option, value) == 2
    assert value.split(",")[-1] in capsys.readouterr().err
