"""paper_values.csv holds every number of the paper's Tables 1 to 6, under the names we use."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from dac.config import load
from dac.results.tables import PAPER_VALUES, published

PAPER = published()
PARAMS = load(Path(__file__).parents[2] / "params.yaml")

# Typed by hand from the paper: first and last rows and columns, marked cells, the odd ones between.
SPOT = [
    ("table1", "cifar-6-30", "labeled-only", "closed", 26.8, 4.9),
    ("table1", "imagenet-20-p5", "labeled-only", "closed", 55.8, 1.3),
    ("table1", "cifar-20-500", "simmatch", "closed", 63.8, 2.3),
    ("table1", "cifar-6-60", "osp", "closed", 82.3, 1.5),
    ("table1", "cifar-50-250", "uagreg", "closed", 55.3, 0.7),
    ("table1", "cifar-6-30", "dac", "closed", 89.7, 2.2),
    ("table1", "cifar-50-500", "dac", "closed", 65.4, 0.8),
    ("table1", "imagenet-20-p5", "dac", "closed", 92.1, 0.2),
    ("table2", "cifar-6-30", "mtcf", "open", 27.3, 4.2),
    ("table2", "imagenet-20-p5", "mtcf", "open", 43.5, 0.8),
    ("table2", "cifar-20-500", "osp", "open", 61.2, 1.0),
    ("table2", "cifar-6-30", "dac", "open", 70.1, 3.1),
    ("table2", "imagenet-20-p5", "dac", "open", 88.7, 0.5),
    ("table3", "cifar-50-500", "fixmatch", "closed", 59.8, None),
    ("table3", "cifar-50-500", "dac-heads", "open", 41.5, None),
    ("table3", "imagenet-20-p1", "dac-heads-mi", "closed", 75.3, None),
    ("table3", "imagenet-20-p1", "dac-heads-mi-kd", "open", 67.9, None),
    ("table3", "imagenet-20-p1", "dac-heads-mi-rejection", "open", 56.0, None),
    ("table3", "imagenet-20-p1", "dac", "open", 74.3, None),
    ("table4", "cifar-20-200", "mixmatch", "closed", 41.4, None),
    ("table4", "cifar-50-500", "mixmatch+dac", "closed", 62.4, None),
    ("table4", "cifar-20-500", "simmatch+dac", "closed", 66.5, None),
    ("table4", "cifar-50-1250", "softmatch+dac", "closed", 70.4, None),
    ("table5", "cifar-20-200-correlated", "fixmatch", "closed", 79.5, None),
    ("table5", "cifar-60-600-correlated", "safe-student", "open", 49.2, None),
    ("table5", "cifar-60-600-correlated", "dac", "open", 65.7, None),
    ("table6", "semi-inat", "labeled-only", "top-1", 12.10, None),
    ("table6", "semi-inat-pretrained", "simmatch", "top-5", 40.34, None),
    ("table6", "semi-inat", "uagreg", "top-5", 33.56, None),
    ("table6", "semi-inat-pretrained", "dac", "top-5", 41.12, None),
]


@pytest.mark.parametrize("spot", SPOT, ids=lambda spot: " ".join(spot[:4]))
def test_values_typed_by_hand_from_the_paper_are_there(spot):
    *place, mean, std = spot
    assert (PAPER[tuple(place)].mean, PAPER[tuple(place)].std) == (mean, std)


def test_every_table_has_as_many_values_as_the_paper_prints():
    counts = Counter(table for table, *_ in PAPER)
    assert counts == {
        "table1": 14 * 11,
        "table2": 8 * 11,
        "table3": 6 * 4 - 2,  # FixMatch without open-set values
        "table4": 6 * 4,
        "table5": 5 * 4 - 2,
        "table6": 8 * 4,
    }


def test_no_value_stands_twice():
    with PAPER_VALUES.open(newline="") as file:
        assert sum(1 for _ in csv.DictReader(file)) == len(PAPER) == 338


def test_the_names_are_those_of_the_tables_in_params_yaml():
    for table, task, method, heading in PAPER:
        wanted = PARAMS.file.aggregate.tables[table]
        assert task in wanted.tasks and method in wanted.methods and heading in wanted.metrics


def test_only_rows_that_are_ours_have_no_value_in_the_paper():
    ours = {"dac-released", "fixmatch-control"}
    for name in (f"table{n}" for n in range(1, 7)):
        printed = {method for table, _, method, _ in PAPER if table == name}
        assert set(PARAMS.file.aggregate.tables[name].methods) - printed <= ours


def test_deviations_stand_where_the_paper_prints_them():
    for (table, *_), value in PAPER.items():
        assert (value.std is not None) == (table in ("table1", "table2"))
        assert value.decimals == (2 if table == "table6" else 1)
        assert 0 < value.mean < 100


@pytest.mark.parametrize(
    ("table", "heading"), [("table3", "closed"), ("table3", "open"), ("table4", "closed")]
)
def test_the_paper_repeats_its_main_results_in_the_later_tables(table, heading):
    """Holds the columns of the tables against each other."""
    main = "table1" if heading == "closed" else "table2"
    repeated = [
        place[1:]
        for place in PAPER
        if place[0] == table and place[3] == heading and (main, *place[1:]) in PAPER
    ]
    assert len(repeated) == {"closed": 4, "open": 2}[heading] * (3 if table == "table4" else 1)
    for rest in repeated:
        assert PAPER[table, *rest].mean == PAPER[main, *rest].mean
