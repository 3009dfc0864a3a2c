"""Faults of `params.yaml`: every one is found, named and placed, and all are reported at once."""

import copy
import math
import re
from typing import Any
from unittest.mock import patch

import pytest
from changed_params import PATH, RAW, changed, faults, setting
from hypothesis import given, settings
from hypothesis import strategies as st

from dac.config import STAGE_TARGETS, checks_results
from dac.io.errors import UserError


def grids_of(raw: dict[str, Any]) -> list[dict[str, Any]]:
    return [*raw["aggregate"]["tables"].values(), *raw["figures"]["drawn"].values()]


# --- faults: unknown keys ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "nearest"),
    [
        ("evaluat", "evaluate"),
        ("download/retrie", "retries"),
        ("download/sets/cifar100/manuel", "manual"),
        ("download/sets/cifar10/archives/0/url", "urls"),
        ("download/sets/cifar1000", "cifar100"),
        ("prepare/cifar10/flipp", "flip"),
        ("prepare/cifar11", "cifar10"),
        ("train/default", "defaults"),
        ("train/defaults/learning_momentum", "momentum"),
        ("train/by_data/digit", "digits"),
        ("train/by_data/cifar10/batchs", "batch"),
        ("tasks/cifar-6-30/num_knwon", "num_known"),
        ("tasks/imagenet-20-p1/labeled_list/md6", "md5"),
        ("tasks/cifar-50-500-subset-0/pool/outliers", "outlier_share"),
        ("tasks/cifar-6-30/train/epoch", "epochs"),
        ("methods/dac/setting", "settings"),
        ("methods/dac/settings/lambda_m", "lambda_mi"),
        ("methods/dac/by_data/semi-inat", "semi-inat-2021"),
        ("methods/dac/by_data/digits/num_head", "num_heads"),
        ("methods/dac-released/train/precison", "precision"),
        ("methods/dac-released/train_by_data/imagenet30/backbon", "backbone"),
        ("figures/histogram_bin", "histogram_bins"),
        ("suites/demo/table", "tables"),
        ("aggregate/tables/table1/seed", "seeds"),
        ("figures/drawn/fig08/metric", "metrics"),
        ("pretrain/defaults/epoch", "epochs"),
        ("pretrain/by_data/digits/batchs", "batch"),
        ("plan/teraflop", "teraflops"),
    ],
)
def test_an_unknown_key_names_the_nearest_valid_one(place: str, nearest: str) -> None:
    line = f"{place.replace('/', '.')}: unknown key; did you mean {nearest!r}?"
    assert line in faults(setting(place, {}))


def test_an_unknown_key_is_the_only_fault_it_causes() -> None:
    assert len(faults(setting("methods/dac/settings/lambda_m", 1.0))) == 1
    assert len(faults(setting("tasks/cifar-50-250/num_knwon", 1))) == 1  # 21 tasks derive from it


def test_entries_that_lost_their_indentation_are_two_faults_not_one_per_use() -> None:
    """`methods:` is empty then, and every table and figure names methods that are gone."""

    def unindent(raw: dict[str, Any]) -> None:
        raw["entropy"], raw["methods"] = raw["methods"], None

    assert faults(unindent) == [
        "methods: expected a mapping, found nothing; indent what belongs to it below it",
        "entropy: unknown key; did you mean 'methods'?",
    ]


def test_no_more_than_ten_faults_are_listed() -> None:
    def rename_all(raw: dict[str, Any]) -> None:
        raw["methods"] = {f"other-{name}": entry for name, entry in raw["methods"].items()}

    with pytest.raises(UserError) as fault:
        changed(rename_all)
    first, *shown, last = str(fault.value).splitlines()
    total = int(re.search(r"has (\d+) fault", first)[1])
    assert total > 100 and len(shown) == 10
    assert last == f"  and {total - 10} more; fix these first"


