"""Stage `evaluate`: every number of a finished run; one evaluator for all methods.

    python -m dac.evaluate --run runs/cifar-50-500/dac/seed1

Reads model.pt, leaves metrics.json (the numbers), scores.npz (one row per image, for the figures)
and, for sets of picture files, predictions.csv (file, class or unknown, score) beside it.
Thresholds are labeled by where they come from:
  published     the method's own rule (docs/protocol.md, "Decision rules")
  transductive  Otsu on the test scores, for every method
  inductive     Otsu on the scores of the training pool: nothing of the test set is used
  memory        where training ends with a threshold (DAC if it rejects, Safe-Student, UAGreg);
                UAGreg has a second, memory_upper
And `kept`, what training itself takes for inliers in the pool.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dac import checkpoint
from dac.batches import RunData
from dac.data import prepared
from dac.errors import UserError, exit_code_of
from dac.files import write_arrays, write_json, write_text
from dac.images import Images
from dac.inference import Outputs, predict
from dac.logs import say
from dac.methods import build_network
from dac.methods.base import Method, Network
from dac.metrics import (
    auroc,
    closed_set_accuracy,
    open_set_balanced_accuracy,
    rates,
)
from dac.otsu import otsu_threshold
from dac.params import DEFAULT_PATH, Params, Run, load
from dac.train import choose_device, load_data


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.evaluate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of a finished run")
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the data")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    params = load(options.params)
    device = choose_device(options.device)
    run, data, model = open_run(options.run, params, options.root)
    metrics, arrays = evaluate(run, data, model, params.file.evaluate.last_evaluations, device)
    write_arrays(options.run / "scores.npz", arrays)
    files = prepared.load(options.root, run.task.data).files
    listed = predictions(arrays, data.known_names, files(run.task.test_part), files("train"))
    if listed is not None:
        write_text(options.run / "predictions.csv", listed.to_csv(index=False))
    identity = model["run"] | {"evaluate": params.evaluation(run)}
    write_json(options.run / "metrics.json", {"run": identity, "metrics": metrics})
    say(f"wrote {options.run / 'metrics.json'}")


def open_run(folder: Path, params: Params, root: Path) -> tuple[Run, RunData, dict[str, Any]]:
    """A finished run with its data and its model file, which must be of these parameters."""
    path = folder / "model.pt"
    model = checkpoint.from_file(path)
    run = params.run(*_identity(model, folder))
    data = load_data(run, root)
    expected = run.identity() | {"split_hash": data.split_hash}
    if run.train.initial != "random":  # the model has the weights it started from behind it
        expected["pretrained_hash"] = model["run"].get("pretrained_hash")
    next_step = "give the --params file and the data that it was trained with"
    checkpoint.refuse_other_run(model, expected, path, next_step)
    return run, data, model


def _identity(model: dict[str, Any], folder: Path) -> tuple[str, str, int]:
    try:
        run = model["run"]
        return run["task"]["name"], run["method"]["name"], run["seed"]
    except (KeyError, TypeError):
        raise UserError(
            f"{folder / 'model.pt'} does not say which run it is; delete it and train again"
        ) from None


def evaluate(
    run: Run, data: RunData, model: dict[str, Any], last_evaluations: int, device: torch.device
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Metrics of the best checkpoint, and the per-image arrays behind them."""
    network = load_network(run, data, model["best"]["network"], device)
    test_images = Images(data.test_images, device, run.train.workers)
    train_images = Images(data.train_images, device, run.train.workers)
    batch, groups = run.train.evaluation_batch, (~data.is_known_test).astype(int)
    test = predict(network, test_images, data.policy, groups=groups, batch=batch)
    pool = predict(
        network, train_images, data.policy, index=data.pool_index, is_pool=True, batch=batch
    )
    accuracies = model["closed_accuracies"]
    rules = decisions(network.method, test, pool)
    kept = rules["published"].pool if pool.kept is None else pool.kept
    metrics: dict[str, Any] = {
        "closed": {
            "best": max(accuracies),  # a method's best network may have to be of a later stage
            "last": accuracies[-1],
            "median_of_last": float(np.median(accuracies[-last_evaluations:])),
            "top5": closed_set_accuracy(data.test_labels, test.ranking, data.num_known),
        },
        "best_step": model["best"]["step"],
        "auroc": auroc(data.is_known_test, test.scores),
        "pool_auroc": _pool_auroc(data, pool),
        "open": {name: _under(rule, data, test) for name, rule in rules.items()},
        "kept": _pool_rates(data, kept),
    }
    return metrics, _arrays(data, test, pool, rules["published"])


