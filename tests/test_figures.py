"""The demo's two pictures: drawn from scores.npz alone, with the right values in them."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from PIL import Image

from dac.errors import UserError
from dac.figures import heatmap, histogram
from dac.figures.arrays import read_scores
from dac.figures.theme import INLIER, OUTLIER, save, use_theme


@pytest.fixture(autouse=True)
def theme():
    use_theme()
    yield
    plt.close("all")


def test_the_histogram_shows_both_kinds_on_the_unit_interval():
    scores = np.array([3.0, 5.0, 4.0, 7.0])
    figure = histogram.draw(scores, np.array([False, True, False, True]), 5.0, bins=4)
    (axes,) = figure.axes
    bars = {color: [] for color in (INLIER, OUTLIER)}
    for patch in axes.patches:
        for color in bars:
            if np.allclose(patch.get_facecolor()[:3], to_rgb(color)) and patch.get_height() > 0:
                bars[color].append(round(patch.get_x(), 3))
    assert bars == {INLIER: [0.5, 0.75], OUTLIER: [0.0, 0.25]}, "min-max over all four images"
    assert axes.lines[0].get_xdata()[0] == pytest.approx(0.5), "the threshold moves along"


def test_equal_scores_still_make_a_histogram():
    histogram.draw(np.ones(4), np.array([True, True, False, False]), 1.0, bins=50)


def test_the_heatmaps_share_one_scale_from_disagreement_to_one():
    agreement = np.stack([np.full((3, 3), 0.9), np.full((3, 3), 0.2)])
    figure = heatmap.draw(agreement)
    inliers, outliers = (axes.collections[0] for axes in figure.axes[:2])
    assert inliers.get_clim() == outliers.get_clim() == (pytest.approx(np.exp(-2)), 1)
    assert np.allclose(inliers.get_array(), 0.9) and np.allclose(outliers.get_array(), 0.2)


def test_equal_data_give_equal_bytes(tmp_path):
    for name in ("a.pdf", "b.pdf"):
        save(heatmap.draw(np.ones((2, 3, 3))), tmp_path / name)
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_a_png_can_be_opened(tmp_path):
    save(heatmap.draw(np.ones((2, 3, 3))), tmp_path / "heads.png")
    assert Image.open(tmp_path / "heads.png").size[0] > 500


def test_missing_and_broken_scores_are_one_message(tmp_path):
    with pytest.raises(UserError, match=r"does not exist; run `python -m dac\.evaluate"):
        read_scores(tmp_path)
    (tmp_path / "scores.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be read"):
        read_scores(tmp_path)