def test_the_nearest_name_is_looked_for_only_where_it_is_shown() -> None:
    """It takes a while: with thousands of wrong and of valid names, hours."""

    def change(raw: dict[str, Any]) -> None:
        raw["methods"]["fixmatch"]["settings"] |= {f"k{i}": 1 for i in range(2000)}
        raw["methods"] |= {f"m{i}": {"base": f"n{i}"} for i in range(2000)}
        raw["aggregate"]["tables"]["digits"]["methods"] = tuple(f"o{i}" for i in range(2000))

    with (
        patch("dac.io.suggestions.difflib.get_close_matches", return_value=["x"]) as search,
        pytest.raises(UserError, match="has 6000 fault") as caught,
    ):
        changed(change)
    assert search.call_count == 10 == str(caught.value).count("did you mean 'x'?")


def test_a_fault_with_a_long_value_stays_short() -> None:
    known = tuple(range(20_000))
    assert all(len(line) < 300 for line in faults(setting("tasks/cifar-6-30/known", known)))
    twice = ("dac",) * 5000
    assert all(len(f) < 300 for f in faults(setting("aggregate/tables/table1/methods", twice)))
    assert all(len(f) < 300 for f in faults(setting("train/defaults/precision", "x" * 10**6)))


def test_a_key_with_a_line_break_stays_on_one_line() -> None:
    (line,) = faults(setting("evaluate/a\nb", 1))
    assert line == r"evaluate.'a\nb': unknown key; valid: last_evaluations"


def test_a_key_unlike_any_other_lists_the_valid_ones() -> None:
    assert faults(setting("evaluate/zzz", 1)) == [
        "evaluate.zzz: unknown key; valid: last_evaluations"
    ]


