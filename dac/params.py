"""Reads `params.yaml`, and is the only place that does. Reports every fault of a file at once.

`load` gives the typed file; `Params.run` resolves one run: defaults, then the data set's, the
task's and the method's differences. A later difference wins.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from dac.errors import UserError
from dac.settings import (
    SETTINGS,
    Data,
    DataName,
    Download,
    Evaluate,
    MethodEntry,
    MethodSettings,
    Section,
    Suite,
    Task,
    Train,
)

DEFAULT_PATH = Path("params.yaml")
SUPERCLASSES, CLASSES_PER_SUPERCLASS = 20, 5  # CIFAR-100
Model = TypeVar("Model", bound=BaseModel)


class TrainSection(Section):
    defaults: dict[str, Any]
    by_data: dict[DataName, dict[str, Any]]


class File(Section):
    """The sections of `params.yaml`; entries with a `base` are merged before this is read."""

    suite: str
    download: Download
    prepare: dict[DataName, Data]
    train: TrainSection
    tasks: dict[str, Task]
    methods: dict[str, MethodEntry]
    evaluate: Evaluate
    suites: dict[str, Suite]


@dataclass(frozen=True)
class Run:
    """Everything one training run needs to know, resolved."""

    task_name: str
    method_name: str
    seed: int
    task: Task
    data: Data
    train: Train
    method: MethodSettings

    def as_dict(self) -> dict[str, Any]:
        return {
            "task": {"name": self.task_name, **self.task.model_dump(mode="json", exclude={"train"})},
            "method": {"name": self.method_name, **self.method.model_dump(mode="json")},
            "seed": self.seed,
            "data": self.data.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
        }


@dataclass(frozen=True)
class Params:
    path: Path
    file: File

    def task(self, name: str) -> Task:
        return _pick(self.file.tasks, name, "task", self.path)

    def suite(self, name: str | None = None) -> Suite:
        return _pick(self.file.suites, name or self.file.suite, "suite", self.path)

    def run(self, task_name: str, method_name: str, seed: int) -> Run:
        task = self.task(task_name)
        entry = _pick(self.file.methods, method_name, "method", self.path)
        if seed < 0:
            raise UserError(f"seed {seed} is negative; seeds are 0, 1, 2, ...")
        return Run(
            task_name=task_name,
            method_name=method_name,
            seed=seed,
            task=task,
            data=self.file.prepare[task.data],
            train=Train(**_train_values(self.file, task, entry)),
            method=SETTINGS[entry.method](**entry.settings | entry.by_data.get(task.data, {})),
        )


def load(path: Path = DEFAULT_PATH) -> Params:
    """The parameters of `path`; a UserError lists everything that is wrong with the file."""
    raw = _read_yaml(path)
    faults: list[str] = []
    for section in ("tasks", "methods"):
        if isinstance(raw.get(section), dict):
            raw[section] = _merge_bases(raw[section], section, faults)
    file = _validate(File, raw, "", faults)
    if file is not None:
        _check_differences(file, faults)
        _check_tasks(file, faults)
        _check_suites(file, faults)
    if faults or file is None:
        listed = "\n".join(f"  - {fault}" for fault in dict.fromkeys(faults))
        raise UserError(f"{path} has {len(set(faults))} fault(s):\n{listed}")
    return Params(path, file)


# --- reading ----------------------------------------------------------------------------------


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice instead of keeping the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.load(path.read_text(), _StrictLoader)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; run from the project's top folder or give --params FILE"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read as YAML: {error}; mend it there") from error
    if not isinstance(raw, dict):
        raise UserError(f"{path} holds no sections; expected {', '.join(File.model_fields)}")
    frozen: dict[str, Any] = _freeze(raw)
    return frozen


def _freeze(value: Any) -> Any:
    """Lists to tuples, so that the frozen models accept them under strict typing."""
    if isinstance(value, dict):
        return {key: _freeze(item) for key, item in value.items()}
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


def _merge_bases(entries: dict[str, Any], section: str, faults: list[str]) -> dict[str, Any]:
    """Replace every `base: name` by that entry with the differences laid over it."""

    def merged(name: str, seen: tuple[str, ...]) -> Any:
        entry = entries[name]
        if not isinstance(entry, dict) or "base" not in entry:
            return entry
        base = entry["base"]
        differences = {key: value for key, value in entry.items() if key != "base"}
        if base not in entries:
            faults.append(f"{section}.{name}.base: {base!r} does not exist{_hint(base, entries)}")
            return differences
        if base in seen:
            faults.append(f"{section}.{name}.base: {' -> '.join([*seen, base])} is a circle")
            return differences
        return _overlay(merged(base, (*seen, base)), differences)

    return {name: merged(name, (name,)) for name in entries}


def _overlay(base: Any, differences: dict[str, Any]) -> dict[str, Any]:
    """`differences` over `base`; mappings inside are overlaid key by key."""
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in differences.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict) and key != "pool"
        result[key] = _overlay(old, value) if both else value
    return result


# --- checks -----------------------------------------------------------------------------------


def _validate(
    model: type[Model],
    values: Mapping[str, Any],
    where: str,
    faults: list[str],
    only: Mapping[str, Any] | None = None,
) -> Model | None:
    """Validate; add a line per fault (with `only`, just for those keys). None if anything failed."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        for fault in error.errors():
            location = fault["loc"]
            if only is None or location[0] in only:
                faults.append(_describe(model, where, location, fault))
        return None


