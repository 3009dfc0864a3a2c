"""What `outputs` leaves for Figs. 2 and 5, against a direct forward pass."""

import json
import shutil

import numpy as np
import pytest
import torch
import toy
from torch.nn import functional as F
from toy import TASK, called

from dac.augment import evaluation
from dac.evaluation.measure import evaluate
from dac.evaluation.network import load_network
from dac.evaluation.outputs import outputs
from dac.figures.arrays import read_outputs
from dac.outputs import main
from dac.runs import checkpoint


@pytest.fixture(scope="module")
def runs(root, params, tmp_path_factory):
    """Copies that the stage may write into."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        method: shutil.copytree(toy.finished(params, method, root), folder / method)
        for method in ("fixmatch", "dac")
    }


@pytest.mark.parametrize("method", ["fixmatch", "dac"])
def test_outputs_equal_a_direct_forward_of_the_best_network(method, params, root, runs):
    run, data = params.run(TASK, method, 1), toy.toy_data(params, method, root)
    model = checkpoint.from_file(runs[method] / "model.pt")
    found = outputs(run, data, model, toy.CPU)
    network = load_network(run, data, model["best"]["network"], toy.CPU).eval()
    with torch.no_grad():
        images = torch.from_numpy(np.ascontiguousarray(data.test_images))
        features = network.encode(evaluation(images, data.policy))
        own = network.method
        z = own.projection(features) if method == "dac" else features
        p = own.logits(features).softmax(dim=1)
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found["test_probabilities"], p.numpy(), **close)
    np.testing.assert_allclose(found["test_embeddings"], F.normalize(z).numpy(), **close)
    assert found["test_probabilities"].dtype == found["test_embeddings"].dtype == np.float32
    assert found["test_embeddings"].shape[1] == (128 if method == "dac" else features.shape[1])


def test_labels_and_predictions_agree_with_the_evaluation(params, root, runs):
    run, data = params.run(TASK, "dac", 1), toy.toy_data(params, "dac", root)
    model = checkpoint.from_file(runs["dac"] / "model.pt")
    found, (_, arrays) = outputs(run, data, model, toy.CPU), evaluate(run, data, model, 20, toy.CPU)
    np.testing.assert_array_equal(found["test_labels"], arrays["test_labels"])
    assert found["num_known"] == arrays["num_known"] == 6
    predicted = found["test_probabilities"].argmax(axis=1)
    np.testing.assert_array_equal(predicted, arrays["test_predictions"])


def test_the_stage_says_whose_outputs_they_are_and_repeats_its_bytes(params, root, runs):
    options = ("--run", runs["dac"], "--root", root, "--params", params.path, "--device", "cpu")
    assert called(main, *options) == 0
    path = runs["dac"] / "outputs.npz"
    first = path.read_bytes()
    assert called(main, *options) == 0 and path.read_bytes() == first
    arrays = read_outputs(runs["dac"], params.run(TASK, "dac", 1).identity())
    assert json.loads(str(arrays["run"]))["method"]["name"] == "dac"
    assert len(arrays["test_embeddings"]) == len(arrays["test_labels"]) == 599


def test_a_model_of_other_parameters_is_refused(root, runs, tmp_path, capsys):
    other = toy.toy_params(tmp_path, momentum=0.5)
    options = ("--run", runs["fixmatch"], "--root", root, "--params", other.path)
    assert called(main, *options) == 2
    assert "train.momentum: 0.9 there, 0.5 asked for" in capsys.readouterr().err
    assert not (runs["fixmatch"] / "outputs.npz").exists()
