"""Entries with a `base:`, which give a task or method by its differences from another one."""

from typing import Any

from dac.config.messages import Place
from dac.io.suggestions import hint


def merge_bases(entries: dict[Any, Any], section: str, faults: dict[Place, str]) -> dict[Any, Any]:
    """Replace every `base: name` by that entry with the differences applied.

    `faults` gets an entry per name that cannot be merged, empty if the fault is in the base.
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
            faults.setdefault((section, name), f"{circle} is a cycle; remove one of these bases")
        else:
            below = merged(base, (*seen, base))
            if (section, base) not in faults and isinstance(below, dict):
                return _overlay(_less_specific(below, differences), differences)
            faults.setdefault((section, name), "")
        return differences

    return {name: merged(name, (name,)) for name in entries}


def _less_specific(base: dict[Any, Any], differences: dict[Any, Any]) -> dict[Any, Any]:
    """Return `base` without the per-data-set values that `differences` gives for all data sets.

    An ablation row with lambda_mi 0 must not get back the base's value for digits.
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
    """Lay `differences` over `base`; nested mappings are merged key by key.

    A pool is replaced as a whole: a new one must not inherit half of the old.
    """
    result = dict(base)
    for key, value in differences.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and key != "pool":
            value = _overlay(old, value)
        result[key] = value
    return result