# --- faults: values ---------------------------------------------------------------------------

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("suite", "demmo", "'demmo' does not exist; did you mean 'demo'?"),
        (
            "methods/dac/settings/head_tau",
            1.95,
            "input should be less than or equal to 1, found 1.95",
        ),
        ("methods/dac/settings/head_tau", NAN, "input should be a finite number, found nan"),
        ("methods/dac/settings/lambda_kd", INF, "input should be a finite number, found inf"),
        (
            "methods/dac/settings/rejection_temperature",
            NAN,
            "input should be greater than or equal to 0, found nan",
        ),
        (
            "methods/dac/settings/num_heads",
            10.5,
            "input should be a valid integer, found 10.5",
        ),
        ("methods/dac/settings/rejection", "yes", "input should be a valid boolean, found 'yes'"),
        (
            "methods/dac/by_data/digits/head_tau",
            -0.1,
            "input should be greater than or equal to 0, found -0.1",
        ),
        (
            "methods/dac/settings/score_form",
            "papper",
            "'papper' is not one of 'paper' or 'released'; did you mean 'paper'?",
        ),
        (
            "train/defaults/lr",
            "1e-3",
            "'1e-3' is a string, expected a number (YAML needs 1.0e-3, not 1e-3)",
        ),
        ("train/defaults/lr", 0, "input should be greater than 0, found 0"),
        ("train/defaults/evaluate_every", 0, "input should be greater than 0, found 0"),
        ("train/by_data/digits/steps_per_epoch", -1, "input should be greater than 0, found -1"),
        ("train/by_data/digits", 5, "expected a mapping, found 5"),
        ("prepare/cifar10/size", 33, "33 is more than the stored side of 32"),
        ("prepare/cifar10/pad", 32, "32 cannot be reflected at a side of 32"),
        ("download/timeout_seconds", INF, "input should be a finite number, found inf"),
        ("download", None, "expected a mapping, found nothing; indent what belongs to it below it"),
        ("tasks/cifar-6-30/num_known", None, "missing; the rule `listed` needs it"),
        ("tasks/cifar-6-30/test_part", "dev", "`dev` exists only for digits, not for cifar10"),
        ("tasks/digits-6-30/num_known", 11, "11, but digits has only 10 classes"),
        (
            "tasks/digits-6-30/known",
            (1,),
            "only the rule `listed` reads it, not `first`; remove it",
        ),
        ("tasks/cifar-6-30/labels_per_class", 5001, "5001, but a class of cifar10 has 5000 images"),
        (
            "tasks/cifar-6-30/labels_per_class",
            None,
            "missing; say how many images of every known class are labeled",
        ),
        ("tasks/cifar-20-100/num_known", 21, "no such split: 21 is not a multiple of 5"),
        (
            "tasks/cifar-60-600-correlated/num_known",
            50,
            "no such split: 50 is not a multiple of 20",
        ),
        ("tasks/semi-inat/num_known", 5, "5, but the rule `all` takes every class; remove it"),
        (
            "tasks/cifar-6-150/labeled_list",
            {"path": "a.txt", "md5": "0" * 32},
            "lists exist only for imagenet30, not for cifar10; remove it",
        ),
        (
            "tasks/imagenet-20-p1/pool",
            {"size": 300, "outlier_share": 0.5},
            "a pool is drawn together with its labels; remove it or the labeled_list",
        ),
        ("suites/demo/tables", ("digit",), "'digit' does not exist; did you mean 'digits'?"),
        ("suites/demo/figures", ("fig8",), "'fig8' does not exist; did you mean 'fig08'?"),
        (
            "aggregate/tables/table1/methods",
            ("dacc",),
            "'dacc' does not exist; did you mean 'dac'?",
        ),
        (
            "aggregate/tables/table1/tasks",
            ("cifar-6-31",),
            "'cifar-6-31' does not exist; did you mean 'cifar-6-30'?",
        ),
        ("aggregate/tables/table1/seeds", (1, 2, 1), "an item appears twice in [1, 2, 1]"),
        ("figures/drawn/fig06/seeds", (), "is empty; name at least one"),
        (
            "plan/threads",
            {"digits": 1},
            "lacks cifar10, cifar100, imagenet30, semi-inat-2021, folder; add a number",
        ),
        (
            "methods/dac/settings/objective",
            "fixmach",
            "'fixmach' does not exist under methods; did you mean 'fixmatch'?",
        ),
        (
            "methods/dac/by_data/digits/objective",
            "labeled-only",
            "'labeled-only' is labeled-only; DAC wraps mixmatch, fixmatch, comatch, "
            "simmatch, softmatch",
        ),
        ("figures/drawn/fig08/x", (), "missing; `curves` needs at least one"),
        (
            "figures/drawn/fig06/x",
            ("task.data",),
            "only `curves` reads it, not `heatmap`; remove it",
        ),
    ],
)
def test_a_wrong_value_is_one_fault_at_its_place(place: str, value: Any, message: str) -> None:
    assert faults(setting(place, value)) == [f"{place.replace('/', '.')}: {message}"]


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ((2, 3, 4, 5, 6, 10), "has ids outside 0..9: [2, 3, 4, 5, 6, 10]"),
        ((2, 3, 4, 5, 6), "lists 5 different classes, num_known is 6"),
        ((2, 3, 4, 5, 6, 6), "lists 5 different classes, num_known is 6"),
    ],
)
def test_listed_classes_must_exist_and_be_counted(known: tuple[int, ...], message: str) -> None:
    assert faults(setting("tasks/cifar-6-30/known", known)) == [
        f"tasks.cifar-6-30.known: {message}"
    ]


@pytest.mark.parametrize(
    ("section", "name", "other"),
    [
        ("aggregate/tables", "runs", "target of the workflow"),
        ("figures/drawn", "train", "target of the workflow"),
        ("figures/drawn", "table1", "table"),
        ("tasks", "digits", "table"),
        ("tasks", "fig08", "figure"),
    ],
)
def test_tables_figures_and_tasks_share_no_name(section: str, name: str, other: str) -> None:
    def change(raw: dict[str, Any]) -> None:
        inside = raw
        for step in section.split("/"):
            inside = inside[step]
        inside[name] = copy.deepcopy(next(iter(inside.values())))

    place = section.replace("/", ".")
    assert faults(change) == [f"{place}.{name}: is also the name of a {other}; rename one"]


