"""The tidy table and its summary: means, sample deviations, dashes for what is missing."""

import json
import statistics

import pandas as pd
import pytest

from dac.aggregate import cell, collect, markdown, summarize
from dac.errors import UserError


def metrics(task, method, seed, closed, opened):
    rule = {"balanced_accuracy": opened}
    return {
        "run": {
            "task": {"name": task},
            "method": {"name": method},
            "seed": seed,
            "split_hash": "h",
        },
        "metrics": {
            "closed": {"best": closed},
            "auroc": 0.75,
            "open": {"published": rule, "inductive": rule, "reject_nothing": rule},
        },
    }


def write(folder, task, method, seed, closed, opened=0.5):
    path = folder / task / method / f"seed{seed}" / "metrics.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(metrics(task, method, seed, closed, opened)))


def test_the_summary_is_the_mean_and_sample_deviation_over_seeds(tmp_path):
    for seed, closed in ((1, 0.80), (2, 0.90), (3, 0.85)):
        write(tmp_path, "digits-6-30", "dac", seed, closed)
    (row,) = summarize(collect(tmp_path)).to_dict("records")
    assert row["n"] == 3
    assert row["closed"] == pytest.approx(85.0)
    assert row["closed std"] == pytest.approx(statistics.stdev([80, 90, 85]))


def test_a_method_without_runs_is_a_dash_and_not_a_zero(tmp_path):
    write(tmp_path, "digits-6-30", "dac", 1, 0.8)
    summary = summarize(collect(tmp_path), ("fixmatch", "dac"))
    assert list(summary["n"]) == [0, 1]
    lines = markdown(summary).splitlines()
    assert lines[2].count("–") == 5 and " 0.0" not in lines[2]  # noqa: RUF001
    assert "| 80.0 " in lines[3] and "±" not in lines[3], "one run has no deviation"


def test_rows_keep_task_method_seed_and_every_number(tmp_path):
    write(tmp_path, "digits-6-30", "dac", 1, 0.8, opened=0.6)
    (row,) = collect(tmp_path).to_dict("records")
    assert (row["task"], row["method"], row["seed"]) == ("digits-6-30", "dac", 1)
    assert row["open.published.balanced_accuracy"] == 0.6


def test_a_cell_shows_one_decimal_and_a_dash_for_nothing():
    assert cell(63.25, 1.26) == "63.2 ± 1.3"
    assert cell(63.25, float("nan")) == "63.2"
    assert cell(float("nan"), float("nan")) == "–"  # noqa: RUF001


def test_an_empty_folder_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="train and evaluate first"):
        collect(tmp_path)


def test_a_metrics_file_without_its_keys_is_named(tmp_path):
    path = tmp_path / "t" / "m" / "seed1" / "metrics.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"run": {}}')
    with pytest.raises(UserError, match=r"metrics\.json lacks 'task'"):
        collect(tmp_path)


def test_columns_line_up_in_a_terminal(tmp_path):
    for method in ("dac", "labeled-only"):
        write(tmp_path, "digits-6-30", method, 1, 0.8)
    lines = markdown(summarize(collect(tmp_path))).splitlines()
    assert len({len(line) for line in lines}) == 1
    bars = [[i for i, character in enumerate(line) if character == "|"] for line in lines]
    assert pd.DataFrame(bars).nunique().eq(1).all()
