"""The cost model: hours by hand, numbers of params.yaml against the code they describe."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from toy_runs import BATCH, METHODS, MU, STEPS_PER_EPOCH, Toy, toy_run

from dac import config, plan
from dac.config import suites
from dac.models import build_backbone
from dac.workflow import cost

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
PLAN = PARAMS.file.plan
SIDES = {"small-cnn": 16, "wrn-28-2": 32, "resnet18": 224, "resnet18-released": 224}


def test_hours_by_hand() -> None:
    run = PARAMS.run("cifar-50-500", "fixmatch", 1)
    views = 256 * 1024 * (64 + 448 * 2)  # steps x (labeled + two views of the unlabeled)
    by_hand = views * 3 * 0.429e9 / 9e12 / 3600
    evaluations = 256 * 10_000 * 0.429e9 / 9e12 / 3600  # one forward pass of the test part each
    assert cost.train_hours(PARAMS, run) == pytest.approx(by_hand + evaluations)
    assert by_hand == pytest.approx(10.0, abs=0.1)
    dac = PARAMS.run("cifar-50-500", "dac", 1)
    assert cost.train_hours(PARAMS, dac) == pytest.approx(1.03 * by_hand + evaluations)


def test_hours_grow_with_the_area_of_an_image() -> None:
    wide = PARAMS.run("folder", "fixmatch", 1)
    wider = replace(wide, data=wide.data.model_copy(update={"size": 2 * wide.data.size}))
    ratio = cost.train_hours(PARAMS, wider) / cost.train_hours(PARAMS, wide)
    assert ratio == pytest.approx(4)


def test_pretraining_hours_by_hand() -> None:
    run = PARAMS.pretrain("semi-inat-2021", "resnet18")
    by_hand = 100 * 322_969 * 2 * 3 * 3.63e9 / 9e12 / 3600
    assert cost.pretrain_hours(PARAMS, run) == pytest.approx(by_hand)


def test_labeled_only_pays_for_labeled_views_only() -> None:
    labeled = cost.train_hours(PARAMS, PARAMS.run("cifar-6-30", "labeled-only", 1))
    fixmatch = cost.train_hours(PARAMS, PARAMS.run("cifar-6-30", "fixmatch", 1))
    assert 14 < fixmatch / labeled < 15  # 15 times the views, the same evaluations


@pytest.mark.parametrize(
    ("hours", "minutes"), [(0.0, 10), (1.0, 120), (5.99, 719), (10.0, 720), (500.0, 720)]
)
def test_job_minutes_stay_within_the_queue(hours: float, minutes: int) -> None:
    assert cost.job_minutes(PARAMS, hours) == minutes


@pytest.mark.parametrize("name", SIDES)
def test_flops_are_those_of_the_network(name) -> None:
    network = build_backbone(name).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.zeros(1, 3, SIDES[name], SIDES[name]))
    assert counter.get_total_flops() / 1e9 == pytest.approx(PLAN.gigaflops_per_view[name], rel=0.01)


@pytest.mark.parametrize("name", SIDES)
def test_a_run_takes_about_the_disk_that_the_plan_says(name) -> None:
    buffer = io.BytesIO()
    state = build_backbone(name).state_dict()
    torch.save({"best": state, "last": {k: v.clone() for k, v in state.items()}}, buffer)
    assert 1.0 < PLAN.megabytes_per_run[name] / (buffer.tell() / 1e6) < 1.6


@pytest.mark.parametrize("method", METHODS)
def test_forward_passes_are_those_of_a_step(method: str) -> None:
    toy, counted = Toy(toy_run(method)), []

    def count(module: torch.nn.Module, images: tuple[torch.Tensor]) -> None:
        counted.append(len(images[0]) * (3 if torch.is_grad_enabled() else 1))

    toy.network.backbone.register_forward_pre_hook(count)
    for epoch in (0, 1):
        counted.clear()
        toy.terms(epoch * STEPS_PER_EPOCH)
        each = toy.method.settings.phase(epoch).forwards()
        assert sum(counted) == BATCH * (each.labeled + MU * each.unlabeled), epoch
        assert cost.forwards_per_step(toy.run, range(epoch, epoch + 1)) == sum(counted), epoch


def test_the_plan_of_the_whole_paper() -> None:
    results = suites.results(PARAMS, "paper")
    found = cost.cost(PARAMS, results, is_suite=True)
    assert found.runs == 967
    assert 1_900 < found.jobs < 2_500
    assert "pretrain > train semi-inat-pretrained/" in found.chain
    shared = [cost.cost(PARAMS, one, is_suite=False) for one in cost.one_by_one(results)]
    assert sum(one.runs for one in shared) > found.runs  # tables and figures share runs
    assert max(one.gpu_hours for one in shared) < found.gpu_hours


def test_the_printed_plan_states_what_it_rests_on() -> None:
    text = plan.describe(PARAMS, "paper")
    rows = re.findall(
        r"^(table\d|variants|fig\d\d|suite paper) +(\d+) +(\d+) +([\d,.]+)", text, re.M
    )
    assert [row[0] for row in rows] == [
        *PARAMS.suite("paper").tables,
        *PARAMS.suite("paper").figures,
        "suite paper",
    ]
    for claim in (
        "assumed: the A40 sustains 9 TFLOPS (not measured)",
        "counted:",
        "measured on a CPU:",
        "hours: training and pre-training",
    ):
        assert claim in text


def test_hours_are_the_mean_of_the_epochs_and_include_passes_over_the_pool() -> None:
    run = PARAMS.run("cifar-50-500", "osp", 1)
    epochs = range(run.train.epochs)
    passes = [cost.forwards_per_step(run, range(e, e + 1)) for e in epochs]
    assert len(set(passes)) > 1, "another stage begins"
    assert cost.forwards_per_step(run) == pytest.approx(sum(passes) / len(passes))
    over_pool = sum(run.method.phase(e).pool_passes for e in epochs) * PLAN.train_images["cifar100"]
    steps = run.train.steps * cost.forwards_per_step(run) * PLAN.step_over_floor.get("osp", 1)
    evaluations = len(epochs) * 10_000
    by_hand = (steps + over_pool + evaluations) * 0.429e9 / 9e12 / 3600
    assert over_pool > 0 and cost.train_hours(PARAMS, run) == pytest.approx(by_hand)


def over_every_epoch(method: config.MethodSettings, epochs: range) -> tuple[config.Forwards, int]:
    phases = [method.phase(epoch) for epoch in epochs]
    forwards = [phase.forwards() for phase in phases]
    sums = (sum(f.labeled for f in forwards), sum(f.unlabeled for f in forwards))
    return config.Forwards(*sums), sum(phase.pool_passes for phase in phases)


@pytest.mark.parametrize("task", ["digits-6-30", "cifar-6-60", "imagenet-20-p1", "semi-inat"])
def test_passes_are_the_sum_over_every_epoch(task: str) -> None:
    for entry in PARAMS.file.methods:
        run = PARAMS.run(task, entry, 1)
        for epochs in (range(run.train.epochs), range(3, 60), range(50, 51)):
            found = cost._count_passes(run.method, epochs)
            assert repr(found) == repr(over_every_epoch(run.method, epochs)), (entry, epochs)


@pytest.mark.parametrize(
    ("entry", "changes"),
    [
        ("mtcf", {"warmup_epochs": 0, "history": 1}),
        ("openmatch", {"start_epoch": 0}),
        ("openmatch", {"start_epoch": 7}),
        ("safe-student", {"warmup_epochs": 9}),
        ("osp", {"pruning_epoch": 0, "filter_every": 1}),
        ("osp", {"pruning_epoch": 1, "filter_every": 2}),
        ("osp", {"pruning_epoch": 4, "filter_every": 7}),
        ("ssb", {"detector_epoch": 39}),
        ("ssb", {"detector_epoch": 40}),
    ],
)
def test_passes_are_the_sum_wherever_phases_begin(entry: str, changes: dict[str, int]) -> None:
    method = PARAMS.run("cifar-6-60", entry, 1).method.model_copy(update=changes)
    for first in range(5):
        epochs = range(first, 40)
        assert cost._count_passes(method, epochs) == over_every_epoch(method, epochs)


class EveryThird(config.FixMatchSettings):
    def phase(self, epoch: int) -> config.Phase:
        return config.Phase(pool_passes=int(epoch % 3 == 0))


@pytest.mark.parametrize("name", config.SHIPPED)
def test_a_shipped_method_names_every_epoch_at_which_its_phase_changes(name: str) -> None:
    entries = [e for e, found in PARAMS.file.methods.items() if found.method == name]
    assert entries and "turns" in vars(config.SHIPPED[name]), "else every epoch is looked at"
    for entry in entries:
        method, epochs = PARAMS.run("cifar-6-60", entry, 1).method, range(1, 100)
        turns = set(method.turns(epochs))
        assert len(turns) < len(epochs)
        for epoch in set(epochs) - turns:
            assert method.phase(epoch) == method.phase(epoch - 1), (entry, epoch)


def test_a_method_of_your_own_may_change_its_phase_in_any_epoch() -> None:
    values = PARAMS.run("cifar-6-60", "fixmatch", 1).method.model_dump()
    own = EveryThird(**values)
    assert cost._count_passes(own, range(10)) == (config.Forwards(), 4)
    wrapped = PARAMS.run("cifar-6-60", "dac", 1).method.around(own)  # type: ignore[attr-defined]
    assert cost._count_passes(wrapped, range(10))[1] == 4


def test_long_training_is_planned_without_a_look_at_every_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = PARAMS.run("cifar-6-60", "ssb", 1)
    long = replace(run, train=run.train.model_copy(update={"epochs": 100_000}))
    looks: list[int] = []
    phase = type(run.method).phase

    def counted(self: config.MethodSettings, epoch: int) -> config.Phase:
        looks.append(epoch)
        return phase(self, epoch)

    monkeypatch.setattr(type(run.method), "phase", counted)
    ratio = cost.train_hours(PARAMS, long) / cost.train_hours(PARAMS, run)
    assert ratio > 100_000 / 256, "the second phase, which costs more, is a larger share"
    assert len(looks) <= 6


def test_a_run_that_takes_forever_gets_the_longest_job() -> None:
    assert cost.job_minutes(PARAMS, float("inf")) == PLAN.longest_job_minutes


def test_a_figure_of_outputs_needs_no_evaluation() -> None:
    results = suites.results(PARAMS, "paper")
    alone = replace(results, tables={}, figures={"fig02": results.figures["fig02"]})
    # download, prepare, ten times split, train and outputs, and the figure
    assert cost.cost(PARAMS, alone, is_suite=False).jobs == 1 + 1 + 3 * 10 + 1
