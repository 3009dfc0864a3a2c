"""What a step draws and costs: numbers by hand, and the cost of every shipped method.

Costs were once written out per method; those formulas are the oracle here for costs that are now
derived from what a step draws.
"""

from collections.abc import Callable
from typing import Any

import pytest
from changed_params import PARAMS

from dac.config import GRADIENT, SHIPPED, Forwards, MethodSettings, Phase, Stream, ViewCounts

TASKS = ("digits-6-30", "cifar-6-60", "imagenet-20-p1", "semi-inat", "folder")


# --- by hand ----------------------------------------------------------------------------------


def test_views_for_two_are_enough_for_both() -> None:
    one = ViewCounts(labeled=2, weak=1, strong=0, labeled_strong=0)
    other = ViewCounts(labeled=1, weak=0, strong=2, labeled_strong=1)
    assert one | other == ViewCounts(labeled=2, weak=1, strong=2, labeled_strong=1) == other | one


def test_drawn_are_shared_views_and_those_that_a_method_encodes_by_itself() -> None:
    phase = Phase(shared=ViewCounts(labeled=1, weak=1, strong=1), apart=ViewCounts(1, 2))
    assert phase.drawn == ViewCounts(labeled=1, weak=2, strong=1)
    assert Phase().drawn == ViewCounts()


@pytest.mark.parametrize(
    ("phase", "labeled", "unlabeled"),
    [
        (Phase(), 0, 0),
        (Phase(shared=ViewCounts(labeled=2, weak=1, strong=1)), 6, 6),
        (Phase(shared=ViewCounts(labeled=1, labeled_strong=1, weak=2, strong=1)), 6, 9),
        (Phase(apart=ViewCounts(labeled=1, weak=2), extra=Forwards(unlabeled=2)), 3, 8),
        # The same view in the common forward and in one of its own is encoded twice.
        (Phase(shared=ViewCounts(labeled=1, weak=1), apart=ViewCounts(labeled=1, weak=2)), 6, 9),
        (Phase(streams={"s": Stream("labeled", weak=1, strong=1)}), 6, 0),
        (Phase(streams={"s": Stream("unlabeled", strong=1)}), 0, 3),
        (Phase(streams={"s": Stream("unlabeled", weak=1)}, extra=Forwards(0, -2)), 0, 1),
        (Phase(streams={"a": Stream("labeled", weak=1), "b": Stream("unlabeled", weak=1)}), 3, 3),
        (Phase(pool_passes=5, averages=False, selectable=False), 0, 0),
    ],
)
def test_a_view_costs_a_forward_and_a_backward_pass(
    phase: Phase, labeled: float, unlabeled: float
) -> None:
    assert phase.forwards() == Forwards(labeled, unlabeled)


def test_a_step_that_does_the_work_of_both() -> None:
    one = Phase(
        shared=ViewCounts(labeled=1, weak=1),
        apart=ViewCounts(weak=2),
        streams={"a": Stream("labeled", weak=1)},
        pool_passes=1,
        extra=Forwards(1, 2),
    )
    other = Phase(
        shared=ViewCounts(labeled=2, strong=1),
        streams={"b": Stream("unlabeled", strong=1)},
        averages=False,
        selectable=False,
        pool_passes=2,
        extra=Forwards(unlabeled=3),
    )
    expected = Phase(
        shared=ViewCounts(labeled=2, weak=1, strong=1),
        apart=ViewCounts(weak=2),
        streams={"a": Stream("labeled", weak=1), "b": Stream("unlabeled", strong=1)},
        averages=False,
        selectable=False,
        pool_passes=3,
        extra=Forwards(1, 5),
    )
    assert one | other == expected == other | one
    assert one | Phase() == one


def test_settings_must_say_what_a_step_draws() -> None:
    with pytest.raises(NotImplementedError):
        MethodSettings(labeled_views=1, feature_layernorm=False).phase(0)


def test_dac_draws_its_own_views_beside_those_of_the_objective() -> None:
    on_fixmatch = PARAMS.run("cifar-6-60", "dac", 1).method.phase(0)
    assert on_fixmatch == Phase(shared=ViewCounts(labeled=1, weak=1, strong=1))
    on_mixmatch = PARAMS.run("cifar-6-60", "mixmatch+dac", 1).method.phase(0)
    assert on_mixmatch.shared == ViewCounts(labeled=1, weak=1, strong=1)
    assert on_mixmatch.apart == ViewCounts(labeled=1, weak=2)


# --- the formulas that were written out -------------------------------------------------------

Formula = Callable[[Any, int], Forwards]


def mtcf(s: Any, epoch: int) -> Forwards:
    if epoch < s.warmup_epochs:
        return Forwards(GRADIENT, 0)
    return Forwards(2 * GRADIENT, 2 + 2 * GRADIENT)


def openmatch(s: Any, epoch: int) -> Forwards:
    views = 4 if epoch >= s.start_epoch else 2
    return Forwards(GRADIENT * s.labeled_views, views * GRADIENT)


