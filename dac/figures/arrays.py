"""What the stages `evaluate` and `outputs` leave in a run's folder, for the figures.

A figure of params.yaml gives the identity that it expects: files of other parameters are refused.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dac.io.errors import UserError
from dac.runs.identity import staleness
from dac.runs.metrics_file import read_metrics

Identity = dict[str, Any]


def read_scores(run: Path, expected: Identity | None = None) -> dict[str, np.ndarray]:
    """scores.npz; the metrics beside it identify the run."""
    if expected is not None:
        read_numbers(run, expected)
    return _read(run / "scores.npz", f"python -m dac.evaluate --run {run}")


def read_outputs(run: Path, expected: Identity | None = None) -> dict[str, np.ndarray]:
    command = f"python -m dac.outputs --run {run}"
    arrays = _read(run / "outputs.npz", command)
    if not {"run", "test_labels", "test_probabilities", "test_embeddings"} <= set(arrays):
        raise UserError(f"{run / 'outputs.npz'} holds no outputs; run `{command}` again")
    if expected is not None:
        of_network = {key: value for key, value in expected.items() if key != "evaluate"}
        refuse_stale(json.loads(str(arrays["run"])), of_network, run / "outputs.npz")
    return arrays


def read_numbers(run: Path, expected: Identity | None = None) -> dict[str, Any]:
    """The numbers of metrics.json by their dotted names; NaN was written as null."""
    path = run / "metrics.json"
    if not path.exists():
        raise UserError(f"{path} does not exist; train and evaluate that run")
    found, numbers = read_metrics(path)
    if expected is not None:
        refuse_stale(found, expected, path)
    return numbers


def refuse_stale(found: Identity, expected: Identity, path: Path) -> None:
    if differing := staleness(found, expected):
        raise UserError(f"{path} is of other parameters ({differing}); train it again")


def is_inlier(arrays: dict[str, np.ndarray]) -> np.ndarray:
    labels = arrays["test_labels"]
    mask: np.ndarray = (labels >= 0) & (labels < arrays["num_known"])
    return mask


def _read(path: Path, command: str) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run `{command}`") from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read ({error}); run `{command}` again") from error