def _describe(model: type[BaseModel], where: str, location: tuple[Any, ...], fault: Any) -> str:
    place = ".".join([*([where] if where else []), *map(str, location)])
    found = fault["input"]
    match fault["type"]:
        case "extra_forbidden":
            return f"{place}: unknown key{_hint(location[-1], _keys_at(model, location[:-1]))}"
        case "missing":
            return f"{place}: missing; add it (the shipped params.yaml has every key)"
        case kind if isinstance(found, str) and ("float" in kind or "int" in kind):
            return f"{place}: {found!r} is a text, expected a number (YAML wants 1.0e-3, not 1e-3)"
    return f"{place}: {fault['msg'][0].lower()}{fault['msg'][1:]}, found {found!r}"


def _keys_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    """The valid keys of the section at `location` inside `model`."""
    current: Any = model
    for step in location:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(step))
            current = field.annotation if field else None
        if getattr(current, "__origin__", None) in (dict, tuple) and step != location[0]:
            current = current.__args__[-1] if current.__origin__ is dict else current.__args__[0]
    while getattr(current, "__args__", None):
        models = [arg for arg in current.__args__ if isinstance(arg, type)]
        current = next((arg for arg in models if issubclass(arg, BaseModel)), None)
    return list(current.model_fields) if isinstance(current, type) else []


def _hint(name: Any, valid: Any) -> str:
    valid = [str(item) for item in valid]
    near = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.4)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; valid: {', '.join(valid)}" if valid else ""


def _check_differences(file: File, faults: list[str]) -> None:
    """Every free-form mapping of differences, checked against the model it will become."""
    defaults = file.train.defaults
    _validate(Train, defaults, "train.defaults", faults)

    def check_train(values: dict[str, Any], where: str) -> None:
        _validate(Train, defaults | values, where, faults, only=values)

    for data, values in file.train.by_data.items():
        check_train(values, f"train.by_data.{data}")
    for name, task in file.tasks.items():
        check_train(task.train, f"tasks.{name}.train")
    for name, entry in file.methods.items():
        model = SETTINGS[entry.method]
        _validate(model, entry.settings, f"methods.{name}.settings", faults)
        check_train(entry.train, f"methods.{name}.train")
        for data, values in entry.by_data.items():
            where = f"methods.{name}.by_data.{data}"
            _validate(model, entry.settings | values, where, faults, only=values)
        for data, values in entry.train_by_data.items():
            check_train(values, f"methods.{name}.train_by_data.{data}")


def _check_tasks(file: File, faults: list[str]) -> None:
    for name, task in file.tasks.items():
        if task.data not in file.prepare:
            faults.append(f"tasks.{name}.data: {task.data!r} has no entry under prepare")
            continue
        data = file.prepare[task.data]
        faults.extend(f"tasks.{name}: {fault}" for fault in _task_faults(task, data))


def _task_faults(task: Task, data: Data) -> list[str]:
    """What is contradictory inside one task."""
    faults = []
    total, known = data.num_classes, task.num_known
    if task.known_rule == "all":
        if known is not None:
            faults.append(f"num_known is {known} but the rule `all` takes every class; remove it")
    elif known is None:
        faults.append(f"num_known is missing; the rule `{task.known_rule}` needs it")
    elif total is not None and known > total:
        faults.append(f"num_known is {known} but {task.data} has only {total} classes")
    if task.known_rule == "listed":
        ids = task.known or ()
        if len(set(ids)) != len(ids) or len(ids) != (known or 0):
            faults.append(f"known lists {len(set(ids))} different classes, num_known says {known}")
        if total is not None and any(not 0 <= i < total for i in ids):
            faults.append(f"known has ids outside 0..{total - 1}: {sorted(ids)}")
    elif task.known is not None:
        faults.append(f"known is only read by the rule `listed`, not `{task.known_rule}`; remove it")
    if task.known_rule in ("superclasses", "per-superclass"):
        multiple = CLASSES_PER_SUPERCLASS if task.known_rule == "superclasses" else SUPERCLASSES
        if task.data != "cifar100":
            faults.append(f"the rule `{task.known_rule}` exists only for cifar100, not {task.data}")
        elif known is not None and known % multiple:
            faults.append(f"no such split: num_known {known} is not a multiple of {multiple}")
    size = data.train_per_class
    if size is not None and task.labels_per_class is not None and task.labels_per_class > size:
        faults.append(f"labels_per_class is {task.labels_per_class}, a class has {size} images")
    if task.test_part == "dev" and task.data != "digits":
        faults.append(f"test_part `dev` exists only for digits, not {task.data}")
    if task.data in ("folder", "semi-inat-2021"):
        if task.labels_per_class is not None or task.known_rule != "all" or task.pool is not None:
            faults.append(f"{task.data} brings its own labels: known_rule all, no labels, no pool")
    elif task.labels_per_class is None:
        faults.append("labels_per_class is missing")
    return faults


def _check_suites(file: File, faults: list[str]) -> None:
    if file.suite not in file.suites:
        faults.append(f"suite: {file.suite!r} does not exist{_hint(file.suite, file.suites)}")
    for name, suite in file.suites.items():
        for kind, names, valid in (
            ("tasks", suite.tasks, file.tasks),
            ("methods", suite.methods, file.methods),
        ):
            faults.extend(
                f"suites.{name}.{kind}: {item!r} does not exist{_hint(item, valid)}"
                for item in names
                if item not in valid
            )


# --- resolving --------------------------------------------------------------------------------


def _train_values(file: File, task: Task, entry: MethodEntry) -> dict[str, Any]:
    return (
        file.train.defaults
        | file.train.by_data.get(task.data, {})
        | task.train
        | entry.train
        | entry.train_by_data.get(task.data, {})
    )


Entry = TypeVar("Entry")


def _pick(entries: Mapping[str, Entry], name: str, kind: str, path: Path) -> Entry:
    if name not in entries:
        raise UserError(f"{kind} {name!r} is not in {path}{_hint(name, entries)}")
    return entries[name]
