"""The evaluator: every rule's numbers against hand-made outputs, and the stage itself."""

import csv
import io
import json
import shutil
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
import toy
from sklearn.metrics import balanced_accuracy_score
from toy import TASK, called

from dac.augment import evaluation
from dac.data.images import Images
from dac.evaluate import main
from dac.evaluation.decisions import accepts, decisions
from dac.evaluation.inference import Outputs, evaluating, predict
from dac.evaluation.measure import evaluate, predictions, summary
from dac.evaluation.network import load_network
from dac.methods.parts.rules import Rule
from dac.runs import checkpoint
from dac.training.run import start

RULES = {"published", "transductive", "inductive", "reject_nothing", "reject_everything"}
MEMORY = {"dac": {"memory"}, "uagreg": {"memory", "memory_upper"}}
METHODS = ("labeled-only", "fixmatch", "osp", "iomatch", "uagreg", "dac")


def finished(params, method, root):
    """The run, its data and its model file."""
    model = checkpoint.from_file(toy.finished(params, method, root) / "model.pt")
    return params.run(TASK, method, 1), toy.toy_data(params, method, root), model


@pytest.fixture(scope="module")
def evaluated(params, root):
    """Data, metrics and arrays of a method's run, evaluated when first asked for."""

    @cache
    def of_method(method):
        run, data, model = finished(params, method, root)
        return data, *evaluate(run, data, model, 20, toy.CPU)

    return of_method


@pytest.fixture(scope="module")
def dac_run(params, root, tmp_path_factory):
    """A copy that the stage may write into."""
    folder = tmp_path_factory.mktemp("runs") / "dac"
    return shutil.copytree(toy.finished(params, "dac", root), folder)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_reports_every_rule(method, evaluated):
    _, metrics, _ = evaluated(method)
    assert set(metrics["open"]) == RULES | MEMORY.get(method, set())
    for rule in metrics["open"].values():
        assert all(0 <= v <= 1 for k, v in rule.items() if k != "threshold")


@pytest.mark.parametrize("method", METHODS[1:])
def test_the_kept_arrays_reproduce_the_reported_numbers(method, evaluated):
    data, metrics, arrays = evaluated(method)
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


def test_uagreg_is_judged_by_both_thresholds_of_its_model_file(params, root):
    run, data, model = finished(params, "uagreg", root)
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


def test_the_median_is_of_the_last_evaluations(params, root):
    run, data, model = finished(params, "fixmatch", root)
    changed = model | {"closed_accuracies": [0.9, 0.8, 0.1, 0.2, 0.6]}
    metrics, _ = evaluate(run, data, changed, 3, toy.CPU)
    assert metrics["closed"]["median_of_last"] == 0.2
    assert (metrics["closed"]["best"], metrics["closed"]["last"]) == (0.9, 0.6)


def test_iomatch_is_judged_by_its_open_heads_argmax_and_has_no_threshold(params, root):
    run, data, model = finished(params, "iomatch", root)
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


def test_osp_is_evaluated_without_its_bank_and_accepts_above_otsu_of_the_pool(params, root):
    run, data, model = finished(params, "osp", root)
    weights = model["best"]["network"]
    left_out = load_network(run, data, weights, toy.CPU).state_dict().keys() - weights.keys()
    assert left_out == {f"method.bank.{name}" for name in ("features", "counts", "position")}
    metrics, arrays = evaluate(run, data, model, 20, toy.CPU)
    above = arrays["pool_scores"] > np.float32(metrics["open"]["inductive"]["threshold"])
    assert np.array_equal(arrays["pool_accepted"], above) and 0 < above.mean() < 1
    assert metrics["kept"].items() <= metrics["open"]["published"].items()


def test_the_anchors_are_closed_accuracy_scaled_and_one_class_of_all(evaluated):
    data, metrics, arrays = evaluated("dac")
    C, labels = data.num_known, arrays["test_labels"]
    recalls = [np.mean(arrays["test_predictions"][labels == c] == c) for c in range(C)]
    assert metrics["open"]["reject_nothing"]["balanced_accuracy"] == pytest.approx(
        sum(recalls) / (C + 1)
    )
    assert metrics["open"]["reject_everything"]["balanced_accuracy"] == pytest.approx(1 / (C + 1))


