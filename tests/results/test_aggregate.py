"""The stage on folders of runs: half-finished, stale, corrupt, none at all, a thousand."""

import json
import random
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from toy import called

from dac import aggregate
from dac.config import load, suites
from dac.config.suites import Key
from dac.io.errors import UserError
from dac.io.files import write_json
from dac.results.collect import collect
from dac.runs.identity import staleness

TASKS = ("cifar-20-200-correlated", "cifar-60-600-correlated")
METHODS = ("fixmatch", "dac", "dac-released")
FORMATS = {"csv", "md", "tex", "html"}


@pytest.fixture(scope="module")
def params_path(tmp_path_factory):
    """The project's parameters; suite `small` is Table 5 with fewer methods and three seeds."""
    raw = yaml.load((Path(__file__).parents[2] / "params.yaml").read_text(), yaml.CSafeLoader)
    tables = raw["aggregate"]["tables"]
    tables["table5"] |= {"tasks": list(TASKS), "methods": list(METHODS), "seeds": [1, 2, 3]}
    methods, tasks = list(raw["methods"])[:10], [t for t in raw["tasks"] if "cifar" in t][:10]
    many = {"methods": methods, "tasks": tasks, "seeds": list(range(10)), "title": "Many"}
    tables["many"] = many | {"metrics": {"closed": "closed.best", "AUROC": "auroc"}}
    raw["suites"]["small"] = {"tables": ["table5"], "figures": ["digits-consensus"]}
    raw["suites"]["large"] = {"tables": ["many"], "figures": []}
    path = tmp_path_factory.mktemp("params") / "params.yaml"
    path.write_text(yaml.dump(raw, Dumper=yaml.CSafeDumper, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def project(params_path):
    return load(params_path)


@pytest.fixture
def stage(params_path, tmp_path, capsys):
    """Calls the stage; returns exit code, stdout and stderr."""

    def call(*options):
        places = ["--runs", tmp_path / "runs", "--out", tmp_path / "out", "--params", params_path]
        code = called(aggregate.main, *options, *places)
        return code, *capsys.readouterr()

    return call


def content(project, key, closed, opened=0.5, split=None):
    rates = {"balanced_accuracy": opened, "threshold": "-inf"}
    identity = project.expected(project.run(key.task, key.method, key.seed))
    return {
        "run": identity | {"split_hash": split or f"{key.task} {key.seed}"},
        "metrics": {
            "closed": {"best": closed, "last": closed, "top5": 1.0},
            "auroc": 0.75,
            "open": {"published": rates},
        },
    }


def write(project, runs, key, closed, opened=0.5, split=None):
    path = runs / key.folder / "metrics.json"
    write_json(path, content(project, key, closed, opened, split))
    return path


def table5(tmp_path):
    found = pd.read_csv(tmp_path / "out" / "table5.csv")
    return found.set_index(["task", "method", "heading"])


# --- numbers ----------------------------------------------------------------------------------


def test_a_half_finished_table_says_what_it_can(project, tmp_path, stage):
    for seed, closed in ((1, 0.80), (2, 0.84), (3, 0.82)):
        write(project, tmp_path / "runs", Key(TASKS[0], "dac", seed), closed)
    write(project, tmp_path / "runs", Key(TASKS[0], "fixmatch", 2), 0.79)
    code, out, err = stage("--suite", "small")
    assert code == 0
    assert "table5: 14 of 18 runs missing: " in err
    assert f"{TASKS[0]}/fixmatch seed1, {TASKS[0]}/fixmatch seed3, " in err
    assert "(and 11 more)" in err
    dac = table5(tmp_path).loc[(TASKS[0], "dac", "closed")]
    assert dac[["mean", "std", "n", "expected_n"]].tolist() == pytest.approx([82, 2, 3, 3])
    assert dac[["paper", "difference"]].tolist() == pytest.approx([83.6, -1.6])
    assert "**82.0 ± 2.0** [83.6, -1.6]" in out
    assert "<ins>79.0</ins> (n=1) [79.5, -0.5]" in out
    assert f"{TASKS[1]}" in out and "– [68.7]" in out  # noqa: RUF001
    assert out == (tmp_path / "out" / "table5.md").read_text()


def test_metrics_json_has_finished_cells_and_is_portable(project, tmp_path, stage):
    for seed in (1, 2, 3):
        write(project, tmp_path / "runs", Key(TASKS[0], "dac", seed), 0.81234)
    write(project, tmp_path / "runs", Key(TASKS[0], "fixmatch", 2), 0.79)
    stage("--suite", "small")
    text = (tmp_path / "out" / "metrics.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "table5": {TASKS[0]: {"dac": {"closed": 81.23, "open": 50.0}}}
    }


def test_runs_csv_has_a_row_per_finished_run_of_the_suite(project, tmp_path, stage):
    runs = tmp_path / "runs"
    path = write(project, runs, Key(TASKS[0], "dac", 1), 0.8)
    record = {"provenance": {"commit": "abc"}, "training_seconds": 2.5, "views_per_second": 10.0}
    write_json(path.with_name("run.json"), record | {"peak_memory_bytes": 1000})
    write(project, runs, Key("digits-6-30", "dac", 1), 0.9)  # of the suite's figure
    write(project, runs, Key("digits-6-30", "fixmatch", 1), 0.9)  # of no table of this suite
    stage("--suite", "small")
    found = pd.read_csv(tmp_path / "out" / "runs.csv")
    assert found[["task", "method", "seed"]].to_numpy().tolist() == [
        [TASKS[0], "dac", 1],
        ["digits-6-30", "dac", 1],
    ]
    assert found["commit"].tolist()[0] == "abc" and pd.isna(found["commit"][1])
    assert found["training_seconds"][0] == 2.5 and found["peak_memory_bytes"][0] == 1000
    assert found["closed.best"].tolist() == [0.8, 0.9]
    assert found["open.published.threshold"].tolist() == [-float("inf")] * 2
    assert found["split_hash"][0] == f"{TASKS[0]} 1"


def test_a_value_that_could_not_be_measured_is_a_dash(project, tmp_path, stage):
    for seed in (1, 2, 3):
        write(project, tmp_path / "runs", Key(TASKS[0], "dac", seed), 0.8, opened=float("nan"))
    code, _, err = stage("--table", "table5")
    assert code == 0 and "15 of 18 runs missing" in err
    cell = table5(tmp_path).loc[(TASKS[0], "dac", "open")]
    assert cell["n"] == 0 and pd.isna(cell["mean"]) and cell["paper"] == 75.7


# --- which files ------------------------------------------------------------------------------


def test_one_table_only(tmp_path, stage):
    stage("--table", "table5")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {f"table5.{e}" for e in FORMATS}


def test_runs_only(tmp_path, stage):
    code, out, _ = stage("--suite", "small", "--runs-only")
    assert (code, out) == (0, "")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"runs.csv", "metrics.json"}


def test_the_suite_of_the_file_is_the_default(project, tmp_path, stage):
    stage()
    names = project.suite().tables
    assert {p.stem for p in (tmp_path / "out").glob("*.md")} == set(names)


def test_without_any_run_the_tables_are_dashes_and_it_is_said(tmp_path, stage):
    code, out, err = stage("--suite", "small")
    assert code == 0
    assert "none of these runs is finished" in err and "train and evaluate first" in err
    assert table5(tmp_path)["n"].eq(0).all() and " 0.0" not in out
    assert (tmp_path / "out" / "runs.csv").read_text().startswith("task,method,seed,split_hash,")
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == {}


def test_the_papers_suite_is_written_before_anything_was_run(tmp_path, stage):
    code, _, _ = stage("--suite", "paper")
    assert code == 0
    written = {p.name for p in (tmp_path / "out").iterdir()}
    assert {f"table{n}.{ending}" for n in range(1, 7) for ending in FORMATS} < written


def test_names_that_do_not_exist_are_refused_with_the_nearest(stage):
    code, _, err = stage("--table", "tabel5")
    assert code == 2 and "did you mean 'table5'?" in err
    code, _, err = stage("--suite", "smal")
    assert code == 2 and "did you mean 'small'?" in err
    code, _, err = stage("--table", "table5", "--runs-only")
    assert code == 2 and "--suite" in err


def test_the_same_runs_give_the_same_bytes_in_any_order(project, tmp_path, stage):
    keys = suites.runs(project.file.aggregate.tables["table5"])
    written = []
    for order in (keys, random.Random(1).sample(keys, len(keys))):
        for path in (tmp_path / "runs").glob("*/*/*/metrics.json"):
            path.unlink()
        for key in order:
            closed = 0.5 + 0.1 * keys.index(key) / len(keys)
            write(project, tmp_path / "runs", key, closed)
        assert "all 18 runs are in" in stage("--suite", "small")[2]
        written.append({p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()})
    assert written[0] == written[1] and len(written[0]) == 6


# --- runs that do not count -------------------------------------------------------------------


def test_a_run_of_other_parameters_is_missing_and_named(project, tmp_path, stage):
    key = Key(TASKS[0], "dac", 1)
    changed = content(project, key, 0.8)
    changed["run"]["method"]["lambda_mi"] = 0.1
    write_json(tmp_path / "runs" / key.folder / "metrics.json", changed)
    code, _, err = stage("--suite", "small")
    assert code == 0 and "18 of 18 runs missing" in err
    assert f"stale, not counted: {TASKS[0]}/dac seed1: made with other parameters" in err
    assert "(method.lambda_mi: 0.1 there, 0.5 asked for)" in err
    assert (
        f"run `snakemake --cores all {TASKS[0]}` again or delete {tmp_path / 'runs' / key.folder}"
        in err
    )
    assert len(pd.read_csv(tmp_path / "out" / "runs.csv")) == 0


def test_stale_runs_with_the_same_differences_share_a_line(project, tmp_path, stage):
    for seed in (1, 2, 3):
        for method in ("dac", "fixmatch"):
            key = Key(TASKS[0], method, seed)
            changed = content(project, key, 0.8)
            changed["run"]["train"]["lr"] = 0.1
            write_json(tmp_path / "runs" / key.folder / "metrics.json", changed)
    messages = stage("--table", "table5")[2].splitlines()
    lines = [line for line in messages if line.startswith("stale")]
    assert len(lines) == 1 and "(and 3 more)" in lines[0] and "train.lr: 0.1 there" in lines[0]


def test_infinity_and_hashes_are_no_difference(project, tmp_path):
    key = Key("cifar-50-500", "dac-tw-inf", 1)
    identity = project.run(key.task, key.method, key.seed).identity()
    hashes = {"split_hash": "a", "pretrained_hash": "b"}
    write_json(tmp_path / "run.json", identity | hashes)  # infinity is no JSON number
    found = json.loads((tmp_path / "run.json").read_text())
    assert found["method"]["rejection_temperature"] == "inf"
    assert staleness(found, identity) == ""
    finite = project.run(key.task, "dac", key.seed).identity()
    assert "rejection_temperature: 'inf' there, 1.5" in staleness(found, finite)


def test_every_method_of_the_file_is_recognised_after_writing(project, tmp_path):
    keys = [Key("cifar-50-500", method, 1) for method in project.file.methods]
    for key in keys:
        write(project, tmp_path, key, 0.5)
    found = collect(project, keys, tmp_path)
    assert list(found.finished) == keys and not found.stale


def test_runs_on_different_splits_are_named(project, tmp_path, stage):
    for method, split in (("fixmatch", "old"), ("dac", "new"), ("dac-released", "new")):
        write(project, tmp_path / "runs", Key(TASKS[0], method, 1), 0.8, split=split)
        write(project, tmp_path / "runs", Key(TASKS[0], method, 2), 0.8)
    code, _, err = stage("--table", "table5")
    assert code == 0
    expected = f"different splits: {TASKS[0]} seed1 (fixmatch on old; dac, dac-released on new);"
    assert expected in err and "seed2 (" not in err


@pytest.mark.parametrize(
    "text", ["", "{", '{"run": {}, "metrics": {}}', "[]", "null", '{"run": 3, "metrics": {}}']
)
def test_a_corrupt_file_is_named_and_stops(text, tmp_path, stage):
    path = tmp_path / "runs" / Key(TASKS[0], "dac", 1).folder / "metrics.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    code, _, err = stage("--suite", "small")
    assert code == 2 and str(path) in err and "again" in err
    assert not (tmp_path / "out").exists(), "nothing is written from half of the numbers"


@pytest.mark.parametrize("name", ["metrics.json", "run.json"])
def test_a_file_that_may_not_be_read_or_is_a_folder_is_named(
    name, project, tmp_path, stage, monkeypatch
):
    path = write(project, tmp_path / "runs", Key(TASKS[0], "dac", 1), 0.8).with_name(name)
    path.touch()
    read = Path.read_text

    def denied(here, *given, **options):
        if here == path:
            raise PermissionError(13, "Permission denied", str(here))
        return read(here, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", denied)
        code, _, err = stage("--suite", "small")
    assert code == 2 and f"{path} cannot be read (Permission denied); fix its permissions" in err
    path.unlink()
    path.mkdir()
    code, _, err = stage("--suite", "small")
    assert code == 2 and f"{path} cannot be read (Is a directory)" in err


@pytest.mark.parametrize("value", [63.3, -0.1, "0.5", True, [0.5]])
def test_a_number_that_is_no_share_is_named(value, project, tmp_path, stage):
    path = write(project, tmp_path / "runs", Key(TASKS[0], "dac", 1), value)
    code, _, err = stage("--table", "table5")
    assert code == 2 and f"{path} has {value} as metrics.closed.best" in err


def test_an_absent_number_is_named_but_the_memory_rule_is_optional(project, tmp_path):
    key = Key(TASKS[0], "dac", 1)
    write(project, tmp_path, key, 0.8)
    found = collect(project, [key], tmp_path)
    assert found.share(key, "open.memory.balanced_accuracy") is None
    with pytest.raises(UserError, match=r"has nothing as metrics\.pool_auroc"):
        found.share(key, "pool_auroc")


def test_a_corrupt_record_of_a_run_is_named(project, tmp_path, stage):
    path = write(project, tmp_path / "runs", Key(TASKS[0], "dac", 1), 0.8).with_name("run.json")
    path.write_text("{")
    code, _, err = stage("--suite", "small")
    assert code == 2 and str(path) in err


# --- size, and the command's defaults ---------------------------------------------------------


def test_a_thousand_runs_are_all_counted(project, tmp_path, stage, record_property):
    keys = suites.runs(project.file.aggregate.tables["many"])
    assert len(keys) == 1000
    for key in keys:
        path = tmp_path / "runs" / key.folder / "metrics.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content(project, key, key.seed / 10)))
    started = time.monotonic()
    code, _, err = stage("--suite", "large")
    record_property("figure", f"1,000 runs aggregated in {time.monotonic() - started:.1f} s")
    assert code == 0 and "all 1000 runs are in" in err
    found = pd.read_csv(tmp_path / "out" / "many.csv")
    assert len(found) == 200 and found["n"].eq(10).all()
    assert found.loc[found["heading"] == "closed", "mean"].eq(45).all()
    assert len(pd.read_csv(tmp_path / "out" / "runs.csv")) == 1000


def test_runs_are_looked_for_below_the_working_folder(params_path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ("--table", "table5", "--out", "out", "--params", params_path)
    assert called(aggregate.main, *options) == 0
    out, err = capsys.readouterr()
    assert out.startswith("**table5.**")
    assert "none of these runs is finished below runs" in err
