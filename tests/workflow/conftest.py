"""The toy suite, built once for all files and workers: `dvc repro` from nothing."""

import fcntl
import os
from pathlib import Path

import pytest
from dvc_project import DvcProject
from workflow_project import WHOLE, Project


@pytest.fixture(scope="session")
def finished_dvc(tmp_path_factory: pytest.TempPathFactory) -> DvcProject:
    """Built, pushed into the repository and committed. Tests must copy it before they change it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = base / "finished" / "project", base / "finished.done"
    with (base / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            project = DvcProject.new(folder)
            assert project.planned("all") == WHOLE
            assert project.repro() == WHOLE
            project.dvc("push")
            project.commit("Results")
            done.touch()
    return DvcProject(folder).copy(tmp_path_factory.mktemp("dvc") / "project")


@pytest.fixture(scope="session")
def finished(finished_dvc: DvcProject, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same without DVC and Git. Tests must copy it before they change anything."""
    folder = tmp_path_factory.mktemp("workflow") / "project"
    return Project.copy(finished_dvc, folder, without=(".git", ".dvc", ".dvc-remote"))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The toy suite before anything is built, for dry runs only."""
    return Project.new(tmp_path_factory.mktemp("fresh") / "project")


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    return finished.copy(tmp_path / "project")
