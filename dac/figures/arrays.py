"""What the stages `evaluate` and `outputs` leave in a run's folder, for the figures.

A figure of params.yaml gives the identity that it expects: files of other parameters are refused.
"""

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dac.errors import UserError
from dac.files import flatten, read_json

FROM_FILES = ("split_hash", "pretrained_hash")  # of the run's inputs, not of its parameters
Identity = dict[str, Any]


def read_scores(run: Path, expected: Identity | None = None) -> dict[str, np.ndarray]:
    """scores.npz; the metrics beside it say whose it is."""
    if expected is not None:
        read_metrics(run, expected)
    return _read(run / "scores.npz", f"python -m dac.evaluate --run {run}")


def read_outputs(run: Path, expected: Identity | None = None) -> dict[str, np.ndarray]:
    command = f"python -m dac.outputs --run {run}"
    arrays = _read(run / "outputs.npz", command)
    if not {"run", "test_labels", "test_probabilities", "test_embeddings"} <= set(arrays):
        raise UserError(f"{run / 'outputs.npz'} holds no outputs; run `{command}` again")
    if expected is not None:
        refuse_stale(json.loads(str(arrays["run"])), expected, run / "outputs.npz")
    return arrays


def read_metrics(run: Path, expected: Identity | None = None) -> dict[str, Any]:
    """The numbers of metrics.json by their dotted names; NaN was written as null."""
    path = run / "metrics.json"
    if not path.exists():
        raise UserError(f"{path} does not exist; train and evaluate that run")
    content = read_json(path, "metrics of a run")
    if not isinstance(content, dict) or not {"run", "metrics"} <= set(content):
        raise UserError(f"{path} holds no metrics; run `python -m dac.evaluate --run {run}` again")
    if expected is not None:
        refuse_stale(content["run"], expected, path)
    return flatten(content["metrics"])


def refuse_stale(found: Identity, expected: Identity, path: Path) -> None:
    there, wanted = _comparable(found), _comparable(expected)
    keys = [key for key in sorted(there | wanted) if there.get(key) != wanted.get(key)]
    if keys:
        listed = ", ".join(f"{k}: {there.get(k)!r}, not {wanted.get(k)!r}" for k in keys[:3])
        more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
        raise UserError(f"{path} is of other parameters ({listed}{more}); train it again")


def _comparable(identity: Identity) -> dict[str, Any]:
    """By dotted names, in the words of JSON: lists, and "inf" for what it has no number for."""
    flat = flatten({key: value for key, value in identity.items() if key not in FROM_FILES})
    return {key: _in_json(value) for key, value in flat.items()}


def _in_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_in_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


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
