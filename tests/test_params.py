"""`params.yaml`: the paper's numbers, every run resolvable, every fault found, named and placed."""

import copy
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dac import params, params_results
from dac.errors import UserError
from dac.files import canonical_hash
from dac.settings import SETTINGS, STAGE_TARGETS, DacSettings, FixMatchSettings

PATH = Path(__file__).parents[1] / "params.yaml"
PARAMS = params.load(PATH)
RAW = params._read_yaml(PATH)
Change = Callable[[dict[str, Any]], object]


def faults(change: Change) -> list[str]:
    """The lines of the message after a change to the shipped file; none if it still loads."""
    raw = copy.deepcopy(RAW)
    change(raw)
    try:
        params.parse(raw, PATH)
    except UserError as error:
        first, *lines = str(error).splitlines()
        assert first == f"{PATH} has {len(lines)} fault(s):"
        return [line.removeprefix("  - ") for line in lines]
    return []


def grids_of(raw: dict[str, Any]) -> list[dict[str, Any]]:
    return [*raw["aggregate"]["tables"].values(), *raw["figures"]["drawn"].values()]


def setting(place: str, value: Any) -> Change:
    """Set the value at a place such as `methods/dac/settings/head_tau`."""
    *path, last = place.split("/")

    def change(raw: dict[str, Any]) -> None:
        inside: Any = raw
        for step in path:
            inside = inside[int(step)] if isinstance(inside, tuple) else inside.setdefault(step, {})
        inside[last] = value

    return change


def dac(data_task: str, method: str = "dac") -> DacSettings:
    chosen = PARAMS.run(data_task, method, 1).method
    assert isinstance(chosen, DacSettings)
    return chosen


# --- the paper's numbers ----------------------------------------------------------------------

ON_CIFAR10, ON_CIFAR100, ON_IMAGENET, ON_INAT = (
    "cifar-6-30",
    "cifar-50-500",
    "imagenet-20-p1",
    "semi-inat",
)


@pytest.mark.parametrize(
    ("task", "steps", "mu", "weight_decay", "backbone"),
    [
        (ON_CIFAR10, 262_144, 7, 5e-4, "wrn-28-2"),
        (ON_CIFAR100, 262_144, 7, 1e-3, "wrn-28-2"),
        (ON_IMAGENET, 102_400, 2, 3e-4, "resnet18"),
        (ON_INAT, 102_400, 2, 3e-4, "resnet18"),
    ],
)
def test_schedules_are_the_published_ones(
    task: str, steps: int, mu: int, weight_decay: float, backbone: str
) -> None:
    train = PARAMS.run(task, "dac", 1).train
    assert (train.steps, train.steps_per_epoch, train.batch, train.mu) == (steps, 1024, 64, mu)
    assert (train.lr, train.momentum, train.nesterov) == (0.03, 0.9, True)
    assert (train.weight_decay, train.backbone) == (weight_decay, backbone)
    assert (train.cosine, train.ema_decay, train.evaluate_every) == (7 / 16, 0.999, 1024)


@pytest.mark.parametrize("task", [ON_CIFAR10, ON_CIFAR100, ON_IMAGENET])
def test_dac_is_as_the_paper_writes_it(task: str) -> None:
    chosen = dac(task)
    target = PARAMS.run(task, "dac", 1).objective
    assert isinstance(target, FixMatchSettings)
    assert (target.tau, target.lambda_u, target.hard_label) == (0.95, 1.0, True)
    assert (chosen.head_tau, chosen.num_heads, chosen.proj_dim) == (0.95, 10, 128)
    assert (chosen.lambda_u_heads, chosen.lambda_mi, chosen.lambda_kd) == (1.0, 0.5, 1.5)
    assert (chosen.score_momentum, chosen.kd_temperature) == (0.9, 0.1)
    assert (chosen.rejection_temperature, chosen.score_form) == (1.5, "paper")
    assert (chosen.labeled_views, chosen.feature_layernorm, chosen.bank_batches) == (1, False, 256)
    assert not PARAMS.run(task, "dac", 1).train.pool_includes_labeled


