"""The recipe of docs/add-a-method.md: one file and one entry, from the split to a table cell."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from toy import TASK, TRAIN

from dac import aggregate, config, evaluate, plan, split
from dac import train as train_command
from dac.config.methods import settings_of
from dac.io.errors import exit_code_of

TOP = Path(__file__).parents[2]
RECIPE = (TOP / "docs" / "add-a-method.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", RECIPE, re.DOTALL)
    return str(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    """An empty folder with the recipe's file, its entry in a parameter file, and the digits."""
    text = (TOP / "params.yaml").read_text()
    assert text.count("\nmethods:\n") == 1
    raw = yaml.safe_load(text.replace("\nmethods:\n", f"\n{block('yaml')}"))
    path = tmp_path / raw["methods"]["entropy"]["method"]
    path.parent.mkdir()
    path.write_text(block("python"))
    raw["train"]["by_data"]["digits"] |= TRAIN
    raw["aggregate"]["tables"]["digits"] |= {"methods": ["entropy"], "seeds": [1]}
    raw["suites"] = {"demo": {"tables": ["digits"], "figures": []}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "prepared").symlink_to(root / "prepared")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(module: object, *options: str) -> None:
    """A command in this process."""
    sys.argv = ["command", *options]
    assert exit_code_of(module.main) == 0  # type: ignore[attr-defined]


def training(out: str) -> list[str]:
    return ["--task", TASK, "--method", "entropy", "--seed", "1", "--out", out]


def killed_after_a_checkpoint(out: str) -> int:
    """Train in a child that kill -9 hits once its first checkpoint is there."""
    code = (
        "import os, signal, sys\n"
        "from dac import train\nfrom dac.io.errors import exit_code_of\n"
        "from dac.runs import checkpoint\n"
        "save = checkpoint.save\n"
        "def save_and_die(*rest):\n"
        "    path = save(*rest)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return path\n"
        "checkpoint.save = save_and_die\n"
        "sys.exit(exit_code_of(train.main))\n"
    )
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as this process: sums have one order
    return subprocess.run([sys.executable, "-c", code, *training(out)], env=one_thread).returncode


def test_one_file_and_one_entry_go_from_the_split_to_a_table_and_the_plan(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(split, "--task", TASK, "--seed", "1")
    run(train_command, *training("undisturbed"))
    out = f"runs/{TASK}/entropy/seed1"
    assert killed_after_a_checkpoint(out) == -signal.SIGKILL
    assert not (folder / out / "model.pt").exists()
    run(train_command, *training(out))
    assert "resuming" in capsys.readouterr().err
    one, other = (
        torch.load(f"{where}/model.pt", weights_only=True)["last"]["network"]
        for where in ("undisturbed", out)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)

    run(evaluate, "--run", out)
    metrics = json.loads((folder / out / "metrics.json").read_text())["metrics"]
    assert metrics["open"]["published"]["threshold"] == pytest.approx(0.95)
    run(aggregate, "--table", "digits", "--out", "tables")
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| entropy")]
    assert f"{100 * metrics['closed']['best']:.1f}" in row
    run(plan, "--suite", "demo")
    assert re.search(r"^digits +1 +6 ", capsys.readouterr().out, re.MULTILINE)


def test_the_recipe_s_entropy_is_that_of_the_weak_view(folder: Path) -> None:
    entry = yaml.safe_load(block("yaml"))["methods"]["entropy"]
    assert settings_of(entry["method"]).__name__ == "EntropySettings"
    phase = config.load(folder / "params.yaml").run(TASK, "entropy", 1).method.phase(0)
    assert (phase.drawn.labeled, phase.drawn.weak, phase.drawn.strong) == (1, 1, 0)
    assert (phase.forwards().labeled, phase.forwards().unlabeled) == (3, 3)
