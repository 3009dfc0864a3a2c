"""The pictures of single runs and of models: the right values in them, from files alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from PIL import Image
from toy import TASK, called

from dac import config
from dac.config.suites import Key
from dac.figures import heatmap, histogram, models, umap
from dac.figures.arrays import read_scores, refuse_stale
from dac.figures.cli import panel_names
from dac.figures.histogram import Scores
from dac.figures.theme import INLIER, METHODS, OUTLIER, save, style, use_theme
from dac.io.errors import UserError
from dac.io.files import write_json

TOP = Path(__file__).parents[2]
LOADED = config.load(TOP / "params.yaml")
MIXED = Scores(np.array([3.0, 5.0, 4.0, 7.0]), np.array([False, True, False, True]), 5.0)


@pytest.fixture(autouse=True)
def theme():
    use_theme()
    yield
    plt.close("all")


# --- one run and several --------------------------------------------------------------------------


def test_the_histogram_shows_both_kinds_on_the_unit_interval():
    (axes,) = histogram.draw([("DAC", MIXED)], bins=4).axes
    bars = {color: [] for color in (INLIER, OUTLIER)}
    for patch in axes.patches:
        for color in bars:
            if np.allclose(patch.get_facecolor()[:3], to_rgb(color)) and patch.get_height() > 0:
                bars[color].append(round(patch.get_x(), 3))
    assert bars == {INLIER: [0.5, 0.75], OUTLIER: [0.0, 0.25]}, "min-max over all four images"
    assert axes.lines[0].get_xdata()[0] == pytest.approx(0.5), "the threshold moves along"


def test_equal_scores_or_one_kind_still_make_a_histogram():
    histogram.draw([("", Scores(np.ones(4), np.array([True, True, False, False]), 1.0))], bins=50)
    histogram.draw([("", Scores(np.arange(4.0), np.ones(4, dtype=bool), 1.0))], bins=50)


def test_panels_have_letters_and_names_and_missing_runs_keep_their_place():
    figure = histogram.draw([("DAC", MIXED), ("FixMatch", None), ("OSP", MIXED)], bins=4)
    assert [axes.get_xlabel().split("\n")[-1] for axes in figure.axes] == [
        "(a) DAC",
        "(b) FixMatch",
        "(c) OSP",
    ]
    assert figure.axes[1].texts[0].get_text() == "no finished runs"
    (legend,) = figure.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["inliers (n = 2)", "outliers (n = 2)", "threshold"]
    assert not any(axes.get_title() for axes in figure.axes)


def test_the_heatmaps_share_one_scale_from_disagreement_to_one():
    agreement = np.stack([np.full((3, 3), 0.9), np.full((3, 3), 0.2)])
    figure = heatmap.draw([("DAC", agreement)])
    inliers, outliers = (axes.collections[0] for axes in figure.axes[:2])
    assert inliers.get_clim() == outliers.get_clim() == (pytest.approx(np.exp(-2)), 1)
    assert np.allclose(inliers.get_array(), 0.9) and np.allclose(outliers.get_array(), 0.2)


def test_several_runs_have_a_row_of_heatmaps_each():
    agreement = np.stack([np.full((3, 3), 0.9), np.full((3, 3), 0.2)])
    figure = heatmap.draw([("DAC", agreement), ("DAC (tw-inf)", None)])
    labels = [axes.get_xlabel() for axes in figure.axes if axes.get_xlabel()]
    assert (
        labels[0] == "head\n(a) DAC, inliers" and labels[-1] == "head\n(d) DAC (tw-inf), outliers"
    )


def test_names_of_panels_say_what_differs():
    keys = [Key("a", "dac", 1), Key("a", "dac-heads", 1)]
    assert panel_names(keys) == ["DAC", "DAC (heads)"]
    keys = [Key("a", "dac", 1), Key("b", "fixmatch", 2)]
    assert panel_names(keys) == ["DAC, a, seed 1", "FixMatch, b, seed 2"]


def test_every_method_has_its_own_color_and_marker():
    looks = [style(name) for name in METHODS]
    assert len({look.color for look in looks}) == len({look.marker for look in looks}) == 14
    assert [look.name for look in looks if look.is_ours] == ["DAC"]
    dashed = {"Labeled only", "MixMatch", "FixMatch", "CoMatch", "SimMatch", "SoftMatch"}
    assert {look.name for look in looks if look.is_dashed} == dashed
    assert style("dac-released").color == style("dac").color == style("mine", "dac").color
    assert style("dac").line()["linewidth"] > style("iomatch").line()["linewidth"]
    assert style("softmatch+dac").name == "SoftMatch + DAC" and style("mine").name == "mine"


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_equal_data_give_equal_bytes(tmp_path, kind):
    for name in ("a", "b"):
        save(heatmap.draw([("", np.ones((2, 3, 3)))]), tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_a_png_can_be_opened(tmp_path):
    save(heatmap.draw([("", np.ones((2, 3, 3)))]), tmp_path / "heads.png")
    assert Image.open(tmp_path / "heads.png").size[0] > 500


def test_missing_and_broken_scores_are_one_message(tmp_path):
    with pytest.raises(UserError, match=r"does not exist; run `python -m dac\.evaluate"):
        read_scores(tmp_path)
    (tmp_path / "scores.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read"):
        read_scores(tmp_path)


def test_only_hashes_of_inputs_may_differ_from_the_parameters(tmp_path):
    expected = LOADED.run("cifar-50-500", "dac-tw-inf", 1).identity()
    write_json(tmp_path / "run.json", expected | {"split_hash": "a", "pretrained_hash": "b"})
    found = json.loads((tmp_path / "run.json").read_text())
    refuse_stale(found, expected, tmp_path)
    with pytest.raises(UserError, match=r"method\.rejection_temperature: 'inf' there, 1\.5"):
        refuse_stale(found, LOADED.run("cifar-50-500", "dac", 1).identity(), tmp_path)


# --- the command line -----------------------------------------------------------------------------


def scored(folder, with_heads=True):
    """A run's folder as `evaluate` leaves it."""
    folder.mkdir(parents=True)
    arrays = {
        "num_known": np.array(6),
        "test_labels": np.array([0, 1, 6, 7]),
        "test_scores": np.array([0.9, 0.8, 0.3, 0.2]),
        "published_threshold": np.array(0.5),
    }
    agreement = {"agreement": np.ones((2, 3, 3))} if with_heads else {}
    np.savez(folder / "scores.npz", **arrays, **agreement)
    return folder


