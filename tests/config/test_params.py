"""A run resolved from `params.yaml`: defaults, differences, stages, and names that do not exist."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from changed_params import PARAMS, PATH, changed, setting

from dac import config
from dac.config import FIRST_EPOCH_MARK, SHIPPED
from dac.io.errors import UserError
from dac.io.files import canonical_hash


def test_every_task_resolves_with_every_method() -> None:
    hashes = set()
    for task in PARAMS.file.tasks:
        for method in PARAMS.file.methods:
            run = PARAMS.run(task, method, 1)
            assert (run.task_name, run.method_name, run.data) == (
                task,
                method,
                PARAMS.file.prepare[run.task.data],
            )
            hashes.add(canonical_hash(json.loads(json.dumps(run.as_dict()))))
    assert len(hashes) == len(PARAMS.file.tasks) * len(PARAMS.file.methods)


def test_a_later_difference_wins() -> None:
    params = changed(
        setting("tasks/cifar-6-30/train", {"lr": 0.1, "mu": 3}),
        setting("methods/dac/train", {"mu": 5, "batch": 8}),
        setting("methods/dac/train_by_data", {"cifar10": {"batch": 16}}),
    )
    found = params.run("cifar-6-30", "dac", 1).train
    assert (found.lr, found.mu, found.batch, found.momentum) == (0.1, 5, 16, 0.9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PARAMS.task("cifar-50-50"), "task 'cifar-50-50' is not in .*mean 'cifar-50-500'"),
        (lambda: PARAMS.run("cifar-6-30", "fixmach", 1), "method 'fixmach' .*mean 'fixmatch'"),
        (lambda: PARAMS.suite("demmo"), "suite 'demmo' .*mean 'demo'"),
        (lambda: PARAMS.run("cifar-6-30", "dac", -1), "seed -1 is outside"),
        (lambda: PARAMS.run("cifar-6-30", "dac", 2**32), "seed 4294967296 is outside"),
    ],
)
def test_unknown_names_and_seeds_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_parameters_load_without_torch() -> None:
    code = f"""
import sys
from pathlib import Path
import dac.config, dac.config.suites, dac.config.schema
assert "torch" not in sys.modules
params = dac.config.load(Path({str(PATH)!r}))
for method in params.file.methods:
    params.run("cifar-6-30", method, 1).method.phase(0)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PATH.parent)


def test_a_file_survives_a_round_trip_through_yaml(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.dump(yaml.safe_load(PATH.read_text()), Dumper=yaml.CSafeDumper))
    assert config.load(path).file == PARAMS.file


def test_nesterov_without_momentum_is_refused_before_training() -> None:
    found = changed(setting("tasks/digits-6-30/train", {"momentum": 0.0}))
    with pytest.raises(UserError, match="Nesterov's step needs a momentum above 0"):
        found.run("digits-6-30", "dac", 1)


STAGES = [
    ("fixmatch", "start_epoch"),
    ("mtcf", "warmup_epochs"),
    ("mtcf", "history"),
    ("openmatch", "start_epoch"),
    ("safe-student", "warmup_epochs"),
    ("osp", "pruning_epoch"),
    ("ssb", "detector_epoch"),
    ("iomatch", "open_start_epoch"),
    ("dac", "warmup_epochs"),
]


@pytest.mark.parametrize(("method", "name"), STAGES)
def test_a_stage_that_training_ends_before_is_refused(method: str, name: str) -> None:
    found = changed(
        setting(f"methods/{method}/by_data/digits", {name: 20}),
        setting("train/by_data/digits/epochs", 20),
    )
    with pytest.raises(UserError, match=f"20 epochs and {name}: 20, so a phase of the method"):
        found.run("digits-6-30", method, 1)


def test_every_setting_that_begins_a_stage_is_marked() -> None:
    marked = {
        (method, name)
        for method, model in SHIPPED.items()
        for name, field in model.model_fields.items()
        if FIRST_EPOCH_MARK in field.metadata
    }
    assert marked == set(STAGES)


def test_a_stage_of_the_objective_of_dac_is_checked_too() -> None:
    found = changed(setting("methods/fixmatch/by_data/digits", {"start_epoch": 2}))
    with pytest.raises(UserError, match=r"lower start_epoch under methods\.fixmatch\.by_data"):
        found.run("digits-6-30", "dac", 1)