def safe_student(s: Any, epoch: int) -> Forwards:
    """The teacher's look at a seen image has no gradient."""
    is_warm = epoch >= s.warmup_epochs
    return Forwards(GRADIENT * s.labeled_views, is_warm * (1 + 2 * GRADIENT))


def osp(s: Any, epoch: int) -> Forwards:
    """Four rotations of as many images as there are labeled ones."""
    unlabeled = 2 * GRADIENT if epoch >= s.pruning_epoch else 0
    return Forwards(GRADIENT * (s.labeled_views + 4), unlabeled)


def ssb(s: Any, epoch: int) -> Forwards:
    if epoch < s.detector_epoch:
        return Forwards(GRADIENT, 2 * GRADIENT)
    return Forwards(2 * GRADIENT * s.labeled_views, 3 * GRADIENT)


def dac(s: Any, epoch: int) -> Forwards:
    """DAC reads the objective's own forward, but MixMatch has none of unmixed images."""
    objective = forwards(s.target, epoch)
    if isinstance(s.target, SHIPPED["mixmatch"]):
        return objective + Forwards(GRADIENT * s.labeled_views, 2 * GRADIENT)
    return objective


def views_of(unlabeled: int) -> Formula:
    return lambda s, epoch: Forwards(GRADIENT * s.labeled_views, unlabeled * GRADIENT)


FORWARDS: dict[str, Formula] = {
    "labeled-only": views_of(0),
    "mixmatch": lambda s, epoch: Forwards(GRADIENT, 2 + 2 * GRADIENT),
    "fixmatch": views_of(2),
    "comatch": views_of(3),
    "simmatch": lambda s, epoch: Forwards(
        GRADIENT * s.labeled_views + (s.bank == "averaged"), 2 * GRADIENT
    ),
    "softmatch": views_of(2),
    "mtcf": mtcf,
    "openmatch": openmatch,
    "safe-student": safe_student,
    "osp": osp,
    "ssb": ssb,
    "iomatch": views_of(2),
    "uagreg": views_of(3),
    "dac": dac,
}
POOL_PASSES: dict[str, Callable[[Any, int], bool]] = {
    "openmatch": lambda s, epoch: epoch >= max(1, s.start_epoch),
    "safe-student": lambda s, epoch: epoch >= s.warmup_epochs,
    "osp": lambda s, epoch: (
        epoch >= s.pruning_epoch and (epoch - s.pruning_epoch) % s.filter_every == 0
    ),
    "uagreg": lambda s, epoch: epoch >= 1,
}


def name_of(settings: MethodSettings) -> str:
    return next(name for name, model in SHIPPED.items() if type(settings) is model)


def forwards(settings: MethodSettings, epoch: int) -> Forwards:
    return FORWARDS[name_of(settings)](settings, epoch)


def assert_cost(settings: MethodSettings, epoch: int) -> None:
    passes = POOL_PASSES.get(name_of(settings), lambda s, epoch: False)(settings, epoch)
    phase = settings.phase(epoch)
    assert phase.forwards() == forwards(settings, epoch), f"epoch {epoch} of {settings}"
    assert phase.pool_passes == passes, f"epoch {epoch} of {settings}"


def test_every_method_that_ships_has_a_formula() -> None:
    assert list(FORWARDS) == list(SHIPPED)


@pytest.mark.parametrize("task", TASKS)
def test_the_cost_of_every_entry_and_epoch_is_that_of_the_formulas(task: str) -> None:
    for entry in PARAMS.file.methods:
        run = PARAMS.run(task, entry, 1)
        for epoch in range(run.train.epochs):
            assert_cost(run.method, epoch)


VARIED = {
    "mixmatch": {"labeled_views": (1, 2)},
    "simmatch": {"bank": ("momentum", "averaged"), "labeled_views": (1, 2)},
    "mtcf": {"warmup_epochs": range(4)},
    "openmatch": {"start_epoch": range(4), "labeled_views": (1, 2)},
    "safe-student": {"warmup_epochs": range(4), "labeled_views": (1, 2)},
    "osp": {"pruning_epoch": range(4), "filter_every": (1, 2, 3)},
    "ssb": {"detector_epoch": range(4), "labeled_views": (1, 2)},
    "iomatch": {"open_start_epoch": range(4)},
}


@pytest.mark.parametrize("entry", VARIED)
def test_the_cost_is_that_of_the_formulas_wherever_stages_begin(entry: str) -> None:
    settings = PARAMS.run("cifar-6-60", entry, 1).method
    for field, values in VARIED[entry].items():
        for value in values:
            for epoch in range(8):
                assert_cost(settings.model_copy(update={field: value}), epoch)


@pytest.mark.parametrize("objective", [n for n, m in SHIPPED.items() if m.weighs_samples])
@pytest.mark.parametrize("views", [1, 2])
def test_the_cost_of_dac_is_that_of_the_formulas_around_every_objective(
    objective: str, views: int
) -> None:
    own = PARAMS.run("cifar-6-60", "dac", 1).method.model_copy(update={"labeled_views": views})
    wrapped = own.around(PARAMS.run("cifar-6-60", objective, 1).method)  # type: ignore[attr-defined]
    for epoch in range(3):
        assert_cost(wrapped, epoch)
