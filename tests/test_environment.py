"""One environment: the lock, the conda file and pyproject.toml name the same packages."""

import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parents[1]


def lines_of(name: str) -> list[str]:
    """The requirements of a pip file, without comments."""
    lines = (line.partition("#")[0].strip() for line in (TOP / name).read_text().splitlines())
    return [line for line in lines if line]


def locked_versions() -> dict[str, str]:
    pins = (line.split("==") for line in lines_of("requirements.lock"))
    return {canonicalize_name(name): version for name, version in pins}


def assert_locked(requirements: list[str]) -> None:
    locked = locked_versions()
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not in requirements.lock; run `make lock`"
        assert requirement.specifier.contains(locked[name]), f"{requirement} but {locked[name]}"


def test_lock_pins_every_package_once() -> None:
    lines = lines_of("requirements.lock")
    assert all(line.count("==") == 1 for line in lines)
    assert len(locked_versions()) == len(lines)


def test_conda_environment_has_the_pins_of_the_lock() -> None:
    environment = yaml.safe_load((TOP / "environment.yml").read_text())
    assert environment["dependencies"][-1]["pip"] == lines_of("requirements.lock")


def test_everything_asked_for_is_in_the_lock() -> None:
    assert_locked(lines_of("requirements.in"))


def test_dependencies_of_the_package_are_in_the_lock() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    assert_locked(project["dependencies"])
    in_names = {canonicalize_name(Requirement(line).name) for line in lines_of("requirements.in")}
    assert {canonicalize_name(Requirement(d).name) for d in project["dependencies"]} <= in_names


def test_conda_python_is_one_the_package_accepts() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((TOP / "environment.yml").read_text())
    python = next(d for d in environment["dependencies"] if str(d).startswith("python="))
    accepted = Requirement(f"python{project['requires-python']}").specifier
    assert accepted.contains(python.removeprefix("python="))