@dataclass(frozen=True)
class Decision:
    """Which images a rule calls inliers: at or above its threshold, if it has one."""

    threshold: float
    test: np.ndarray
    pool: np.ndarray


def predictions(
    arrays: dict[str, np.ndarray],
    known_names: tuple[str, ...],
    test_files: tuple[str, ...],
    train_files: tuple[str, ...],
) -> pd.DataFrame | None:
    """A row per picture file: its class or `unknown`, its score. None for sets without files."""
    if not test_files or not train_files:
        return None
    pool_files = [train_files[i] for i in arrays["pool_index"]]
    tables = []
    for part, files in (("test", list(test_files)), ("pool", pool_files)):
        named = np.array(known_names)[arrays[f"{part}_predictions"]]
        called = np.where(arrays[f"{part}_accepted"], named, "unknown")
        columns = {"part": part, "file": files, "class": called}
        tables.append(pd.DataFrame(columns | {"score": arrays[f"{part}_scores"]}))
    return pd.concat(tables)


def load_network(
    run: Run, data: RunData, state: dict[str, torch.Tensor], device: torch.device
) -> Network:
    """The evaluated weights in a fresh network; only training-only memory may be absent."""
    network = build_network(
        run,
        num_known=data.num_known,
        num_labeled=len(data.labeled_index),
        pool=len(data.pool_index),
    )
    fresh = network.state_dict()
    left_out = {name: t for name, t in fresh.items() if not network.needed_for_evaluation(name)}
    network.load_state_dict(left_out | state)
    return network.to(device)


def decisions(method: Method, test: Outputs, pool: Outputs) -> dict[str, Decision]:
    """Every rule's decision, with the two trivial rules as anchors."""
    test_scores, pool_scores = torch.from_numpy(test.scores), torch.from_numpy(pool.scores)
    found = {
        "transductive": float(otsu_threshold(test_scores)),
        "inductive": float(otsu_threshold(pool_scores)),
    }
    found |= {name: float(value) for name, value in method.trained_thresholds().items()}
    if test.accepted is None:
        found["published"] = float(method.threshold(test_scores, pool_scores))
    found |= {"reject_nothing": -np.inf, "reject_everything": np.inf}
    rules = {
        name: Decision(threshold, test.scores >= threshold, pool.scores >= threshold)
        for name, threshold in found.items()
    }
    if test.accepted is not None and pool.accepted is not None:
        rules["published"] = Decision(float("nan"), test.accepted, pool.accepted)
    return rules


def _under(rule: Decision, data: RunData, test: Outputs) -> dict[str, float]:
    """Balanced accuracy and rates under a rule.

    NaN where there is nothing to measure: Semi-iNat tests on known classes only.
    """
    predictions = np.where(rule.test, test.predictions, data.num_known)
    recall, rejection = rates(data.is_known_test, rule.test)
    has_outliers = bool(np.any(data.test_labels >= data.num_known))
    accuracy = open_set_balanced_accuracy(data.test_labels, predictions, data.num_known)
    return {
        "threshold": rule.threshold,
        "balanced_accuracy": accuracy if has_outliers else float("nan"),
        "inlier_recall": recall,
        "outlier_rejection": rejection,
        **_pool_rates(data, rule.pool),
    }


def _pool_rates(data: RunData, accepted: np.ndarray) -> dict[str, float]:
    judged = data.pool_labels >= 0
    recall, rejection = rates(data.pool_labels[judged] < data.num_known, accepted[judged])
    return {"pool_inlier_recall": recall, "pool_outlier_rejection": rejection}


def _pool_auroc(data: RunData, pool: Outputs) -> float:
    judged = data.pool_labels >= 0
    return auroc(data.pool_labels[judged] < data.num_known, pool.scores[judged])


def _arrays(
    data: RunData, test: Outputs, pool: Outputs, published: Decision
) -> dict[str, np.ndarray]:
    arrays = {
        "num_known": np.array(data.num_known),
        "test_labels": data.test_labels,
        "test_predictions": test.predictions,
        "test_scores": test.scores,
        "test_accepted": published.test,
        "published_threshold": np.array(published.threshold),
        "pool_index": data.pool_index,
        "pool_labels": data.pool_labels,
        "pool_predictions": pool.predictions,
        "pool_scores": pool.scores,
        "pool_accepted": published.pool,
    }
    # Mean agreement of head pairs on inliers (row 0) and outliers (row 1), for Figs. 2 and 6.
    return arrays if test.agreement is None else arrays | {"agreement": test.agreement}


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
