"""The evaluator: every rule's numbers against hand-made outputs, and the stage itself."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import toy
from sklearn.metrics import balanced_accuracy_score
from toy import TASK

from dac import checkpoint
from dac.augment import evaluation
from dac.evaluate import decisions, evaluate, load_network, predictions
from dac.images import Images
from dac.inference import Outputs, evaluating, predict
from dac.train import start

RULES = {"published", "transductive", "inductive", "reject_nothing", "reject_everything"}
MEMORY = {"dac": {"memory"}, "uagreg": {"memory", "memory_upper"}}
METHODS = ("labeled-only", "fixmatch", "osp", "iomatch", "uagreg", "dac")


@pytest.fixture(scope="module")
def runs(root, params, tmp_path_factory):
    folders = {}
    for method in METHODS:
        folders[method] = tmp_path_factory.mktemp("runs") / method
        toy.train_here(params, method, root, folders[method])
    return folders


def finished(params, method, root, runs):
    """The run, its data and its model file."""
    model = checkpoint.from_file(runs[method] / "model.pt")
    return params.run(TASK, method, 1), toy.toy_data(params, method, root), model


def evaluated(params, method, root, runs):
    run, data, model = finished(params, method, root, runs)
    return data, *evaluate(run, data, model, 20, toy.CPU)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reports_every_rule(method, params, root, runs):
    _, metrics, _ = evaluated(params, method, root, runs)
    assert set(metrics["open"]) == RULES | MEMORY.get(method, set())
    for rule in metrics["open"].values():
        assert all(0 <= v <= 1 for k, v in rule.items() if k != "threshold")


@pytest.mark.parametrize("method", METHODS[1:])
def test_the_kept_arrays_reproduce_the_reported_numbers(method, params, root, runs):
    data, metrics, arrays = evaluated(params, method, root, runs)
    accepted, threshold = arrays["test_accepted"], metrics["open"]["published"]["threshold"]
    assert np.isnan(threshold) == (method == "iomatch")
    if method != "iomatch":
        assert np.array_equal(accepted, arrays["test_scores"] >= threshold)
    predicted = np.where(accepted, arrays["test_predictions"], data.num_known)
    labels = np.minimum(arrays["test_labels"], data.num_known)
    expected = balanced_accuracy_score(labels, predicted)
    assert metrics["open"]["published"]["balanced_accuracy"] == pytest.approx(expected)
    known = labels < data.num_known
    best = np.mean(arrays["test_predictions"][known] == labels[known])
    assert metrics["closed"]["best"] == pytest.approx(best), "evaluated at the best checkpoint"
    assert metrics["open"]["published"]["inlier_recall"] == pytest.approx(accepted[known].mean())


def test_uagreg_is_judged_by_both_thresholds_of_its_model_file(params, root, runs):
    run, data, model = finished(params, "uagreg", root, runs)
    _, arrays = evaluate(run, data, model, 20, toy.CPU)
    thresholds = model["best"]["network"]["method.thresholds"]
    thresholds.copy_(torch.from_numpy(np.quantile(arrays["pool_scores"], [0.3, 0.7])))
    metrics, _ = evaluate(run, data, model, 20, toy.CPU)
    scores, is_known = arrays["pool_scores"], data.pool_labels < data.num_known
    for name, threshold in zip(("memory", "memory_upper"), thresholds.numpy(), strict=True):
        rule = metrics["open"][name]
        assert rule["threshold"] == threshold
        expected = (scores[is_known] >= threshold).mean()
        assert rule["pool_inlier_recall"] == pytest.approx(expected, abs=1e-6)
    assert metrics["kept"].items() <= metrics["open"]["memory_upper"].items()
    assert not metrics["kept"].items() <= metrics["open"]["memory"].items()


def test_iomatch_is_judged_by_its_open_heads_argmax_and_has_no_threshold(params, root, runs):
    run, data, model = finished(params, "iomatch", root, runs)
    network = load_network(run, data, model["best"]["network"], toy.CPU)
    with torch.no_grad(), evaluating(network):
        images = evaluation(torch.from_numpy(data.test_images), data.policy)
        logits = network.method.open_head(network.method.projection(network.encode(images)))
    margin = logits[:, :-1].amax(dim=1) - logits[:, -1]
    shift = margin.quantile(0.4)  # a dozen steps leave all on one side
    model["best"]["network"]["method.open_head.bias"][-1] += shift
    metrics, arrays = evaluate(run, data, model, 20, toy.CPU)
    clear = (margin - shift).abs() > 1e-5
    expected = (margin > shift)[clear].numpy()
    assert np.array_equal(arrays["test_accepted"][clear], expected) and 0.5 < expected.mean() < 0.7
    assert np.isnan(arrays["published_threshold"]) and clear.float().mean() > 0.9
    is_known, published = data.is_known_test, metrics["open"]["published"]
    assert published["inlier_recall"] == arrays["test_accepted"][is_known].mean()
    assert published["outlier_rejection"] == 1 - arrays["test_accepted"][~is_known].mean()
    assert metrics["kept"]["pool_inlier_recall"] != published["pool_inlier_recall"]


def test_osp_is_evaluated_without_its_bank_and_accepts_above_otsu_of_the_pool(params, root, runs):
    run, data, model = finished(params, "osp", root, runs)
    weights = model["best"]["network"]
    left_out = load_network(run, data, weights, toy.CPU).state_dict().keys() - weights.keys()
    assert left_out == {f"method.bank.{name}" for name in ("features", "counts", "position")}
    metrics, arrays = evaluate(run, data, model, 20, toy.CPU)
    above = arrays["pool_scores"] > np.float32(metrics["open"]["inductive"]["threshold"])
    assert np.array_equal(arrays["pool_accepted"], above) and 0 < above.mean() < 1
    assert metrics["kept"].items() <= metrics["open"]["published"].items()


def test_the_anchors_are_closed_accuracy_scaled_and_one_class_of_all(params, root, runs):
    data, metrics, arrays = evaluated(params, "dac", root, runs)
    C, labels = data.num_known, arrays["test_labels"]
    recalls = [np.mean(arrays["test_predictions"][labels == c] == c) for c in range(C)]
    assert metrics["open"]["reject_nothing"]["balanced_accuracy"] == pytest.approx(
        sum(recalls) / (C + 1)
    )
    assert metrics["open"]["reject_everything"]["balanced_accuracy"] == pytest.approx(1 / (C + 1))


def test_the_inductive_threshold_does_not_look_at_the_test_scores(params, root):
    run, data = params.run(TASK, "dac", 1), toy.toy_data(params, "dac", root)
    method = start(run, data, toy.CPU).network.method
    pool = Outputs(np.zeros((4, 5), int), np.array([0.1, 0.2, 0.8, 0.9], np.float32))
    near, far = (
        Outputs(np.zeros((4, 5), int), np.array(scores, np.float32))
        for scores in ([0.1, 0.1, 0.2, 0.2], [0.5, 0.5, 0.9, 0.9])
    )
    below, above = (
        {name: rule.threshold for name, rule in decisions(method, test, pool).items()}
        for test in (near, far)
    )
    assert below["inductive"] == above["inductive"]
    assert below["transductive"] != above["transductive"]


def test_standard_methods_reject_below_their_published_confidence(params, root):
    run, data = params.run(TASK, "fixmatch", 1), toy.toy_data(params, "fixmatch", root)
    method = start(run, data, toy.CPU).network.method
    n = len(data.test_labels)
    scores = np.where(np.arange(n) % 2, 0.95, 0.9499).astype(np.float32)
    outputs = Outputs(np.zeros((n, 5), int), scores)
    pool = Outputs(np.zeros((len(data.pool_index), 5), int), np.ones(len(data.pool_index)))
    rule = decisions(method, outputs, pool)["published"]
    assert np.array_equal(rule.test, scores >= 0.95) and rule.pool.all()


def test_a_decision_of_the_methods_own_takes_the_place_of_the_published_threshold(params, root):
    run, data = params.run(TASK, "fixmatch", 1), toy.toy_data(params, "fixmatch", root)
    method = start(run, data, toy.CPU).network.method
    scores, accepted = np.array([0.99, 0.99], np.float32), np.array([True, False])
    outputs = Outputs(np.zeros((2, 5), int), scores, accepted=accepted)
    rules = decisions(method, outputs, outputs)
    assert np.array_equal(rules["published"].test, accepted)
    assert np.isnan(rules["published"].threshold)
    assert rules["transductive"].test.all()


def test_prediction_in_batches_equals_prediction_at_once(params, root):
    run, data = params.run(TASK, "dac", 1), toy.toy_data(params, "dac", root)
    network = start(run, data, toy.CPU).network
    groups = (~data.is_known_test).astype(int)
    images = Images(data.test_images, toy.CPU, workers=1)
    several, once = (
        predict(network, images, data.policy, groups=groups, batch=b) for b in (64, 1000)
    )
    np.testing.assert_array_equal(several.ranking, once.ranking)
    np.testing.assert_allclose(several.scores, once.scores, rtol=1e-4)
    np.testing.assert_allclose(several.agreement, once.agreement, rtol=1e-5)
    assert several.agreement.shape == (2, 10, 10)
    assert network.training, "the network is handed back in training mode"


def stage(*options):
    command = [sys.executable, "-m", "dac.evaluate", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_stage_writes_metrics_and_scores(params, root, runs):
    done = stage("--run", runs["dac"], "--root", root, "--params", params.path)
    assert done.returncode == 0, done.stderr
    content = json.loads((runs["dac"] / "metrics.json").read_text())
    assert content["run"]["method"]["name"] == "dac"
    with np.load(runs["dac"] / "scores.npz", allow_pickle=False) as arrays:
        assert len(arrays["pool_scores"]) == 869 and len(arrays["test_scores"]) == 599


def test_a_model_of_other_parameters_is_refused(params, root, runs, tmp_path):
    other = toy.toy_params(tmp_path, momentum=0.5)
    done = stage("--run", runs["dac"], "--root", root, "--params", other.path)
    assert done.returncode == 2 and "train.momentum: 0.9 there, 0.5 asked for" in done.stderr
    assert "give the --params file" in done.stderr and "delete" not in done.stderr


def test_a_missing_or_broken_model_is_one_message(params, root, tmp_path):
    done = stage("--run", tmp_path, "--root", root, "--params", params.path)
    assert done.returncode == 2 and "does not exist; train first" in done.stderr
    (tmp_path / "model.pt").write_bytes(b"not a model")
    done = stage("--run", tmp_path, "--root", root, "--params", params.path)
    assert done.returncode == 2 and "cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_picture_files_get_their_class_or_unknown_by_name():
    arrays = {
        "test_accepted": np.array([True, False]),
        "pool_accepted": np.array([True, False]),
        "test_predictions": np.array([1, 0]),
        "test_scores": np.array([0.9, 0.4]),
        "pool_index": np.array([2, 0]),
        "pool_predictions": np.array([0, 1]),
        "pool_scores": np.array([0.5, 0.1]),
    }
    files = ("a.jpg", "b.jpg", "c.jpg")
    table = predictions(arrays, ("cat", "dog"), ("x.jpg", "y.jpg"), files)
    assert table[["part", "file", "class"]].to_numpy().tolist() == [
        ["test", "x.jpg", "dog"],
        ["test", "y.jpg", "unknown"],
        ["pool", "c.jpg", "cat"],
        ["pool", "a.jpg", "unknown"],
    ]
    assert predictions(arrays, ("cat", "dog"), (), ()) is None, "digits and CIFAR are no files"
