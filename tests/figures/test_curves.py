"""Figures of curves: which runs are in which panel, and the numbers that are drawn."""

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from toy import called

from dac import config
from dac.figures import curves
from dac.figures.curves import positions
from dac.figures.points import Line, Panel, Point, panels, plan, value_of
from dac.figures.theme import style, use_theme
from dac.io.errors import UserError
from dac.io.files import write_json

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
DRAWN = PARAMS.file.figures.drawn


@pytest.fixture(autouse=True)
def theme():
    use_theme()
    yield
    plt.close("all")


def planned(figure, axis, lines=PARAMS):
    return {name: places for (name, _), places in plan(lines, DRAWN[figure], axis).items()}


# --- which runs -----------------------------------------------------------------------------------


def test_a_panel_of_a_sweep_has_the_reference_and_what_differs_from_it():
    (places,) = planned("fig10", "method.lambda_mi").values()
    assert {x: method for x, (_, method) in places.items()} == {
        0.05: "dac-lambda-mi-0.05",
        0.1: "dac-lambda-mi-0.1",
        0.5: "dac",
        1.0: "dac-lambda-mi-1.0",
        2.0: "dac-lambda-mi-2.0",
    }


def test_a_sweep_may_end_in_infinity():
    (places,) = planned("fig09", "method.rejection_temperature").values()
    assert list(places) == [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf]


def test_tasks_lie_along_their_own_setting_with_a_line_per_method():
    lines = planned("fig11", "task.pool.outlier_share")
    assert {"fixmatch", "dac-released", "dac"} <= set(lines)
    assert list(lines["dac"]) == [0.1, 0.3, 0.5, 0.7, 0.9]
    assert lines["dac"][0.3] == ("cifar-50-5000-mismatch-30", "dac")


def test_settings_without_a_number_are_refused():
    run = PARAMS.run("cifar-50-500", "dac", 1)
    for axis in ("task.pool.outlier_share", "method.score_form", "method.rejection", "method.none"):
        with pytest.raises(UserError, match=rf"{axis} of cifar-50-500 with dac is"):
            value_of(run, axis)
    assert value_of(run, "method.num_heads") == 10


def test_two_runs_at_one_place_are_refused():
    figure = DRAWN["fig01"].model_copy(update={"tasks": ("cifar-50-500", "cifar-20-200")})
    with pytest.raises(UserError, match=r"fixmatch share task\.labels_per_class = 10"):
        plan(PARAMS, figure, "task.labels_per_class")


# --- numbers --------------------------------------------------------------------------------------


def test_points_are_means_and_sample_deviations_over_the_seeds_that_exist():
    values = {("dac", 1): 0.5, ("dac", 2): 0.7, ("dac", 3): 0.6, ("dac-num-heads-2", 2): 0.4}

    def measure(key, metric):
        return values.get((key.method, key.seed)) if metric == "closed.best" else None

    closed, opened = panels(PARAMS, DRAWN["fig08"], measure)
    (line,) = closed.lines
    two, ten = line.points
    assert (ten.x, ten.mean, ten.num_seeds) == (10, pytest.approx(0.6), 3)
    assert ten.std == pytest.approx(0.1), "divided by two, not by three"
    assert (two.x, two.mean, two.num_seeds) == (2, 0.4, 1) and math.isnan(two.std)
    assert closed.grid == (2, 4, 6, 8, 10, 12, 16), "missing runs keep their place"
    assert opened.lines[0].points == ()


def test_an_axis_lies_by_value_then_by_logarithm_then_evenly():
    assert positions((2, 4, 6, 8)) == {2: 2, 4: 4, 6: 6, 8: 8}
    assert positions((5, 10, 100)) == pytest.approx({5: math.log10(5), 10: 1, 100: 2})
    assert positions((0, 1, 100)) == {0: 0, 1: 1, 100: 2}
    assert positions((0.0, 1.0, 3.0, math.inf)) == {0: 0, 1: 1, 3: 3, math.inf: 5}
    assert positions((7.0,)) == {7: 7} and positions(()) == {} and len(positions((math.inf,))) == 1


# --- the picture ----------------------------------------------------------------------------------


def panel(lines, axis="task.labels_per_class", grid=(5.0, 10.0, 15.0), metric="accuracy"):
    made = [
        Line(name, name, tuple(Point(x, mean, std, 3) for x, mean, std in points))
        for name, points in lines.items()
    ]
    return Panel(axis, metric, grid, tuple(made))


def drawn(*shown):
    return curves.draw(shown, {line.name: style(line.name) for p in shown for line in p.lines})


def test_lines_carry_percent_error_bars_and_the_look_of_their_method():
    figure = drawn(
        panel(
            {
                "dac": [(5.0, 0.5, 0.1), (15.0, 0.7, 0.05)],
                "iomatch": [],
                "fixmatch": [(5.0, 0.4, math.nan), (10.0, 0.45, 0.02)],
            }
        )
    )
    (axes,) = figure.axes
    lines = {box.get_label(): box.lines for box in axes.containers}
    assert list(lines) == ["FixMatch", "DAC"], "ours is drawn last"
    ours, _, (bars,) = lines["DAC"]
    np.testing.assert_allclose(ours.get_xydata(), [[5, 50], [15, 70]])
    ends = [segment[:, 1] for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[40, 60], [65, 75]])
    theirs = lines["FixMatch"][0]
    assert to_hex(ours.get_color(), False).upper() == style("dac").color
    assert theirs.get_linestyle() == "--" and ours.get_linestyle() == "-"
    assert ours.get_linewidth() > theirs.get_linewidth()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["DAC", "FixMatch"], "as listed"
    assert legend.get_title().get_text() == "mean and sample standard deviation over 3 seeds"
    assert axes.get_ylabel() == "accuracy (%)" and not axes.get_title()