def test_semi_inat_lowers_tau_and_the_number_of_heads() -> None:
    assert (dac(ON_INAT).head_tau, dac(ON_INAT).num_heads) == (0.6, 6)
    released = dac(ON_INAT, "dac-released")
    assert (released.head_tau, released.num_heads) == (0.6, 4)
    for name in ("fixmatch", "comatch", "simmatch"):
        assert PARAMS.run(ON_INAT, name, 1).method.tau == 0.6  # type: ignore[union-attr]
    for name in ("dac", "dac-released", "simmatch+dac"):
        assert PARAMS.run(ON_INAT, name, 1).objective.tau == 0.6  # type: ignore[union-attr]


def test_dac_stands_on_the_entry_it_names_with_views_and_features_of_its_own() -> None:
    run = PARAMS.run(ON_CIFAR100, "mixmatch+dac", 1)
    plain = PARAMS.run(ON_CIFAR100, "mixmatch", 1).method
    assert run.objective == plain and run.objective.lambda_u == 150  # type: ignore[union-attr]
    released = PARAMS.run(ON_CIFAR100, "dac-released", 1).objective
    assert (released.labeled_views, released.feature_layernorm) == (2, True)  # type: ignore[union-attr]
    assert run.identity()["objective"]["lambda_u"] == 150
    assert "reject_below" not in run.identity()["objective"]
    assert "objective" not in PARAMS.run(ON_CIFAR100, "mixmatch", 1).identity()


@pytest.mark.parametrize(
    ("task", "lambda_mi", "proj_dim", "backbone"),
    [
        (ON_CIFAR10, 0.05, 128, "wrn-28-2"),
        (ON_CIFAR100, 0.1, 128, "wrn-28-2"),
        (ON_IMAGENET, 0.05, 256, "resnet18-released"),
        (ON_INAT, 0.1, 256, "resnet18-released"),
    ],
)
def test_the_released_dac_has_its_tuned_values(
    task: str, lambda_mi: float, proj_dim: int, backbone: str
) -> None:
    chosen, train = dac(task, "dac-released"), PARAMS.run(task, "dac-released", 1).train
    assert (chosen.lambda_mi, chosen.proj_dim, train.backbone) == (lambda_mi, proj_dim, backbone)
    assert (chosen.labeled_views, chosen.feature_layernorm) == (2, True)
    assert (chosen.score_form, chosen.lambda_kd) == ("released", 1.5)
    assert train.pool_includes_labeled


@pytest.mark.parametrize(
    ("method", "lambda_mi", "lambda_kd", "rejection"),
    [
        ("dac-heads", 0.0, 0.0, False),
        ("dac-heads-mi", 0.5, 0.0, False),
        ("dac-heads-mi-kd", 0.5, 1.5, False),
        ("dac-heads-mi-rejection", 0.5, 0.0, True),
        ("dac", 0.5, 1.5, True),
    ],
)
def test_ablation_rows_are_those_of_table_3(
    method: str, lambda_mi: float, lambda_kd: float, rejection: bool
) -> None:
    chosen = dac(ON_CIFAR100, method)
    found = (chosen.lambda_mi, chosen.lambda_kd, chosen.rejection)
    assert found == (lambda_mi, lambda_kd, rejection)


@pytest.mark.parametrize(
    ("data", "classes", "side", "size", "mean"),
    [
        ("cifar10", 10, 32, 32, (0.485, 0.456, 0.406)),
        ("cifar100", 100, 32, 32, (129.3 / 255, 124.1 / 255, 112.4 / 255)),
        ("imagenet30", 30, 256, 224, (0.485, 0.456, 0.406)),
        ("semi-inat-2021", 810, 256, 224, (0.4732, 0.4828, 0.3779)),
    ],
)
def test_data_sets_have_the_published_sizes_and_means(
    data: Any, classes: int, side: int, size: int, mean: tuple[float, ...]
) -> None:
    found = PARAMS.file.prepare[data]
    assert (found.num_classes, found.side, found.size) == (classes, side, size)
    assert found.mean == pytest.approx(mean, abs=1e-6)


