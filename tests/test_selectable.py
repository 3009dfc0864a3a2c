"""The best network is of a stage that its method allows, whatever was more accurate before."""

import itertools

import pytest
import torch
from torch import Tensor
from toy_runs import Toy, fitted, toy_run

from dac import loop
from dac.loop import Progression, evaluated_state


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every evaluation is worse than the one before: the best is the first that may be chosen."""
    rows = ({"closed_accuracy": 0.9**i, "auroc": 0.5} for i in itertools.count())
    monkeypatch.setattr(loop, "evaluate_closed", lambda *_: next(rows))


@pytest.mark.usefixtures("falling")
@pytest.mark.parametrize("method", ["mtcf", "safe-student"])
@pytest.mark.parametrize(
    ("warmup_epochs", "evaluate_every", "best"),
    [(0, 2, 2), (1, 2, 8), (1, 6, 12), (9, 5, 12)],  # six steps an epoch, twelve in all
)
def test_best_network_is_of_after_the_warm_up_or_the_last_one_when_there_is_none(
    method: str, warmup_epochs: int, evaluate_every: int, best: int
) -> None:
    states: dict[int, dict[str, Tensor]] = {}

    def keep(progress: Progression) -> None:
        states[progress.step] = evaluated_state(progress)

    toy = Toy(toy_run(method, warmup_epochs=warmup_epochs))
    progress = fitted(toy, save=keep, checkpoint_every=1, evaluate_every=evaluate_every)
    assert progress.best["step"] == best
    network = progress.best["network"]
    assert network.keys() == states[best].keys()
    assert all(torch.equal(network[name], tensor) for name, tensor in states[best].items())
