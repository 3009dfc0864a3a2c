"""The scripts in examples/ run as their first lines say."""

import runpy
import sys
from pathlib import Path

import pytest
from toy import TASK, train_here

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_consensus_separates_images_on_which_heads_agree(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runpy.run_path(str(EXAMPLES / "consensus_of_heads.py"), run_name="__main__")
    verdicts = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["inlier"] * 8 + ["outlier"] * 8


def test_a_finished_run_is_opened_and_scored(
    root: Path, params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    out = tmp_path / "runs" / TASK / "fixmatch" / "seed1"
    train_here(params, "fixmatch", root, out)
    (tmp_path / "params.yaml").write_text(params.path.read_text())
    (tmp_path / "data").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["scores_of_a_run.py", str(out)])
    runpy.run_path(str(EXAMPLES / "scores_of_a_run.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert all(line.startswith("called ") and " score " in line for line in lines)
