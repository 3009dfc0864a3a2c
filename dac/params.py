"""Reads `params.yaml`, and is the only place that does. Reports every fault of a file at once.

`load` gives the typed file; `Params.run` resolves one run: defaults, then the data set's, the
task's and the method's differences. A later difference wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from dac.errors import UserError
from dac.params_checks import ENTRIES, find_faults
from dac.params_wording import Place, hint
from dac.runs import OF_EVALUATION, PretrainRun, Run
from dac.settings import (
    FIRST_EPOCH_MARK,
    NUM_SEEDS,
    SETTINGS,
    Backbone,
    DacSettings,
    DataName,
    File,
    MethodEntry,
    MethodSettings,
    Objective,
    Pretrain,
    Suite,
    Task,
    Train,
)

DEFAULT_PATH = Path("params.yaml")
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Params:
    path: Path
    file: File

    def task(self, name: str) -> Task:
        return _pick(self.file.tasks, name, "task", self.path)

    def evaluation(self, run: Run) -> dict[str, Any]:
        """What decides the numbers of a network, beside the network."""
        method = run.method.model_dump(mode="json", include=OF_EVALUATION)
        return self.file.evaluate.model_dump(mode="json") | method

    def expected(self, run: Run) -> dict[str, Any]:
        """The identity that the metrics of a run must have."""
        return run.identity() | {"evaluate": self.evaluation(run)}

    def suite(self, name: str | None = None) -> Suite:
        return _pick(self.file.suites, name or self.file.suite, "suite", self.path)

    def pretrain(self, data: DataName, backbone: Backbone) -> "PretrainRun":
        section = self.file.pretrain
        settings = Pretrain(**section.defaults | section.by_data.get(data, {}))
        return PretrainRun(data, backbone, self.file.prepare[data], settings)

    def run(self, task_name: str, method_name: str, seed: int) -> Run:
        task = self.task(task_name)
        entry = _pick(self.file.methods, method_name, "method", self.path)
        check_seed(seed)
        train = Train(**_train_values(self.file, task, entry))
        if train.nesterov and train.momentum == 0:
            raise UserError(
                f"{self.path} gives {task_name} with {method_name} nesterov: true and momentum: 0; "
                "Nesterov's step needs a momentum above 0, or set nesterov: false"
            )
        method = _settings(entry, task.data)
        objective = self._objective(method, task.data)
        _check_stages(method, train, task_name, method_name, self.path)
        if isinstance(method, DacSettings) and objective is not None:
            _check_stages(objective, train, task_name, method.objective, self.path)
        return Run(
            task_name=task_name,
            method_name=method_name,
            seed=seed,
            task=task,
            data=self.file.prepare[task.data],
            train=train,
            method=method,
            objective=objective,
        )

    def _objective(self, method: MethodSettings, data: DataName) -> Objective | None:
        """The settings of the entry that DAC stands on; views and features stay DAC's own."""
        if not isinstance(method, DacSettings):
            return None
        found = _settings(self.file.methods[method.objective], data)
        own = {"labeled_views": method.labeled_views, "feature_layernorm": method.feature_layernorm}
        return cast(Objective, found.model_copy(update=own))


def check_seed(seed: int) -> None:
    if not 0 <= seed < NUM_SEEDS:
        raise UserError(f"seed {seed} is outside 0..{NUM_SEEDS - 1}; give one of those")


def load(path: Path = DEFAULT_PATH) -> Params:
    """The parameters of `path`; a UserError lists everything that is wrong with the file."""
    return parse(_read_yaml(path), path)


def parse(written: dict[str, Any], path: Path) -> Params:
    """The parameters that a file's mappings say; `path` names the file in messages."""
    merged = dict(written)
    faults: dict[Place, str] = {}
    for section in ENTRIES:
        if isinstance(written.get(section), dict):
            merged[section] = _merge_bases(written[section], section, faults)
    lines = [f"{'.'.join(map(str, place))}.base: {text}" for place, text in faults.items() if text]
    lines += find_faults(merged, written, baseless=faults)
    if lines:
        listed = "\n".join(f"  - {line}" for line in lines)
        raise UserError(f"{path} has {len(lines)} fault(s):\n{listed}")
    return Params(path, File.model_validate(merged))


