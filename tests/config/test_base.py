"""Bounds of the numbers and texts of `params.yaml`: absurd values are faults, generous ones not."""

from typing import Any

import pytest
from changed_params import RAW, faults, setting

from dac.config.messages import MOST_CHARACTERS


@pytest.mark.parametrize(
    ("place", "value", "most"),
    [
        ("methods/dac/settings/num_heads", 10**6, "1000"),
        ("methods/dac/settings/labeled_views", 10**9, "1000"),
        ("methods/dac/settings/proj_dim", 10**9, "1000000"),
        ("methods/dac/settings/bank_batches", 10**12, "1000000"),
        ("methods/dac/by_data/digits/bank_batches", 10**12, "1000000"),
        ("methods/dac/settings/warmup_epochs", 10**18, "100000"),
        ("methods/ssb/settings/hidden", 10**9, "1000000"),
        ("methods/comatch/settings/queue_batches", 10**9, "1000000"),
        ("methods/comatch/settings/num_projectors", 10**9, "1000"),
        ("methods/iomatch/settings/alignment_batches", 10**9, "1000000"),
        ("methods/osp/settings/bank_size", 10**9, "1000000"),
        ("methods/osp/settings/filter_every", 10**18, "100000"),
        ("methods/mtcf/settings/history", 10**18, "100000"),
        ("methods/fixmatch/settings/lambda_u", 1e300, "1000000"),
        ("prepare/digits/side", 10**9, "10000"),
        ("prepare/digits/num_classes", 10**9, "1000000"),
        ("train/defaults/batch", 10**9, "1000000"),
        ("train/defaults/mu", 10**9, "1000"),
        ("train/defaults/lr", 1e300, "100"),
        ("train/defaults/weight_decay", 1e308, "10"),
        ("train/defaults/epochs", 10**18, "100000"),
        ("train/defaults/epochs", 10**400, "100000"),
        ("train/by_data/digits/workers", 10**6, "1000"),
        ("pretrain/defaults/epochs", 10**18, "100000"),
        ("pretrain/defaults/hidden", 10**9, "1000000"),
        ("figures/histogram_bins", 10**9, "1000"),
        ("plan/threads/digits", 10**6, "1000"),
        ("plan/memory_mb/digits", 10**30, "1000000000000"),
    ],
)
def test_an_absurd_number_is_one_fault_at_its_place(place: str, value: Any, most: str) -> None:
    (line,) = faults(setting(place, value))
    start = f"{place.replace('/', '.')}: input should be less than or equal to {most}, found "
    found = line.removeprefix(start)
    assert found == repr(value) or (found.startswith("1000") and "..." in found)


def number_places(value: Any, place: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [f for k, v in value.items() for f in number_places(v, f"{place}/{k}".lstrip("/"))]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [(place, value)] if is_number else []


@pytest.mark.parametrize("section", [name for name in RAW if number_places(RAW[name])])
def test_every_number_has_an_upper_bound(section: str) -> None:
    places = number_places(RAW[section], section)

    def change(raw: dict[str, Any]) -> None:
        for place, value in places:
            setting(place, 10**30 if isinstance(value, int) else 1e300)(raw)

    unbounded = {"rejection_temperature"}  # .inf is hard rejection
    found = faults(change)
    for place, _ in places:
        if place.rpartition("/")[2] not in unbounded:
            assert any(line.startswith(f"{place.replace('/', '.')}:") for line in found), place


@pytest.mark.parametrize("size", [10**400, 10**30])
def test_a_size_beyond_every_float_is_a_fault_wherever_sizes_are_compared(size: int) -> None:
    places = {
        "prepare/cifar10/side": size,
        "prepare/cifar10/size": size,
        "prepare/cifar10/pad": size,
        "prepare/cifar10/train_per_class": size,
        "tasks/cifar-50-5000-mismatch-10/pool/size": size,
        "tasks/cifar-6-30/labels_per_class": size,
        "tasks/cifar-6-30/num_known": size,
        "tasks/cifar-20-100/num_known": size,
        "train/defaults/lr": size,
        "aggregate/tables/digits/seeds": (size,),
    }
    for place, value in places.items():
        assert any(
            line.startswith(place.replace("/", ".")) for line in faults(setting(place, value))
        )


@pytest.mark.parametrize("text", ["two\nlines", "a\ttab", "a\x00b", "a\x85b", "a\u2028b"])
def test_a_title_or_heading_with_a_control_character_is_refused(text: str) -> None:
    expected = f"expected one line without control characters, found {text!r}"
    for place in ("aggregate/tables/digits/title", "figures/drawn/fig08/title", "plan/gpu"):
        assert faults(setting(place, text)) == [f"{place.replace('/', '.')}: {expected}"]
    for place in ("aggregate/tables/digits/metrics", "figures/drawn/fig08/metrics"):
        (line,) = faults(setting(place, {text: "auroc"}))
        start = f"{place.replace('/', '.')}.{text!r}: the name {text!r} is not allowed; "
        assert line == f"{start}use one line without control characters"


def test_a_title_may_have_any_other_character() -> None:
    assert faults(setting("aggregate/tables/digits/title", "100 % | α_2 <b> “ß” \\ 図")) == []  # noqa: RUF001


def test_a_name_too_long_for_a_folder_is_refused() -> None:
    (line,) = faults(setting(f"tasks/{'a' * 300}", {"base": "digits-6-30"}))
    assert line.endswith("is too long; use at most 100 characters")
    assert len(line) < 4 * MOST_CHARACTERS
    assert faults(setting(f"tasks/{'a' * 100}", {"base": "digits-6-30"})) == []