def test_the_inductive_threshold_does_not_look_at_the_test_scores(params, root):
    run, data = params.run(TASK, "dac", 1), toy.toy_data(params, "dac", root)
    rules = start(run, data, toy.CPU).network.method.rules()
    kept = {"kept": np.ones(4, bool)}
    pool = Outputs(np.zeros((4, 5), int), np.array([0.1, 0.2, 0.8, 0.9], np.float32), kept)
    near, far = (
        Outputs(np.zeros((4, 5), int), np.array(scores, np.float32))
        for scores in ([0.1, 0.1, 0.2, 0.2], [0.5, 0.5, 0.9, 0.9])
    )
    below, above = (
        {name: rule.threshold for name, rule in decisions(rules, test, pool).items()}
        for test in (near, far)
    )
    assert below["inductive"] == above["inductive"]
    assert below["transductive"] != above["transductive"]


def test_standard_methods_reject_below_their_published_confidence(params, root):
    run, data = params.run(TASK, "fixmatch", 1), toy.toy_data(params, "fixmatch", root)
    rules = start(run, data, toy.CPU).network.method.rules()
    n = len(data.test_labels)
    scores = np.where(np.arange(n) % 2, 0.95, 0.9499).astype(np.float32)
    outputs = Outputs(np.zeros((n, 5), int), scores)
    pool = Outputs(np.zeros((len(data.pool_index), 5), int), np.ones(len(data.pool_index)))
    rule = decisions(rules, outputs, pool)["published"]
    assert np.array_equal(rule.test, scores >= 0.95) and rule.pool.all()


def test_a_rule_without_a_threshold_decides_by_what_it_accepts():
    scores, accepted = np.array([0.99, 0.99], np.float32), np.array([True, False])
    outputs = Outputs(np.zeros((2, 5), int), scores, accepted={"published": accepted})
    rules = {"published": Rule(accepts=lambda features, index: index == 0)}
    assert accepts(rules) == {"published": rules["published"].accepts}
    found = decisions(rules, outputs, outputs)
    assert np.array_equal(found["published"].test, accepted)
    assert np.isnan(found["published"].threshold)
    assert found["transductive"].test.all()


def test_rules_are_asked_with_the_features_and_the_position_of_every_image(params, root):
    run, data = params.run(TASK, "fixmatch", 1), toy.toy_data(params, "fixmatch", root)
    network = start(run, data, toy.CPU).network
    images = Images(data.train_images, toy.CPU, workers=1)
    asked = {
        "even": lambda features, index: index % 2 == 0,
        "all": lambda f, i: f.isfinite().all(1),
    }
    index = data.pool_index[:70]
    found = predict(network, images, data.policy, index=index, accepts=asked, batch=32)
    assert np.array_equal(found.accepted["even"], np.arange(70) % 2 == 0)
    assert found.accepted["all"].all() and len(found.accepted["all"]) == 70


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


def test_the_summary_is_in_percent_and_a_dash_where_there_is_nothing_to_measure():
    names = ("balanced_accuracy", "inlier_recall", "outlier_rejection")
    shares = {"published": (0.8267, 0.9, 0.5), "reject_nothing": (float("nan"), 1.0, 0.0)}
    rules = {rule: dict(zip(names, found, strict=True)) for rule, found in shares.items()}
    shown = summary({"closed": {"best": 0.944}, "auroc": 0.8789, "open": rules})
    first, *table = shown.splitlines()
    assert first == "closed-set accuracy 94.4, AUROC 87.9; percent, test images"
    assert [line.split()[-3:] for line in table[1:]] == [
        ["82.7", "90.0", "50.0"],
        ["-", "100.0", "0.0"],
    ]
    assert table[2].startswith("reject nothing ")


# --- the stage ----------------------------------------------------------------------------------


def stage(run, root, params):
    return called(main, "--run", run, "--root", root, "--params", params.path, "--device", "cpu")


def test_the_stage_writes_metrics_and_scores_and_shows_them(params, root, dac_run, capsys):
    assert stage(dac_run, root, params) == 0
    content = json.loads((dac_run / "metrics.json").read_text())
    shown = capsys.readouterr().out.splitlines()
    assert sorted(shown) == sorted(summary(content["metrics"]).splitlines())
    assert content["run"]["method"]["name"] == "dac"
    with np.load(dac_run / "scores.npz", allow_pickle=False) as arrays:
        assert len(arrays["pool_scores"]) == 869 and len(arrays["test_scores"]) == 599


