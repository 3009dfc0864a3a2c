"""Faults of the sections that say what is made from runs: tables, figures, suites, plan."""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, get_args

from dac.config.base import Backbone, DataName
from dac.config.messages import Fault, mapping, short, under
from dac.config.results import STAGE_TARGETS
from dac.io.suggestions import Misnamed

TAKEN = STAGE_TARGETS | {  # and names of rules, which a table, figure or task cannot have
    *("all", "aggregate", "download", "evaluate", "figure", "outputs", "prepare", "pretrain"),
    *("report", "split", "table", "train"),
}
MOST_RUNS = 10_000  # of a table or a figure; the whole paper has 967


def result_faults(merged: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of tables, figures and suites: unknown names, duplicates and empty lists. Names of a
    section that is itself broken are not looked up."""
    tables = mapping(mapping(merged.get("aggregate")).get("tables"))
    figures = mapping(mapping(merged.get("figures")).get("drawn"))
    sections = {name: merged.get(name) for name in ("tasks", "methods")}
    valid = {name: s if isinstance(s, dict) else None for name, s in sections.items()}
    for place, grids in ((("aggregate", "tables"), tables), (("figures", "drawn"), figures)):
        for name, grid in grids.items():
            yield from under((*place, name), _list_faults(grid, {**valid, "seeds": None}))
            yield from under((*place, name), _axis_faults(grid))
            yield from under((*place, name), _size_faults(grid))
    yield from _name_faults(tables, figures, valid["tasks"] or {})
    suites = mapping(merged.get("suites"))
    chosen = merged.get("suite")
    if isinstance(chosen, str) and chosen not in suites:
        yield ("suite",), Misnamed(f"{short(chosen)} does not exist", chosen, suites)
    for name, suite in suites.items():
        lists = {"tables": tables, "figures": figures}
        yield from under(("suites", name), _list_faults(suite, lists, may_be_empty=True))


def _list_faults(
    entry: Any, lists: Mapping[str, Collection[Any] | None], may_be_empty: bool = False
) -> Iterator[Fault]:
    """Faults of an entry's lists; None marks a list whose items need not exist elsewhere."""
    for kind, valid in lists.items():
        items = mapping(entry).get(kind)
        if not isinstance(items, tuple):
            continue
        if not items and not may_be_empty:
            yield (kind,), "is empty; name at least one"
        if len(set(map(repr, items))) != len(items):
            yield (kind,), f"an item appears twice in {short(list(items))}"
        for item in items:
            if valid is not None and isinstance(item, str) and item not in valid:
                yield (kind,), Misnamed(f"{short(item)} does not exist", item, valid)


def _size_faults(grid: Any) -> Iterator[Fault]:
    """Every run is resolved and planned, and becomes several jobs."""
    lists = [mapping(grid).get(kind) for kind in ("tasks", "methods", "seeds")]
    runs = math.prod(len(items) for items in lists if isinstance(items, tuple))
    if runs > MOST_RUNS:
        yield (), f"{runs:,} runs (tasks x methods x seeds), expected at most {MOST_RUNS:,}"


def _axis_faults(grid: Any) -> Iterator[Fault]:
    """Curves need axes and metrics; the other kinds read neither."""
    grid = mapping(grid)
    for key in ("x", "metrics"):
        if grid.get("kind") == "curves" and not grid.get(key):
            yield (key,), "missing; `curves` needs at least one"
        if grid.get("kind") not in (None, "curves") and grid.get(key):
            yield (key,), f"only `curves` reads it, not `{grid['kind']}`; remove it"


def _name_faults(
    tables: Mapping[Any, Any], figures: Mapping[Any, Any], tasks: Mapping[Any, Any]
) -> Iterator[Fault]:
    """Tables, figures and tasks are asked for by name, so no two may share one."""
    seen = dict.fromkeys(TAKEN, "target of the workflow")
    kinds = (("table", ("aggregate", "tables"), tables), ("figure", ("figures", "drawn"), figures))
    for kind, place, entries in (*kinds, ("task", ("tasks",), tasks)):
        for name in entries:
            if name in seen:
                yield (*place, name), f"is also the name of a {seen[name]}; rename one"
            seen.setdefault(name, kind)


# --- plan -----------------------------------------------------------------------------------------


def plan_faults(merged: Mapping[str, Any]) -> Iterator[Fault]:
    """Data sets and backbones without their numbers."""
    sets = [name for name in mapping(merged.get("prepare")) if name in get_args(DataName)]
    needed: dict[str, Collection[Any]] = {
        "gigaflops_per_view": get_args(Backbone),
        "side_of_view": get_args(Backbone),
        "megabytes_per_run": get_args(Backbone),
        "train_images": sets,
        "test_images": sets,
        "gigabytes_of_data": sets,
        "memory_mb": sets,
        "threads": sets,
    }
    for key, names in needed.items():
        given = mapping(merged.get("plan")).get(key)
        if isinstance(given, dict) and (absent := [name for name in names if name not in given]):
            yield ("plan", key), f"lacks {', '.join(map(str, absent))}; add a number"