def test_own_runs_and_figures_are_drawn_into_every_named_file(tmp_path):
    run = scored(tmp_path / "runs" / TASK / "dac" / "seed1")
    out = [tmp_path / name for name in ("a.pdf", "a.png")]
    assert called(histogram.main, "--run", run, run, "--out", *out) == 0
    assert all(path.stat().st_size for path in out)
    identity = LOADED.expected(LOADED.run(TASK, "dac", 1))
    write_json(run / "metrics.json", {"run": identity | {"split_hash": "x"}, "metrics": {}})
    options = ("--runs", tmp_path / "runs", "--out", tmp_path / "b.png")
    assert called(heatmap.main, "--figure", "digits-heads", *options) == 0
    assert (tmp_path / "b.png").exists()


def test_runs_of_other_parameters_are_left_out_and_named(tmp_path, capsys):
    run = scored(tmp_path / "runs" / TASK / "dac" / "seed1")
    identity = LOADED.expected(LOADED.run(TASK, "dac", 1)) | {"seed": 7}
    write_json(run / "metrics.json", {"run": identity | {"split_hash": "x"}, "metrics": {}})
    options = ("--runs", tmp_path / "runs", "--out", tmp_path / "a.png")
    assert called(histogram.main, "--figure", "digits-consensus", *options) == 0
    said = capsys.readouterr().err
    assert "seed1/metrics.json is of other parameters (seed: 7 there, 1 asked for)" in said
    assert "digits-consensus: no finished runs; drawn empty" in said


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (histogram, ("--figure", "fig08"), "run `python -m dac.figures.curves --figure fig08`"),
        (umap, ("--figure", "fig5"), "did you mean 'fig05'?"),
        (histogram, ("--run", "{}/none"), "does not exist; run `python -m dac.evaluate"),
        (umap, ("--run", "{}/none"), "does not exist; run `python -m dac.outputs"),
        (heatmap, ("--run", "{}/headless"), "has one head only"),
    ],
)
def test_wrong_wishes_are_one_message(tmp_path, capsys, module, options, words):
    scored(tmp_path / "headless", with_heads=False)
    options = [option.format(tmp_path) for option in options]
    assert called(module.main, *options, "--out", tmp_path / "a.png") == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


def test_a_wrong_ending_is_refused_before_anything_is_read(tmp_path, capsys):
    options = ("--figure", "fig07", "--out", tmp_path / "a.jpeg")
    assert called(histogram.main, *options) == 2
    assert "expected .pdf or .svg or .png" in capsys.readouterr().err


# --- models as heads ------------------------------------------------------------------------------


