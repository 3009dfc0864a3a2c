"""A finished run, opened again: its parameters, its data and its trained network."""

from pathlib import Path
from typing import Any

import torch

from dac.config import Params, Run
from dac.data.run_data import RunData, load_data
from dac.io.device import set_precision
from dac.io.errors import UserError
from dac.methods.network import Network, build_network
from dac.runs import checkpoint
from dac.runs.folder import refuse_other_run


def open_run(folder: Path, params: Params, root: Path) -> tuple[Run, RunData, dict[str, Any]]:
    """Open a finished run; its model must have been trained with these parameters."""
    path = folder / "model.pt"
    model = checkpoint.from_file(path)
    run = params.run(*_identity(model, folder))
    data = load_data(run, root)
    expected = run.identity() | {"split_hash": data.split_hash}
    if run.train.initial != "random":  # the model no longer needs the weights it started from
        expected["pretrained_hash"] = model["run"].get("pretrained_hash")
    next_step = "give the --params file and the data that it was trained with"
    refuse_other_run(model, expected, path, next_step)
    _check_parts(model, path)
    return run, data, model


def _check_parts(model: dict[str, Any], path: Path) -> None:
    """Refuse a model that lacks what evaluation reads."""
    best, accuracies = model.get("best"), model.get("closed_accuracies")
    best = best if isinstance(best, dict) else {}
    has_numbers = isinstance(accuracies, list) and {type(a) for a in accuracies} == {float}
    is_whole = isinstance(best.get("network"), dict) and type(best.get("step")) is int
    if not is_whole or not has_numbers:
        raise UserError(
            f"{path} lacks best.network, best.step or closed_accuracies; delete it and train again"
        )


def _identity(model: dict[str, Any], folder: Path) -> tuple[str, str, int]:
    try:
        run = model["run"]
        return run["task"]["name"], run["method"]["name"], run["seed"]
    except (KeyError, TypeError):
        raise UserError(
            f"{folder / 'model.pt'} does not say which run it is; delete it and train again"
        ) from None


def load_network(
    run: Run, data: RunData, state: dict[str, torch.Tensor], device: torch.device
) -> Network:
    """Load the evaluated weights into a new network; only training-only memory may be absent."""
    network = build_network(
        run,
        num_known=data.num_known,
        num_labeled=len(data.labeled_index),
        pool=len(data.pool_index),
    )
    fresh = network.state_dict()
    left_out = {name: t for name, t in fresh.items() if not network.needed_for_evaluation(name)}
    if fault := checkpoint.misfit(left_out | state, fresh):
        raise UserError(
            f"the model of {run.task_name}, {run.method_name}, seed {run.seed} does not fit its "
            f"network ({fault}); go back to the code that trained it, or delete model.pt and train "
            "again"
        )
    network.load_state_dict(left_out | state)
    set_precision(run.train.precision)
    network.to(device)
    if device.type == "cuda":  # as in training
        network.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