def test_task_names_end_in_the_number_of_labels() -> None:
    for name, task in PARAMS.file.tasks.items():
        if task.data in ("cifar10", "cifar100", "digits") and task.num_known:
            _, known, labels, *_ = name.split("-")
            assert (int(known), int(labels)) == (
                task.num_known,
                task.num_known * (task.labels_per_class or 0),
            )


# --- resolving --------------------------------------------------------------------------------


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
    raw = copy.deepcopy(RAW)
    raw["tasks"]["cifar-6-30"]["train"] = {"lr": 0.1, "mu": 3}
    raw["methods"]["dac"]["train"] = {"mu": 5, "batch": 8}
    raw["methods"]["dac"]["train_by_data"] = {"cifar10": {"batch": 16}}
    train = params.parse(raw, PATH).run("cifar-6-30", "dac", 1).train
    assert (train.lr, train.mu, train.batch, train.momentum) == (0.1, 5, 16, 0.9)


def test_bases_are_laid_under_key_by_key_and_pools_replaced_whole() -> None:
    raw = copy.deepcopy(RAW)
    raw["tasks"]["derived"] = {
        "base": "cifar-50-500-subset-3",
        "pool": {"size": 10_000, "outlier_share": 0.5},
    }
    task = params.parse(raw, PATH).task("derived")
    assert task.labels_per_class == 10
    assert task.pool is not None and task.pool.draw is None
    assert dac("digits-6-30", "dac-released").bank_batches == 16  # from dac's by_data


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