def random_models(count=4, images=50, classes=5):
    draw = np.random.default_rng(3)
    logits = 2 * draw.normal(size=(count, images, classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    return probabilities.astype(np.float32), draw.random(images) < 0.6


def test_consensus_of_models_equals_a_loop_over_images_and_pairs(monkeypatch):
    monkeypatch.setattr(models, "BLOCK", 16)  # several blocks, the last one short
    p, inlier = random_models()
    found = models.agree(list(p), inlier)
    K, n, _ = p.shape
    alike = np.zeros((n, K, K))
    for b in range(n):
        for i in range(K):
            for j in range(K):
                alike[b, i, j] = np.exp(-np.abs(p[i, b] - p[j, b]).sum())
    pairs = [(i, j) for i in range(K) for j in range(K) if i != j]
    by_hand = [np.mean([alike[b, i, j] for i, j in pairs]) for b in range(n)]
    np.testing.assert_allclose(found.consensus, by_hand, rtol=1e-5)
    np.testing.assert_allclose(found.pairs[0], alike[inlier].mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.pairs[1], alike[~inlier].mean(axis=0), rtol=1e-5)


def test_models_are_drawn_as_a_histogram_and_two_matrices_on_one_scale():
    p, inlier = random_models()
    found = models.agree(list(p), inlier)
    figure = models.draw(found, bins=10)
    first, left, right, _ = figure.axes
    assert first.get_xlabel() == "normalized consensus of 4 models\n(a)"
    np.testing.assert_allclose(left.collections[0].get_array(), found.pairs[0])
    np.testing.assert_allclose(right.collections[0].get_array(), found.pairs[1])
    assert left.collections[0].get_clim() == right.collections[0].get_clim()
    assert right.get_xlabel() == "model\n(c) outliers"
    assert "no finished runs" in models.draw(None, bins=10).axes[0].texts[0].get_text()


def test_models_of_other_test_images_are_refused():
    arrays = {"num_known": np.array(2), "test_labels": np.array([0, 1, 2])}
    arrays["test_probabilities"] = np.full((3, 2), 0.5, np.float32)
    shuffled = arrays | {"test_labels": np.array([1, 0, 2])}
    assert models.compare([("a", arrays), ("b", arrays)]).num_models == 2
    with pytest.raises(UserError, match="b and a were tested on different images"):
        models.compare([("a", arrays), ("b", shuffled)])
    with pytest.raises(UserError, match="b and a were tested on different images"):
        models.compare([("a", arrays), ("b", arrays | {"num_known": np.array(3)})])


# --- embeddings -----------------------------------------------------------------------------------


def in_a_process_of_its_own(embeddings, folder):
    """Projected twice, without numba's compiler, which takes longer than so few images.

    A hundred of umap's 500 epochs are enough for them. Threads of numba in this process would block
    what other tests fork.
    """
    np.save(folder / "in.npy", embeddings)
    code = "import functools, numpy as np, umap; from dac.figures.umap import project; "
    code += "umap.UMAP = functools.partial(umap.UMAP, n_epochs=100); e = np.load('in.npy'); "
    code += "np.save('out.npy', [project(e), project(e)])"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(TOP)}
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=environment)
    return np.load(folder / "out.npy")


def test_umap_keeps_three_far_clusters_apart_and_repeats_itself(tmp_path):
    draw = np.random.default_rng(0)
    cluster = np.repeat([0, 1, 2], 8)
    embeddings = 10 * np.eye(8)[cluster] + 0.3 * draw.normal(size=(24, 8))
    embeddings = (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).astype(np.float32)
    places, again = in_a_process_of_its_own(embeddings, tmp_path)
    np.testing.assert_array_equal(places, again)
    centers = np.stack([places[cluster == c].mean(axis=0) for c in range(3)])
    spread = max(np.linalg.norm(places[cluster == c] - centers[c], axis=1).max() for c in range(3))
    apart = [np.linalg.norm(centers[i] - centers[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert min(apart) > 2 * spread, (apart, spread)


def test_outliers_are_black_known_classes_colored_and_points_are_pixels():
    labels = np.array([0, 1, 2, 0, 3])
    points = umap.Points(np.arange(10.0).reshape(5, 2), labels, labels < 2, num_known=2)
    figure = umap.draw([("DAC", points), ("DAC (heads)", None)])
    outliers, inliers = figure.axes[0].collections
    assert np.allclose(outliers.get_facecolor()[:, :3], 0) and len(outliers.get_offsets()) == 2
    colors = inliers.get_facecolor()[:, :3]
    np.testing.assert_allclose(colors[0], colors[2], err_msg="both of class 0")
    assert not np.allclose(colors[0], colors[1])
    assert outliers.get_rasterized() and inliers.get_rasterized()
    assert figure.axes[0].get_xlabel() == "(a) DAC"


@pytest.mark.parametrize("num_known", [1, 2, 6, 20, 50, 60, 810])
def test_every_known_class_has_a_color_of_its_own_and_none_is_black(num_known):
    colors = umap.class_colors(num_known)
    assert len(set(colors)) == num_known
    assert min(max(color) for color in colors) > 0.4


def test_too_few_images_for_umap_are_one_message():
    with pytest.raises(UserError, match="15 test images are too few"):
        umap.project(np.eye(15))
