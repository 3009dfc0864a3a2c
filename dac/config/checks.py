"""Find everything that is wrong with `params.yaml` in one pass.

Works on the plain mappings of the file, entry by entry, so that no broken entry hides another. A
fault that an entry inherits through `base:` is reported only where it is written.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dac.config.checks_results import plan_faults, result_faults
from dac.config.data import Data
from dac.config.file import File
from dac.config.messages import Fault, Place, difference_faults, faults_of, mapping, short, under
from dac.config.methods import SHIPPED, MethodEntry, MethodSettings, settings_of
from dac.config.tasks import CLASSES_PER_SUPERCLASS, SUPERCLASSES, Task, pool_counts
from dac.config.train import Pretrain, Train
from dac.io.errors import UserError
from dac.io.suggestions import Misnamed

Model = TypeVar("Model", bound=BaseModel)
ENTRIES = ("tasks", "methods")  # the sections whose entries may have a `base`
OBJECTIVES = [name for name, model in SHIPPED.items() if model.weighs_samples]
OWN_LABELS = ("folder", "semi-inat-2021")  # sets that come with labeled images


def find_faults(
    merged: Mapping[str, Any], written: Mapping[str, Any], baseless: Collection[Place]
) -> list[Fault]:
    """Return every fault with its place. `merged` is the file as `written`, with every base merged;
    entries in `baseless` could not be merged and are not checked further."""
    faults = [fault for fault in faults_of(File, merged) if not _is_in_entry(fault[0], merged)]
    faults += _defaults_faults(merged, "pretrain", Pretrain)
    faults += _defaults_faults(merged, "train", Train)
    defaults = mapping(mapping(merged.get("train")).get("defaults"))
    prepare = {name: _read(Data, entry) for name, entry in mapping(merged.get("prepare")).items()}
    for name, data_set in prepare.items():
        faults += under(("prepare", name), _size_faults(data_set) if data_set else [])
    checks: dict[str, Callable[[Any], list[Fault]]] = {
        "tasks": lambda entry: _task_faults(entry, prepare, defaults),
        "methods": lambda entry: _method_faults(entry, defaults, mapping(merged["methods"])),
    }
    for section, check in checks.items():
        entries = mapping(merged.get(section))
        sound = {name: entries[name] for name in entries if (section, name) not in baseless}
        faults += under((section,), _entry_faults(sound, written[section], check) if sound else [])
    faults += result_faults(merged)
    faults += plan_faults(merged)
    return faults


def _defaults_faults(merged: Mapping[str, Any], name: str, model: type[BaseModel]) -> list[Fault]:
    """Faults of a section with defaults and differences per data set."""
    section = mapping(merged.get(name))
    defaults = mapping(given := section.get("defaults"))  # other than a mapping: see the section
    faults = under((name, "defaults"), faults_of(model, defaults)) if given is defaults else []
    for data, values in mapping(section.get("by_data")).items():
        faults += under((name, "by_data", data), difference_faults(model, defaults, values))
    return faults


def _is_in_entry(place: Place, merged: Mapping[str, Any]) -> bool:
    """Tasks and methods are checked one by one; the check of the file covers only their names."""
    if place[0] not in ENTRIES or len(place) < 2:
        return False
    is_name = len(place) == 2 and isinstance(mapping(merged[place[0]]).get(place[1]), dict)
    return not is_name


def _read(model: type[Model], values: Any) -> Model | None:
    """Return the model, ignoring unknown keys (reported elsewhere); None if more is wrong."""
    known = {key: value for key, value in mapping(values).items() if key in model.model_fields}
    try:
        return model.model_validate(known)
    except ValidationError:
        return None


# --- tasks and methods ------------------------------------------------------------------------


def _entry_faults(
    entries: Mapping[Any, Any], written: Mapping[Any, Any], check: Callable[[Any], list[Fault]]
) -> list[Fault]:
    """Return the faults of every entry, except those that it only inherits from its base."""
    found = {name: check(entry) for name, entry in entries.items()}
    distinct = {name: set(faults) for name, faults in found.items()}

    def is_inherited(name: Any, fault: Fault) -> bool:
        base = mapping(written[name]).get("base")
        return fault in distinct.get(base, ()) and not _has(written[name], fault[0])

    return [
        ((name, *fault[0]), fault[1])
        for name, faults in found.items()
        for fault in faults
        if not is_inherited(name, fault)
    ]


def _has(values: Any, place: Place) -> bool:
    for step in place:
        if not isinstance(values, dict) or step not in values:
            return False
        values = values[step]
    return bool(place)


def _method_faults(
    entry: Any, defaults: Mapping[str, Any], methods: Mapping[Any, Any]
) -> list[Fault]:
    faults = faults_of(MethodEntry, entry)
    entry = mapping(entry)
    faults += under(("train",), difference_faults(Train, defaults, entry.get("train")))
    for data, values in mapping(entry.get("train_by_data")).items():
        faults += under(("train_by_data", data), difference_faults(Train, defaults, values))
    method, settings = entry.get("method"), entry.get("settings", {})
    if not isinstance(method, str):
        return faults
    model, fault = _settings_or_fault(method)
    if model is None:
        return [*faults, (("method",), fault)]
    if isinstance(settings, dict):
        faults += under(("settings",), faults_of(model, settings))
        faults += under(("settings",), _objective_faults(settings, methods))
        for data, values in mapping(entry.get("by_data")).items():
            faults += under(("by_data", data), difference_faults(model, settings, values))
            faults += under(("by_data", data), _objective_faults(mapping(values), methods))
    return faults


def _settings_or_fault(method: str) -> tuple[type[MethodSettings] | None, str]:
    try:
        return settings_of(method), ""
    except UserError as error:
        return None, str(error)


def _objective_faults(settings: Mapping[str, Any], methods: Mapping[Any, Any]) -> Iterator[Fault]:
    """DAC wraps another entry, whose method must weigh its unlabeled samples."""
    name = settings.get("objective")
    if not isinstance(name, str):
        return
    if name not in methods:
        text = f"{short(name)} does not exist under methods"
        yield ("objective",), Misnamed(text, name, methods)
        return
    kind = mapping(methods[name]).get("method")
    if isinstance(kind, str):
        model, _ = _settings_or_fault(kind)
        if model is not None and not model.weighs_samples:
            yield ("objective",), f"{name!r} is {kind}; DAC wraps {', '.join(OBJECTIVES)}"


def _task_faults(
    entry: Any, prepare: Mapping[Any, Data | None], defaults: Mapping[str, Any]
) -> list[Fault]:
    faults = faults_of(Task, entry)
    train = mapping(entry).get("train")
    faults += under(("train",), difference_faults(Train, defaults, train))
    task = _read(Task, entry)
    if task is None:
        return faults
    if task.data not in prepare:
        return [*faults, (("data",), f"{task.data!r} has no entry under prepare; add one there")]
    data = prepare[task.data]
    return [*faults, *_contradictions(task, data)] if data else faults


# --- contradictions ---------------------------------------------------------------------------


def _size_faults(data: Data) -> list[Fault]:
    faults: list[Fault] = []
    if data.size > data.side:
        faults.append((("size",), f"{data.size} is more than the stored side of {data.side}"))
    if data.pad >= data.side:
        faults.append((("pad",), f"{data.pad} cannot be reflected at a side of {data.side}"))
    return faults


def _contradictions(task: Task, data: Data) -> Iterator[Fault]:
    """Settings of one task that contradict each other or the data set."""
    yield from _known_faults(task, data.num_classes)
    yield from _label_faults(task, data)
    total, known, size = data.num_classes, task.num_known, data.train_per_class
    if task.pool and known and total and size and known <= total and task.labels_per_class:
        yield from _pool_faults(task, known, total - known, size)
    if task.test_part == "dev" and task.data != "digits":
        yield ("test_part",), f"`dev` exists only for digits, not for {task.data}"


def _known_faults(task: Task, total: int | None) -> Iterator[Fault]:
    rule, num_known = task.known_rule, task.num_known
    if rule == "all":
        if num_known is not None:
            yield ("num_known",), f"{num_known}, but the rule `all` takes every class; remove it"
    elif num_known is None:
        yield ("num_known",), f"missing; the rule `{rule}` needs it"
        return  # whatever else is wrong follows from it
    elif total is not None and num_known > total:
        yield ("num_known",), f"{num_known}, but {task.data} has only {total} classes"
        return
    if rule == "listed":
        ids = task.known or ()
        if len(set(ids)) != len(ids) or len(ids) != num_known:
            yield ("known",), f"lists {len(set(ids))} different classes, num_known is {num_known}"
        if total is not None and any(not 0 <= i < total for i in ids):
            yield ("known",), f"has ids outside 0..{total - 1}: {short(sorted(ids))}"
    elif task.known is not None:
        yield ("known",), f"only the rule `listed` reads it, not `{rule}`; remove it"
    if rule in ("superclasses", "per-superclass"):
        multiple = CLASSES_PER_SUPERCLASS if rule == "superclasses" else len(SUPERCLASSES)
        if task.data != "cifar100":
            yield ("known_rule",), f"`{rule}` exists only for cifar100, not for {task.data}"
        elif num_known is not None and num_known % multiple:
            yield ("num_known",), f"no such split: {num_known} is not a multiple of {multiple}"


def _label_faults(task: Task, data: Data) -> Iterator[Fault]:
    count, size = task.labels_per_class, data.train_per_class
    if task.data in OWN_LABELS:
        if count is not None or task.known_rule != "all" or task.pool is not None:
            yield (), f"{task.data} has its own labels; set known_rule: all, no labels or pool"
    elif count is None:
        yield ("labels_per_class",), "missing; say how many images of every known class are labeled"
    elif size is not None and count > size:
        yield ("labels_per_class",), f"{count}, but a class of {task.data} has {size} images"
    if task.labeled_list is not None and task.data != "imagenet30":
        yield ("labeled_list",), f"lists exist only for imagenet30, not for {task.data}; remove it"
    if task.labeled_list is not None and task.pool is not None:
        yield ("pool",), "a pool is drawn together with its labels; remove it or the labeled_list"


def _pool_faults(task: Task, num_known: int, num_unknown: int, size: int) -> Iterator[Fault]:
    pool, count = task.pool, task.labels_per_class
    assert pool is not None and count is not None
    per_known, per_unknown = pool_counts(pool, num_known, num_unknown)
    if num_unknown == 0 and pool.outlier_share > 0:
        yield ("pool",), f"outlier_share {pool.outlier_share}, but no class of the task is unknown"
    asked = f"{pool.size} images with outlier_share {pool.outlier_share} take"
    left = max(0, size - count)
    if per_known > left:
        have = f"{left} of {size} are left after {count} labels"
        yield ("pool",), f"{asked} {per_known} of every known class, but {have}"
    if per_unknown > size:
        yield ("pool",), f"{asked} {per_unknown} of every unknown class, but it has {size}"
    if per_known == per_unknown == 0:
        yield ("pool",), f"{pool.size} images are fewer than one per class"