# --- reading ----------------------------------------------------------------------------------


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice instead of keeping the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)
        frozen = _freeze(raw)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; run from the project's top folder or give --params FILE"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except RecursionError:
        raise UserError(f"{path} contains itself through an alias (*name); remove it") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); give a file") from None
    except (ValueError, yaml.YAMLError) as error:  # ValueError: an impossible date or number
        raise UserError(f"{path} cannot be read as YAML: {error}; mend it there") from None
    if not isinstance(frozen, dict):
        found = "is empty" if frozen is None else f"holds a {type(raw).__name__}"
        raise UserError(f"{path} {found}, expected the sections {', '.join(File.model_fields)}")
    return frozen


def _freeze(value: Any) -> Any:
    """Lists to tuples, so that the frozen models accept them under strict typing."""
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


# --- bases ------------------------------------------------------------------------------------


def _merge_bases(entries: dict[Any, Any], section: str, faults: dict[Place, str]) -> dict[Any, Any]:
    """Replace every `base: name` by that entry with the differences laid over it.

    `faults` gets an entry per name that cannot be merged, with a text where the cause is written.
    """

    def merged(name: Any, seen: tuple[Any, ...]) -> Any:
        entry = entries[name]
        if not isinstance(entry, dict) or "base" not in entry:
            return entry
        base = entry["base"]
        differences = {key: value for key, value in entry.items() if key != "base"}
        if not isinstance(base, str) or base not in entries:
            faults.setdefault((section, name), f"{base!r} does not exist{hint(base, entries)}")
        elif base in seen:
            circle = " -> ".join(map(str, (*seen[seen.index(base) :], base)))
            faults.setdefault((section, name), f"{circle} is a circle; remove one of these bases")
        else:
            below = merged(base, (*seen, base))
            if (section, base) not in faults and isinstance(below, dict):
                return _overlay(_less_specific(below, differences), differences)
            faults.setdefault((section, name), "")
        return differences

    return {name: merged(name, (name,)) for name in entries}


def _less_specific(base: dict[Any, Any], differences: dict[Any, Any]) -> dict[Any, Any]:
    """`base` without those values per data set that `differences` gives for all data sets.

    An ablation row with lambda_mi 0 must not get the base's value for digits back.
    """
    result = dict(base)
    for general, specific in (("settings", "by_data"), ("train", "train_by_data")):
        given, per_data = differences.get(general), base.get(specific)
        if isinstance(given, dict) and isinstance(per_data, dict):
            result[specific] = {
                data: {key: v for key, v in values.items() if key not in given}
                if isinstance(values, dict)
                else values
                for data, values in per_data.items()
            }
    return result


def _overlay(base: dict[Any, Any], differences: dict[Any, Any]) -> dict[Any, Any]:
    """`differences` over `base`; mappings inside are overlaid key by key.

    A pool is one thing: whoever gives another one must not inherit half of the old.
    """
    result = dict(base)
    for key, value in differences.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and key != "pool":
            value = _overlay(old, value)
        result[key] = value
    return result


# --- resolving --------------------------------------------------------------------------------


def _train_values(file: File, task: Task, entry: MethodEntry) -> dict[str, Any]:
    return (
        file.train.defaults
        | file.train.by_data.get(task.data, {})
        | task.train
        | entry.train
        | entry.train_by_data.get(task.data, {})
    )


def _settings(entry: MethodEntry, data: DataName) -> MethodSettings:
    return SETTINGS[entry.method](**entry.settings | entry.by_data.get(data, {}))


def _check_stages(
    method: MethodSettings, train: Train, task_name: str, entry: str, path: Path
) -> None:
    """A stage that training ends before would never be told of."""
    for name, field in type(method).model_fields.items():
        first = getattr(method, name)
        if FIRST_EPOCH_MARK in field.metadata and first >= train.epochs:
            raise UserError(
                f"{path} gives {task_name} with {entry} {train.epochs} epochs and {name}: {first}: "
                "a stage of the method would never begin. Train for more epochs or lower "
                f"{name} under methods.{entry}.by_data"
            )


def _pick(entries: Mapping[str, Entry], name: str, kind: str, path: Path) -> Entry:
    if name not in entries:
        raise UserError(f"{kind} {name!r} is not in {path}{hint(name, entries)}")
    return entries[name]
