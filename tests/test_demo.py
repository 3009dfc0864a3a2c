"""The whole pipeline at toy size, called stage by stage as a user would."""

import os
import subprocess
import sys

import pandas as pd
import toy
import yaml


def demo(params, out):
    command = [sys.executable, "-m", "dac.demo", "--out", str(out), "--params", str(params)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ)


def test_the_demo_leaves_a_table_and_pictures_and_resumes(tmp_path):
    params = toy.toy_params(tmp_path).path
    raw = yaml.safe_load(params.read_text())
    raw["suites"]["demo"] |= {"methods": ["fixmatch", "dac"], "seeds": [1]}
    params.write_text(yaml.safe_dump(raw))
    out = tmp_path / "demo"
    done = demo(params, out)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(out / "table.csv")
    assert sorted(zip(table["method"], table["seed"], strict=True)) == [
        ("dac", 1),
        ("fixmatch", 1),
    ]
    assert (out / "consensus.png").stat().st_size > 5000 and (out / "heads.png").exists()
    assert done.stdout == (out / "table.md").read_text()

    finished = (out / "runs/digits-6-30/fixmatch/seed1/model.pt").stat().st_mtime_ns
    (out / "runs/digits-6-30/dac/seed1/metrics.json").unlink()
    again = demo(params, out)
    assert again.returncode == 0 and again.stdout == done.stdout
    assert (out / "runs/digits-6-30/fixmatch/seed1/model.pt").stat().st_mtime_ns == finished


def test_a_failing_run_is_named_with_its_message(tmp_path):
    params = toy.toy_params(tmp_path, lr=1e30).path
    raw = yaml.safe_load(params.read_text())
    raw["suites"]["demo"] |= {"methods": ["fixmatch"], "seeds": [1]}
    params.write_text(yaml.safe_dump(raw))
    done = demo(params, tmp_path / "demo")
    assert done.returncode == 1
    assert "is not finite at step" in done.stderr and "--method fixmatch" in done.stderr