def test_names_that_are_taken_are_those_of_targets_and_rules() -> None:
    rules = (PATH.parent / "workflow/rules").glob("*.smk")
    named = {name for path in rules for name in re.findall(r"^rule (\w+):", path.read_text(), re.M)}
    assert named | {"all"} | STAGE_TARGETS == checks_results.TAKEN


def test_seven_known_classes_of_six_are_refused() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["prepare"]["folder"]["num_classes"] = 6
        raw["prepare"]["digits"]["num_classes"] = 6
        raw["tasks"] = {
            "t": dict(raw["tasks"]["digits-6-30"], num_known=7),
            "u": raw["tasks"]["folder"],
        }
        for entry in grids_of(raw):
            entry["tasks"] = ("t",)

    assert faults(change) == ["tasks.t.num_known: 7, but digits has only 6 classes"]


@pytest.mark.parametrize(
    ("size", "share", "message"),
    [
        (20_050, 0.0, "take 401 of every known class, but 400 of 500 are left after 100 labels"),
        (30_000, 0.9, "take 540 of every unknown class, but it has 500"),
        (49, 0.1, "49 images are fewer than one per class"),
    ],
)
def test_impossible_pools_are_refused(size: int, share: float, message: str) -> None:
    pool = {"size": size, "outlier_share": share}
    (line,) = faults(setting("tasks/cifar-50-5000-mismatch-10/pool", pool))
    assert line.startswith("tasks.cifar-50-5000-mismatch-10.pool: ")
    assert line.endswith(message)


def test_the_largest_possible_pools_are_accepted() -> None:
    for size, share in ((20_000, 0.0), (25_000, 1.0), (45_000, 25 / 45)):
        pool = {"size": size, "outlier_share": share}
        assert faults(setting("tasks/cifar-50-5000-mismatch-10/pool", pool)) == []


def test_outliers_without_unknown_classes_are_refused() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["tasks"]["digits-6-60"] = {
            "base": "digits-6-30",
            "num_known": 10,
            "pool": {"size": 100, "outlier_share": 0.5},
        }

    assert faults(change) == [
        "tasks.digits-6-60.pool: outlier_share 0.5, but no class of the task is unknown"
    ]


def test_super_classes_of_another_set_are_refused() -> None:
    task = {"data": "cifar10", "known_rule": "superclasses", "num_known": 5, "labels_per_class": 5}
    assert faults(setting("tasks/new", task)) == [
        "tasks.new.known_rule: `superclasses` exists only for cifar100, not for cifar10"
    ]


def test_sets_with_their_own_labels_take_no_number_of_labels() -> None:
    assert faults(setting("tasks/folder/labels_per_class", 5)) == [
        "tasks.folder: folder has its own labels; set known_rule: all, no labels or pool"
    ]


def test_a_task_on_data_that_prepare_does_not_describe_is_refused() -> None:
    assert faults(lambda raw: raw["prepare"].pop("semi-inat-2021")) == [
        "tasks.semi-inat.data: 'semi-inat-2021' has no entry under prepare; add one there"
    ]


def test_the_cost_of_a_new_method_need_not_be_measured() -> None:
    assert faults(setting("plan/step_over_floor", {"fixmatch": 1.0})) == []


def test_infinity_is_allowed_only_where_it_means_hard_rejection() -> None:
    assert faults(setting("methods/dac/settings/rejection_temperature", INF)) == []


def test_intervals_beyond_the_last_step_are_fine() -> None:
    assert faults(setting("train/by_data/digits/evaluate_every", 10**9)) == []
    assert faults(setting("train/by_data/digits/checkpoint_every", 10**9)) == []


