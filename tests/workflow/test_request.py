"""Only a Snakemake that runs jobs takes the project folder over."""

import re
from pathlib import Path

import pytest
import snakemake.cli

from dac.workflow.request import WITHOUT_JOBS, executor

TOP = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TOP)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("--cores 1", "local"),
        ("--profile profiles/local -- all runs report", "local"),
        ("--cores 1 --touch all", "local"),
        ("--cores 1 --report page.html --report-after-run all", "local"),
        ("--profile slurm all", "slurm"),
        ("--executor slurm --jobs 2 --config suite=paper -- all", "slurm"),
    ],
)
def test_real_runs_and_their_executor(
    command: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert executor(command.split()) == name
    assert capfd.readouterr() == ("", ""), "Snakemake has said it already"


@pytest.mark.parametrize(
    "command",
    [
        "-n",
        "--cores 1 -np all",
        "--profile slurm --dry-run",
        "--unlock --cores 1",
        "--lint",
        "--rulegraph dot all",
        "--dag",
        "--summary",
        "--list-rules",
        "--cores 1 --report page.html",
    ],
)
def test_whatever_runs_no_jobs(command: str) -> None:
    assert snakemake.cli.parse_args(command.split())
    assert executor(command.split()) is None


def test_a_command_line_that_is_not_snakemakes() -> None:
    assert executor(["--no-such-option"]) is None


def test_every_option_that_snakemake_looks_at_is_known() -> None:
    code = Path(snakemake.cli.__file__).read_text()
    choice = code[code.index("if args.lint:") : code.index("dag_api.execute_workflow(")]
    looked_at = set(re.findall(r"^ *(?:el)?if args\.(\w+)(?: is not None)?:$", choice, re.M))
    assert looked_at - {"preemptible_rules", "touch"} == set(WITHOUT_JOBS)
