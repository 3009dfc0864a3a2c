"""Entries with a `base`: what is inherited, and where a fault of a base is reported."""

from typing import Any

from changed_params import PARAMS, Change, changed, faults, setting

from dac.config import DacSettings
from dac.config.bases import MOST_BASES


def test_bases_are_laid_under_key_by_key_and_pools_replaced_whole() -> None:
    derived = {"base": "cifar-50-500-subset-3", "pool": {"size": 10_000, "outlier_share": 0.5}}
    task = changed(setting("tasks/derived", derived)).task("derived")
    assert task.labels_per_class == 10
    assert task.pool is not None and task.pool.draw is None
    released = PARAMS.run("digits-6-30", "dac-released", 1).method
    assert isinstance(released, DacSettings)
    assert released.bank_batches == 16  # from dac's by_data


def test_a_variant_that_changes_a_setting_changes_it_on_every_data_set() -> None:
    assert PARAMS.run("digits-6-30", "dac", 1).method.lambda_mi == 0.1
    assert PARAMS.run("digits-6-30", "dac-heads", 1).method.lambda_mi == 0.0
    assert PARAMS.run("digits-6-30", "dac-released", 1).method.lambda_mi == 0.05
    assert PARAMS.run("semi-inat", "dac-heads", 1).method.num_heads == 6, "the rest is inherited"


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
        "methods.fixmatch-released.base: fixmatch -> fixmatch-released -> fixmatch is a cycle; "
        "remove one of these bases"
    ]
    assert faults(setting("methods/dac-heads/base", "dac-heads")) == [
        "methods.dac-heads.base: dac-heads -> dac-heads is a cycle; remove one of these bases"
    ]


def chain(length: int, last: dict[str, Any]) -> Change:
    """Tasks t0 to t(length - 1), each with the next as its base; the last is given."""

    def change(raw: dict[str, Any]) -> None:
        raw["tasks"] |= {f"t{i}": {"base": f"t{i + 1}"} for i in range(length - 1)}
        raw["tasks"][f"t{length - 1}"] = last

    return change


def test_a_long_chain_of_bases_is_merged_from_its_end() -> None:
    task = {"base": "digits-6-30", "labels_per_class": 7}
    found = changed(chain(MOST_BASES, task)).task("t0")
    assert (found.labels_per_class, found.num_known) == (7, 6)


def test_an_endless_chain_of_bases_is_one_fault() -> None:
    assert faults(chain(3000, {"base": "digits-6-30"})) == [
        "tasks.t2899.base: more than 100 bases, one above another; write this entry out"
    ]


def test_a_long_circle_of_bases_is_one_short_fault() -> None:
    (line,) = faults(chain(3000, {"base": "t0"}))
    assert line.startswith("tasks.t2999.base: t0 -> t1 -> t2 ")
    assert line.endswith("... is a cycle; remove one of these bases")
    assert len(line) < 1000
