"""The environment of the workflow's jobs: this Python first, the user's own settings kept."""

import os
import sys
from pathlib import Path

import pytest

from dac.io import environment

HERE = str(Path(sys.executable).parent)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/usr/bin"})


def test_jobs_run_the_python_that_runs_the_workflow() -> None:
    environment.apply()
    environment.apply()
    assert os.environ["PATH"] == f"{HERE}{os.pathsep}/usr/bin", "prepended once"


def test_what_the_user_has_set_stays() -> None:
    os.environ["MALLOC_TRIM_THRESHOLD_"] = "7"
    environment.apply()
    assert os.environ["MALLOC_TRIM_THRESHOLD_"] == "7"
    assert os.environ["MALLOC_MMAP_MAX_"] == "0"


def test_jobs_know_the_snakemake_that_a_user_started_and_no_other() -> None:
    environment.apply(starts_jobs=True)
    assert os.environ["DAC_SNAKEMAKE"] == str(os.getpid())
    environment.apply()  # inside a Slurm job, with the variables of the submit host
    assert "DAC_SNAKEMAKE" not in os.environ
