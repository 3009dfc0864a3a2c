"""The best network is of a stage that its method allows, whatever was more accurate before."""

import itertools

import pytest
import torch
from torch import Tensor
from toy_runs import METHODS, PARAMS, Toy, fitted, toy_run

from dac.training import loop
from dac.training.loop import MethodState, evaluated_state


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every evaluation is worse than the one before: the best is the first that may be chosen."""
    rows = ({"closed_accuracy": 0.9**i, "auroc": 0.5} for i in itertools.count())
    monkeypatch.setattr(loop, "evaluate_closed", lambda *_: next(rows))


PHASES = {"mtcf": "warmup_epochs", "safe-student": "warmup_epochs", "ssb": "detector_epoch"}


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("method", PHASES)
def test_networks_are_selectable_from_the_stage_that_evaluation_needs(
    method: str, start: int
) -> None:
    """IOMatch's open-set head: tests/methods/test_iomatch.py."""
    settings = toy_run(method, **{PHASES[method]: start}).method
    assert [settings.phase(epoch).selectable for epoch in range(5)] == [
        epoch >= start for epoch in range(5)
    ]


def test_every_other_method_is_selectable_from_the_first_epoch_on() -> None:
    staged = {*PHASES, "iomatch", "iomatch-aligned"}
    for method in METHODS:
        first = PARAMS.run("digits-6-30", method, 1).method.phase(0)
        assert first.selectable == (method not in staged), method


@pytest.mark.usefixtures("falling")
@pytest.mark.parametrize(
    ("method", "warmup_epochs", "evaluate_every", "best"),  # six steps an epoch, twelve in all
    [
        ("safe-student", 0, 2, 2),
        ("mtcf", 1, 2, 8),
        ("safe-student", 1, 6, 12),
        ("mtcf", 9, 5, 12),
    ],
)
def test_best_network_is_of_after_the_warm_up_or_the_last_one_when_there_is_none(
    method: str, warmup_epochs: int, evaluate_every: int, best: int
) -> None:
    states: dict[int, dict[str, Tensor]] = {}

    def keep(progress: MethodState) -> None:
        states[progress.step] = evaluated_state(progress)

    toy = Toy(toy_run(method, warmup_epochs=warmup_epochs))
    progress = fitted(toy, save=keep, checkpoint_every=1, evaluate_every=evaluate_every)
    assert progress.best["step"] == best
    network = progress.best["network"]
    assert network.keys() == states[best].keys()
    assert all(torch.equal(network[name], tensor) for name, tensor in states[best].items())
