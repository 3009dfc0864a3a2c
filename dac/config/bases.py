"""Entries with a `base:`, which give a task or method by its differences from another one."""

import textwrap
from collections.abc import Collection
from typing import Any

from dac.config.messages import Message, Place, mapping, short
from dac.io.suggestions import Misnamed

MOST_BASES = 100  # one above another


def merge_bases(
    entries: dict[Any, Any], section: str, faults: dict[Place, Message]
) -> dict[Any, Any]:
    """Replace every `base: name` by that entry with the differences applied.

    `faults` gets an entry per name that cannot be merged, empty if the fault is in the base.
    """
    merged: dict[Any, Any] = {}
    heights: dict[Any, int] = {}  # how many bases an entry has, one above another
    for start in entries:
        line = _line(start, entries, merged)
        for name in reversed(line):
            entry = entries[name]
            if not isinstance(entry, dict) or "base" not in entry:
                merged[name], heights[name] = entry, 0
                continue
            base = entry["base"]
            differences = {key: value for key, value in entry.items() if key != "base"}
            fault = _fault(base, line, entries, heights)
            if fault is None and ((section, base) in faults or not isinstance(merged[base], dict)):
                fault = ""
            if fault is None:
                below = _less_specific(merged[base], differences)
                merged[name], heights[name] = _overlay(below, differences), heights[base] + 1
            else:
                faults[section, name] = fault
                merged[name], heights[name] = differences, 0
    return {name: merged[name] for name in entries}


def _line(name: Any, entries: dict[Any, Any], known: Collection[Any]) -> list[Any]:
    """An entry, its base, the base of that, and so on up to one that is known or has none."""
    line: dict[Any, None] = {}
    while name not in known and name not in line:
        line[name] = None
        base = mapping(entries[name]).get("base")
        if not isinstance(base, str) or base not in entries:
            break
        name = base
    return list(line)


def _fault(
    base: Any, line: list[Any], entries: dict[Any, Any], heights: dict[Any, int]
) -> Message | None:
    """What is wrong with the base of an entry in `line`; `heights` has the entries further up."""
    if not isinstance(base, str) or base not in entries:
        return Misnamed(f"{short(base)} does not exist", base, entries)
    if base not in heights:
        circle = " -> ".join(map(str, (*line[line.index(base) :], base)))
        circle = textwrap.shorten(circle, 500, placeholder=" ...")
        return f"{circle} is a cycle; remove one of these bases"
    if heights[base] >= MOST_BASES:
        return f"more than {MOST_BASES} bases, one above another; write this entry out"
    return None


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
