"""A finished run, opened again: a model with missing or misshapen parts is one message."""

import shutil

import pytest
import torch
import toy
from toy import called

from dac.evaluate import main as evaluate_main
from dac.outputs import main as outputs_main
from dac.runs import checkpoint

WEIGHT = "backbone.layers.0.weight"
LACKS = "lacks best.network, best.step or closed_accuracies; delete it and train again"


def changed(path, **changes):
    """The model file with other parts; None removes one."""
    model = checkpoint.from_file(path) | changes
    torch.save({name: part for name, part in model.items() if part is not None}, path)


@pytest.fixture
def run(params, root, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(toy.finished(params, "dac", root), folder)
    return folder


@pytest.fixture
def said(run, root, params, capsys):
    """What both stages that read a model say about this one."""

    def refused() -> str:
        messages = []
        for main in (evaluate_main, outputs_main):
            options = ("--run", run, "--root", root, "--params", params.path, "--device", "cpu")
            assert called(main, *options) == 2
            messages.append(capsys.readouterr().err)
        assert messages[0] == messages[1] and messages[0].startswith("error: ")
        assert not (run / "metrics.json").exists() and not (run / "outputs.npz").exists()
        return messages[0]

    return refused


@pytest.mark.parametrize(
    "changes",
    [
        {"best": None},
        {"best": 3},
        {"best": {"step": 5, "network": [1]}},
        {"best": {"network": {}}},
        {"closed_accuracies": None},
        {"closed_accuracies": []},
        {"closed_accuracies": ["high"]},
    ],
)
def test_a_model_that_lacks_a_part_is_named(changes, run, said):
    changed(run / "model.pt", **changes)
    assert said() == f"error: {run / 'model.pt'} {LACKS}\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda network: network.pop(WEIGHT), f"{WEIGHT} is missing"),
        (lambda network: network.update({WEIGHT: 1.0}), f"{WEIGHT} is missing"),
        (lambda network: network.update({WEIGHT: torch.zeros(2)}), f"{WEIGHT} is (2,), expected"),
        (lambda network: network.update({"more": torch.zeros(2)}), "more has no place"),
    ],
)
def test_tensors_that_do_not_fit_the_network_are_named(change, told, run, said):
    best = checkpoint.from_file(run / "model.pt")["best"]
    change(best["network"])
    changed(run / "model.pt", best=best)
    message = said()
    assert f"the model of digits-6-30, dac, seed 1 does not fit its network ({told}" in message
    assert "delete model.pt and train again" in message
