"""Every number of a finished run; one evaluator for all methods."""

from typing import Any

import numpy as np
import torch

from dac.config import Run
from dac.data.images import Images
from dac.data.run_data import RunData
from dac.evaluation.decisions import Decision, accepts, decisions
from dac.evaluation.inference import Outputs, predict
from dac.evaluation.network import load_network
from dac.io.files import csv_text
from dac.io.text_table import text_table
from dac.metrics import auroc, closed_set_accuracy, open_set_balanced_accuracy, rates

# What starts a formula, full-width forms included (owasp.org, "CSV Injection"), and our own mark.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")


def evaluate(
    run: Run, data: RunData, model: dict[str, Any], last_evaluations: int, device: torch.device
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Metrics of the best checkpoint, and the per-image arrays behind them."""
    network = load_network(run, data, model["best"]["network"], device)
    test_images = Images(data.test_images, device, run.train.workers)
    train_images = Images(data.train_images, device, run.train.workers)
    batch, groups = run.train.evaluation_batch, (~data.is_known_test).astype(int)
    rules = network.method.rules()
    asked = accepts(rules)
    of_test = {name: rule for name, rule in asked.items() if name != "kept"}
    policy = data.policy
    test = predict(network, test_images, policy, groups=groups, accepts=of_test, batch=batch)
    pool = predict(network, train_images, policy, index=data.pool_index, accepts=asked, batch=batch)
    decided = decisions(rules, test, pool)
    kept = decided.pop("kept", decided["published"]).pool
    accuracies = model["closed_accuracies"]
    metrics: dict[str, Any] = {
        "closed": {
            "best": max(accuracies),  # the best network may have to be of a later phase
            "last": accuracies[-1],
            "median_of_last": float(np.median(accuracies[-last_evaluations:])),
            "top5": closed_set_accuracy(data.test_labels, test.ranking, data.num_known),
        },
        "best_step": model["best"]["step"],
        "auroc": auroc(data.is_known_test, test.scores),
        "pool_auroc": _pool_auroc(data, pool),
        "open": {name: _under(decision, data, test) for name, decision in decided.items()},
        "kept": _pool_rates(data, kept),
    }
    return metrics, _arrays(data, test, pool, decided["published"])


def summary(metrics: dict[str, Any]) -> str:
    """The main metrics of a run as a table with a row per rule."""
    rows = [["open-set rule", "balanced accuracy", "inliers accepted", "outliers rejected"]]
    for name, rule in metrics["open"].items():
        shown = (rule["balanced_accuracy"], rule["inlier_recall"], rule["outlier_rejection"])
        rows.append([name.replace("_", " "), *map(_percent, shown)])
    closed, ranking = _percent(metrics["closed"]["best"]), _percent(metrics["auroc"])
    above = f"closed-set accuracy {closed}, AUROC {ranking}; percent, test images"
    return f"{above}\n{text_table(rows, right=True)}"


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.1f}"


def predictions(
    arrays: dict[str, np.ndarray],
    known_names: tuple[str, ...],
    test_files: tuple[str, ...],
    train_files: tuple[str, ...],
) -> str | None:
    """CSV with a row per picture file; None for sets without files.

    `accepted` tells a rejected picture, whose class is `unknown`, from one of a class of that name.
    """
    if not test_files or not train_files:
        return None
    rows = []
    pool_files = [train_files[i] for i in arrays["pool_index"]]
    for part, files in (("test", list(test_files)), ("pool", pool_files)):
        columns = (arrays[f"{part}_{name}"] for name in ("accepted", "predictions", "scores"))
        for file, accepted, label, score in zip(files, *columns, strict=True):
            decision = ("yes", known_names[label]) if accepted else ("no", "unknown")
            rows.append([part, *map(_for_spreadsheets, (file, *decision)), score])
    return csv_text(["part", "file", "accepted", "class", "score"], rows, quote_text=True)


def _for_spreadsheets(name: str) -> str:
    """Put an apostrophe before a name that a spreadsheet would run as a formula.

    A name with an apostrophe of its own gets a second one, so that removing the first is always
    right.
    """
    return f"'{name}" if name.startswith(FORMULA) else name


def _under(decision: Decision, data: RunData, test: Outputs) -> dict[str, float]:
    """Balanced accuracy and rates of a rule.

    NaN where there is nothing to measure: Semi-iNat tests on known classes only.
    """
    predictions = np.where(decision.test, test.predictions, data.num_known)
    recall, rejection = rates(data.is_known_test, decision.test)
    has_outliers = bool(np.any(data.test_labels >= data.num_known))
    accuracy = open_set_balanced_accuracy(data.test_labels, predictions, data.num_known)
    return {
        "threshold": decision.threshold,
        "balanced_accuracy": accuracy if has_outliers else float("nan"),
        "inlier_recall": recall,
        "outlier_rejection": rejection,
        **_pool_rates(data, decision.pool),
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