def test_infinity_is_the_last_tick():
    grid = (0.0, 1.0, 2.0, math.inf)
    points = [(x, 0.5, 0.1) for x in grid]
    (axes,) = drawn(panel({"dac": points}, "method.rejection_temperature", grid)).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "2", "∞"]
    np.testing.assert_allclose(axes.get_xticks(), [0, 1, 2, 3])
    np.testing.assert_allclose(axes.containers[0].lines[0].get_xdata(orig=False), [0, 1, 2, 3])


def test_shares_are_shown_in_percent():
    shown = panel({"dac": [(0.1, 0.5, 0.1)]}, "task.pool.outlier_share", (0.1, 0.3))
    (axes,) = drawn(shown).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "30"]
    assert axes.get_xlabel() == "outliers in the pool (%)"


def test_one_metric_along_several_settings_is_a_row_with_one_scale():
    axes_names = ("objective.lambda_u", "method.lambda_mi", "method.lambda_kd")
    shown = [panel({"dac": [(5.0, 0.2 * i, 0.01)]}, a) for i, a in enumerate(axes_names, start=1)]
    figure = drawn(*shown)
    assert len({round(axes.get_position().y0, 2) for axes in figure.axes}) == 1
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    letters = [axes.get_xlabel().split("\n")[1] for axes in figure.axes]
    assert letters == ["(a)", "(b)", "(c)"]


def test_several_metrics_along_several_settings_are_rows_of_settings():
    shown = [
        panel({"dac": [(5.0, 0.5, 0.01)]}, axis, metric=metric)
        for axis in ("objective.lambda_u", "method.lambda_mi")
        for metric in ("closed", "open")
    ]
    labels = [axes.get_ylabel() for axes in drawn(*shown).axes]
    assert labels == ["closed (%)", "open (%)", "closed (%)", "open (%)"]


def test_a_figure_without_points_says_so():
    figure = drawn(panel({"dac": []}))
    assert figure.axes[0].texts[0].get_text() == "no finished runs" and not figure.legends


@pytest.mark.parametrize(
    ("counts", "words"),
    [([1, 1], "one seed"), ([3, 3], "over 3 seeds"), ([3, 1], "over 1 to 3 seeds")],
)
def test_the_legend_says_how_many_seeds(counts, words):
    assert curves.bars(Point(0, 0, 0, n) for n in counts).endswith(words)


# --- the command line -----------------------------------------------------------------------------


def finished(folder, task, method, seed, value):
    run = PARAMS.run(task, method, seed)
    metrics = {"closed": {"best": value}, "open": {"published": {"balanced_accuracy": None}}}
    path = folder / task / method / f"seed{seed}" / "metrics.json"
    write_json(path, {"run": PARAMS.expected(run) | {"split_hash": "any"}, "metrics": metrics})
    return path


def test_half_a_suite_is_drawn_and_the_other_half_named(tmp_path, monkeypatch, capsys):
    for seed in (1, 2, 3):
        finished(tmp_path, "cifar-50-500", "dac", seed, 0.5)
        finished(tmp_path, "cifar-50-500", "dac-tw-inf", seed, 0.4)
    stale = finished(tmp_path, "cifar-50-500", "dac-tw-0.5", 1, 0.6)
    other = PARAMS.expected(PARAMS.run("cifar-50-500", "dac-tw-1.0", 1))
    write_json(stale, {"run": other | {"split_hash": "any"}, "metrics": {}})
    seen = []
    monkeypatch.setattr(curves, "draw", lambda shown, styles: seen.extend(shown) or plt.figure())
    options = ("--figure", "fig09", "--runs", tmp_path, "--out", tmp_path / "a.pdf")
    assert called(curves.main, *options) == 0
    closed, opened = seen
    drawn_points = [(p.x, pytest.approx(p.mean)) for p in closed.lines[0].points]
    assert drawn_points == [(1.5, 0.5), (math.inf, 0.4)], "an infinite setting is no stale one"
    assert not opened.lines[0].points, "NaN is no point"
    said = capsys.readouterr().err
    assert f"left out: {stale} is of other parameters (method.name: 'dac-tw-1.0' there" in said
    assert said.count("dac-tw-2.0/seed1/metrics.json does not exist") == 1, "once for both panels"
    assert "dac/seed1 has no open.published.balanced_accuracy" in said


@pytest.mark.parametrize("value", [True, 10**400, "0.5"])
def test_what_is_no_number_is_no_point(value, tmp_path, monkeypatch, capsys):
    finished(tmp_path, "cifar-50-500", "dac", 1, value)
    seen = []
    monkeypatch.setattr(curves, "draw", lambda shown, styles: seen.extend(shown) or plt.figure())
    options = ("--figure", "fig09", "--runs", tmp_path, "--out", tmp_path / "a.pdf")
    assert called(curves.main, *options) == 0
    assert not any(line.points for panel in seen for line in panel.lines)
    assert "dac/seed1 has no closed.best" in capsys.readouterr().err


def test_a_figure_of_nothing_is_a_file_with_equal_bytes(tmp_path, capsys):
    for name in ("a.pdf", "b.pdf"):
        options = ("--figure", "fig01", "--runs", tmp_path, "--out", tmp_path / name)
        assert called(curves.main, *options) == 0
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    assert "fig01: no finished runs; drawn empty" in capsys.readouterr().err


def test_another_kind_of_figure_is_refused_with_the_right_command(tmp_path, capsys):
    assert called(curves.main, "--figure", "fig05", "--out", tmp_path / "a.png") == 2
    assert "run `python -m dac.figures.umap --figure fig05`" in capsys.readouterr().err
