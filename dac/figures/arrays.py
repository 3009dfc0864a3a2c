"""What the stages `evaluate` and `outputs` leave in a run's folder, for the figures.

A figure of params.yaml gives the identity that it expects: files of other parameters are refused.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from dac.io.errors import UserError, reason, remedy
from dac.io.files import regular
from dac.runs.identity import staleness
from dac.runs.metrics_file import read_metrics

Identity = dict[str, Any]
Shapes = dict[str, tuple[str, str]]
"""Array -> a letter per dimension, the same letter for the same length, and the kinds of NumPy
that it may have: i and u integers, f floating point, U text."""
OF_TEST: Shapes = {"num_known": ("", "iu"), "test_labels": ("n", "iu")}
SCORES = OF_TEST | {"test_scores": ("n", "f"), "published_threshold": ("", "f")}
HEADS: Shapes = {"agreement": ("gkk", "f")}  # only of methods with several heads
OUTPUTS = OF_TEST | {
    "run": ("", "U"),
    "test_probabilities": ("nc", "f"),
    "test_embeddings": ("nd", "f"),
}


def read_scores(run: Path, expected: Identity | None = None) -> dict[str, np.ndarray]:
    """scores.npz; the metrics beside it identify the run."""
    if expected is not None:
        read_numbers(run, expected)
    command = f"python -m dac.evaluate --run {run}"
    return _read(run / "scores.npz", command, SCORES, optional=HEADS)


def read_outputs(run: Path, expected: Identity | None = None) -> dict[str, np.ndarray]:
    command = f"python -m dac.outputs --run {run}"
    path = run / "outputs.npz"
    arrays = _read(path, command, OUTPUTS)
    if expected is not None:
        of_network = {key: value for key, value in expected.items() if key != "evaluate"}
        try:
            found = dict(json.loads(str(arrays["run"])))
        except (ValueError, TypeError, RecursionError):
            raise UserError(f"{path} does not say whose it is; run `{command}` again") from None
        refuse_stale(found, of_network, path)
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


def _read(
    path: Path, command: str, wanted: Shapes, optional: Shapes | None = None
) -> dict[str, np.ndarray]:
    try:
        with np.load(regular(path), allow_pickle=False) as file:
            arrays = dict(file)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; run `{command}`") from None
    except Exception as error:  # broken bytes can raise anything
        step = remedy(error, f"run `{command}` again")
        raise UserError(f"{path} cannot be read ({reason(error)}); {step}") from error
    there = {name: shape for name, shape in (optional or {}).items() if name in arrays}
    if fault := _misfit(arrays, {**wanted, **there}):
        raise UserError(f"{path} {fault}; run `{command}` again")
    return arrays


def _misfit(arrays: dict[str, np.ndarray], wanted: Shapes) -> str | None:
    """What is wrong with the arrays of a file; None if nothing is."""
    lengths: dict[str, int] = {}
    for name, (letters, kinds) in wanted.items():
        array = arrays.get(name)
        if array is None:
            return f"lacks {name}"
        fits = array.ndim == len(letters) and array.size and array.dtype.kind in kinds
        pairs = zip(letters, array.shape, strict=False)
        if not fits or any(lengths.setdefault(letter, n) != n for letter, n in pairs):
            return f"has {array.dtype} {array.shape} as {name}, which does not fit"
    return None