def number_places(value: Any, place: str = "") -> list[str]:
    if isinstance(value, dict):
        return [
            found
            for key, item in value.items()
            for found in number_places(item, f"{place}/{key}" if place else str(key))
        ]
    return [place] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.parametrize("section", [name for name in RAW if number_places(RAW[name])])
def test_nan_is_refused_at_every_number(section: str) -> None:
    places = number_places(RAW[section], section)

    def change(raw: dict[str, Any]) -> None:
        for place in places:
            setting(place, NAN)(raw)

    found = faults(change)
    for place in places:
        assert any(line.startswith(place.replace("/", ".")) for line in found), place


@pytest.mark.parametrize("section", ["train", "pretrain"])
def test_defaults_without_values_lack_every_one_of_them(section: str) -> None:
    found = faults(setting(f"{section}/defaults", {}))
    missing = "missing; add it (the shipped params.yaml has every key)"
    assert found == [f"{section}.defaults.{key}: {missing}" for key in RAW[section]["defaults"]]


@pytest.mark.parametrize("defaults", [None, 5, ()])
def test_defaults_that_are_no_mapping_are_one_fault(defaults: Any) -> None:
    (line,) = faults(setting("train/defaults", defaults))
    assert line.startswith("train.defaults: expected a mapping, found ")


def test_more_runs_than_anybody_waits_for_are_refused() -> None:
    assert faults(setting("aggregate/tables/table1/seeds", tuple(range(100)))) == [
        "aggregate.tables.table1: 16,500 runs (tasks x methods x seeds), expected at most 10,000"
    ]


def test_an_unknown_data_set_is_not_asked_for_in_the_plan() -> None:
    entry = RAW["prepare"]["cifar10"]
    assert faults(setting("prepare/cifar11", entry)) == [
        "prepare.cifar11: unknown key; did you mean 'cifar10'?"
    ]


# --- faults: all at once, each once -----------------------------------------------------------


def test_all_faults_are_reported_at_once() -> None:
    places = {
        "suite": "demmo",
        "download/retrie": 1,
        "prepare/cifar10/size": 33,
        "train/defaults/lr": "1e-3",
        "train/by_data/digits/batchs": 5,
        "tasks/cifar-20-100/num_known": 21,
        "tasks/cifar-20-100/num_knwon": 20,
        "methods/fixmatch/settings/tau": 1.95,
        "methods/fixmatch/setings": {},
        "methods/dac/by_data/digits/head_tau": 2.0,
        "evaluate/last_evaluations": 0,
        "aggregate/tables/digits/seeds": (-1,),
    }

    def change(raw: dict[str, Any]) -> None:
        for place, value in places.items():
            setting(place, value)(raw)

    found = faults(change)
    assert len(found) == len(places)
    for place in places:
        assert any(line.startswith(place.replace("/", ".")) for line in found), place


def test_names_that_cannot_be_folders_are_refused() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["tasks"]["../escape"] = {"base": "digits-6-30"}

    (line,) = faults(change)
    assert line.startswith("tasks.../escape: the name '../escape' is not allowed")


JUNK = st.sampled_from(
    [
        *(None, "", "x", "a\nb", "x" * 5000, "x" * 5000 + ".py", b"x", True),
        *(-1, 0, 10**30, 10**400, 1e300, 5e-324, NAN, INF),
        *((), (1, "a"), ({},), {}, {"a": {"b": 1}}, {1: 2}, {None: 1}, {"base": "dac"}),
    ]
)


@settings(max_examples=100)
@given(data=st.data(), junk=JUNK)
def test_junk_anywhere_is_a_clear_error_or_harmless(data: st.DataObject, junk: Any) -> None:
    path: list[str] = []
    inside: Any = RAW
    while True:
        key = data.draw(st.sampled_from(sorted(inside)))
        path.append(key)
        if not isinstance(inside[key], dict) or not inside[key] or data.draw(st.booleans()):
            break
        inside = inside[key]
    try:
        changed(setting("/".join(path), junk))
    except UserError as error:
        assert "fault(s)" in str(error)