def test_parameters_load_quickly_and_without_torch() -> None:
    code = f"""
import sys, time
import dac.params
from pathlib import Path
assert "torch" not in sys.modules
dac.params.load(Path({str(PATH)!r}))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PATH.parent)
    started = time.process_time()
    params.load(PATH)
    assert time.process_time() - started < 0.5  # measured: 0.07 s


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
            "'1e-3' is a text, expected a number (YAML wants 1.0e-3, not 1e-3)",
        ),
        ("train/defaults/lr", 0, "input should be greater than 0, found 0"),
        ("train/defaults/evaluate_every", 0, "input should be greater than 0, found 0"),
        ("train/by_data/digits/steps_per_epoch", -1, "input should be greater than 0, found -1"),
        ("train/by_data/digits", 5, "expected keys with values, found 5"),
        ("prepare/cifar10/size", 33, "33 is more than the stored side of 32"),
        ("prepare/cifar10/pad", 32, "32 cannot be reflected at a side of 32"),
        ("download/timeout_seconds", INF, "input should be a finite number, found inf"),
        ("download", None, "expected keys with values, found None"),
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
            "a pool is drawn with its labels; remove it or the labeled_list",
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
        ("aggregate/tables/table1/seeds", (1, 2, 1), "one stands twice in [1, 2, 1]"),
        ("figures/drawn/fig06/seeds", (), "is empty; name at least one"),
        (
            "plan/threads",
            {"digits": 1},
            "lacks cifar10, cifar100, imagenet30, semi-inat-2021, folder; add a number",
        ),
        (
            "plan/step_over_floor",
            {name: 1.0 for name in SETTINGS if name not in ("osp", "ssb")},
            "lacks osp, ssb; add a number",
        ),
        (
            "methods/dac/settings/objective",
            "fixmach",
            "'fixmach' does not exist under methods; did you mean 'fixmatch'?",
        ),
        (
            "methods/dac/by_data/digits/objective",
            "labeled-only",
            "'labeled-only' is labeled-only; DAC stands on mixmatch, fixmatch, comatch, "
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
        ((2, 3, 4, 5, 6), "lists 5 different classes, num_known says 6"),
        ((2, 3, 4, 5, 6, 6), "lists 5 different classes, num_known says 6"),
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
    assert named | {"all"} | STAGE_TARGETS == params_results.TAKEN


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
        (49, 0.1, "49 images are less than one per class"),
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
        "tasks.folder: folder brings its own labels: known_rule all, no labels or pool"
    ]


def test_a_task_on_data_that_prepare_does_not_describe_is_refused() -> None:
    assert faults(lambda raw: raw["prepare"].pop("semi-inat-2021")) == [
        "tasks.semi-inat.data: 'semi-inat-2021' has no entry under prepare; add one there"
    ]


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


@pytest.mark.parametrize("place", number_places(RAW))
def test_nan_is_refused_at_every_number(place: str) -> None:
    assert any(place.replace("/", ".") in line for line in faults(setting(place, NAN)))


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


def test_an_inherited_fault_is_reported_where_it_is_written() -> None:
    assert faults(setting("methods/dac/settings/head_tau", 1.95)) == [
        "methods.dac.settings.head_tau: input should be less than or equal to 1, found 1.95"
    ]
    assert faults(setting("methods/dac-released/settings/head_tau", 2.0)) == [
        "methods.dac-released.settings.head_tau: input should be less than or equal to 1, found 2.0"
    ]
    assert faults(setting("tasks/cifar-50-250/num_known", 51)) == [
        "tasks.cifar-50-250.num_known: no such split: 51 is not a multiple of 5"
    ]


def test_a_fault_written_twice_is_reported_twice() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["methods"]["dac"]["settings"]["head_tau"] = 1.95
        raw["methods"]["dac-released"]["settings"]["head_tau"] = 1.95

    assert [line.split(":")[0] for line in faults(change)] == [
        "methods.dac.settings.head_tau",
        "methods.dac-released.settings.head_tau",
    ]


def test_a_fault_that_only_the_difference_causes_is_reported_at_the_difference() -> None:
    found = faults(setting("methods/fixmatch-control/method", "labeled-only"))
    assert found and all(line.startswith("methods.fixmatch-control.") for line in found)
    assert any("settings.lambda_u: unknown key" in line for line in found)


def test_a_base_that_does_not_exist_is_one_fault() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["tasks"]["cifar-50-500"]["base"] = "cifar-50-25"  # ten subsets derive from it

    assert faults(change) == [
        "tasks.cifar-50-500.base: 'cifar-50-25' does not exist; did you mean 'cifar-50-250'?"
    ]


def test_a_circle_of_bases_is_one_fault() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["methods"]["fixmatch"] = {"base": "fixmatch-released"}

    assert faults(change) == [
        "methods.fixmatch-released.base: fixmatch -> fixmatch-released -> fixmatch is a circle; "
        "remove one of these bases"
    ]
    assert faults(setting("methods/dac-heads/base", "dac-heads")) == [
        "methods.dac-heads.base: dac-heads -> dac-heads is a circle; remove one of these bases"
    ]


def test_names_that_cannot_be_folders_are_refused() -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["tasks"]["../escape"] = {"base": "digits-6-30"}

    (line,) = faults(change)
    assert line.startswith("tasks.../escape: the name '../escape' is not allowed")


JUNK = st.sampled_from(
    [None, "", "x", -1, 0, 10**30, NAN, INF, True, (), (1, "a"), {}, {"a": {"b": 1}}, {1: 2}]
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), junk=JUNK)
def test_junk_anywhere_is_a_clear_error_or_harmless(data: st.DataObject, junk: Any) -> None:
    raw = copy.deepcopy(RAW)
    inside: Any = raw
    while True:
        key = data.draw(st.sampled_from(sorted(inside)))
        if not isinstance(inside[key], dict) or not inside[key] or data.draw(st.booleans()):
            break
        inside = inside[key]
    inside[key] = junk
    try:
        params.parse(raw, PATH)
    except UserError as error:
        assert "fault(s)" in str(error)


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"suite: demo\nsuite: demo\n", "the key 'suite' stands twice"),
        (b"train:\n  a: 1\n  a: 2\n", "the key 'a' stands twice"),
        (b"suite: [demo\n", "cannot be read as YAML: .*line 2"),
        (b"suite: \t- x\n\t y", "cannot be read as YAML"),
        (b"suite: d\xe9mo\n", r"is not UTF-8 text \(byte 8\); save it as UTF-8"),
        (b"", "is empty, expected the sections suite, download"),
        (b"# only a comment\n", "is empty"),
        (b"- a\n- b\n", "holds a list, expected the sections"),
        (b"hello\n", "holds a str, expected the sections"),
        (b"suite: 2024-13-45\n", "cannot be read as YAML: month must be in"),
        (b"suite: &me [*me]\n", "contains itself"),
        (b"suite: !!python/object:os.system x\n", "could not determine a constructor"),
        (b"? [a, b]\n: c\n", "cannot be read as YAML"),
    ],
)
def test_a_file_that_is_not_parameters_gives_one_clear_message(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"(?s){path}.*{message}"):
        params.load(path)


def test_a_missing_file_says_where_to_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; run from the project's top folder"):
        params.load(tmp_path / "params.yaml")


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        params.load(tmp_path)


def test_yaml_merge_keys_still_work(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    text = PATH.read_text().replace(
        "semi-inat-2021: *at-224-px", "semi-inat-2021: {<<: *at-224-px, mu: 3}"
    )
    path.write_text(text)
    train = params.load(path).run("semi-inat", "dac", 1).train
    assert (train.mu, train.epochs) == (3, 100)


def test_a_file_survives_a_round_trip_through_yaml(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(PATH.read_text())))
    assert params.load(path).file == PARAMS.file


def test_a_variant_that_changes_a_setting_changes_it_on_every_data_set() -> None:
    assert PARAMS.run("digits-6-30", "dac", 1).method.lambda_mi == 0.1
    assert PARAMS.run("digits-6-30", "dac-heads", 1).method.lambda_mi == 0.0
    assert PARAMS.run("digits-6-30", "dac-released", 1).method.lambda_mi == 0.05
    assert PARAMS.run("semi-inat", "dac-heads", 1).method.num_heads == 6, "the rest is inherited"


def test_nesterov_without_momentum_is_refused_before_training() -> None:
    raw = copy.deepcopy(RAW)
    raw["tasks"]["digits-6-30"]["train"] = {"momentum": 0.0}
    with pytest.raises(UserError, match="Nesterov's step needs a momentum above 0"):
        params.parse(raw, PATH).run("digits-6-30", "dac", 1)


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("fixmatch", "start_epoch"),
        ("mtcf", "warmup_epochs"),
        ("mtcf", "history"),
        ("openmatch", "start_epoch"),
        ("safe-student", "warmup_epochs"),
        ("osp", "pruning_epoch"),
        ("ssb", "detector_epoch"),
        ("iomatch", "open_start_epoch"),
        ("dac", "warmup_epochs"),
    ],
)
def test_a_stage_that_training_ends_before_is_refused(method: str, setting: str) -> None:
    raw = yaml.safe_load(PATH.read_text())
    raw["methods"][method].setdefault("by_data", {})["digits"] = {setting: 20}
    raw["train"]["by_data"]["digits"] |= {"epochs": 20}
    found = params.parse(params._freeze(raw), PATH)
    with pytest.raises(UserError, match=f"20 epochs and {setting}: 20: a stage of the method"):
        found.run("digits-6-30", method, 1)


def test_a_stage_of_what_dac_stands_on_is_checked_too() -> None:
    raw = yaml.safe_load(PATH.read_text())
    raw["methods"]["fixmatch"].setdefault("by_data", {})["digits"] = {"start_epoch": 2}
    found = params.parse(params._freeze(raw), PATH)
    with pytest.raises(UserError, match=r"lower start_epoch under methods\.fixmatch\.by_data"):
        found.run("digits-6-30", "dac", 1)