def test_a_model_of_other_parameters_is_refused(root, dac_run, tmp_path, capsys):
    assert stage(dac_run, root, toy.toy_params(tmp_path, momentum=0.5)) == 2
    said = capsys.readouterr().err
    assert "train.momentum: 0.9 there, 0.5 asked for" in said
    assert "give the --params file" in said and "delete" not in said


def test_a_missing_or_broken_model_is_one_message(params, root, tmp_path, capsys):
    assert stage(tmp_path, root, params) == 2
    assert "does not exist; train first" in capsys.readouterr().err
    (tmp_path / "model.pt").write_bytes(b"not a model")
    assert stage(tmp_path, root, params) == 2
    said = capsys.readouterr().err
    assert "cannot be read" in said and "Traceback" not in said


def test_names_that_are_not_utf8_are_written_byte_by_byte(params, root, dac_run, monkeypatch):
    monkeypatch.setattr("dac.evaluate.predictions", lambda *given: "caf\u00e9 caf\udce9\n")
    assert stage(dac_run, root, params) == 0
    assert (dac_run / "predictions.csv").read_bytes() == b"caf\xc3\xa9 caf\xe9\n"


# --- predictions.csv ----------------------------------------------------------------------------

PREDICTED = {
    "test_accepted": np.array([True, False]),
    "pool_accepted": np.array([True, False]),
    "test_predictions": np.array([1, 0]),
    "test_scores": np.array([0.9, 0.4], np.float32),
    "pool_index": np.array([2, 0]),
    "pool_predictions": np.array([0, 1]),
    "pool_scores": np.array([0.5, 0.1], np.float32),
}
TRAIN_FILES = ("a.jpg", "b.jpg", "c.jpg")


def read_back(written):
    """As docs/own-pictures.md says."""
    return [
        {column: value.removeprefix("'") for column, value in row.items()}
        for row in csv.DictReader(io.StringIO(written, newline=""))
    ]


def test_picture_files_get_their_class_or_unknown_by_name():
    written = predictions(PREDICTED, ("cat", "dog"), ("x.jpg", "y.jpg"), TRAIN_FILES)
    table = pd.read_csv(io.StringIO(written))
    assert table["score"].tolist() == [0.9, 0.4, 0.5, 0.1]
    assert table[["part", "file", "accepted", "class"]].to_numpy().tolist() == [
        ["test", "x.jpg", "yes", "dog"],
        ["test", "y.jpg", "no", "unknown"],
        ["pool", "c.jpg", "yes", "cat"],
        ["pool", "a.jpg", "no", "unknown"],
    ]
    assert predictions(PREDICTED, ("cat", "dog"), (), ()) is None, "digits and CIFAR are no files"


def test_the_bytes_of_predictions_are_these():
    written = predictions(PREDICTED, ("=cat", "d\rog"), ("x.jpg", "y.jpg"), TRAIN_FILES)
    assert written == (
        '"part","file","accepted","class","score"\n'
        '"test","x.jpg","yes","d\rog",0.9\n'
        '"test","y.jpg","no","unknown",0.4\n'
        '"pool","c.jpg","yes","\'=cat",0.5\n'
        '"pool","a.jpg","no","unknown",0.1\n'
    )


def test_a_class_named_unknown_is_not_a_rejection():
    written = predictions(PREDICTED, ("cat", "unknown"), ("x.jpg", "y.jpg"), TRAIN_FILES)
    rows = read_back(written)[:2]
    assert [row["class"] for row in rows] == ["unknown", "unknown"]
    assert [row["accepted"] for row in rows] == ["yes", "no"]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1"])
def test_no_name_is_a_formula_of_a_spreadsheet(name):
    written = predictions(PREDICTED, (name, name), (name, name), (name,) * 3)
    cells = [cell for row in csv.reader(io.StringIO(written, newline="")) for cell in row]
    assert f"'{name}" in cells and name not in cells


BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize(
    "name",
    [
        *(f"a{c}b" for c in BREAKS),
        *BREAKS,
        "\r\n",
        "'",
        "''",
        "'=1",
        "=1",
        "-",
        'a,"b";',
        "caf\udce9",
    ],
)
def test_every_name_is_read_back(name):
    written = predictions(PREDICTED, (name, "dog"), (name, "y.jpg"), (name, "b.jpg", "c.jpg"))
    rows = read_back(written)
    assert [row["file"] for row in rows] == [name, "y.jpg", "c.jpg", name]
    assert [row["class"] for row in rows] == ["dog", "unknown", name, "unknown"]
