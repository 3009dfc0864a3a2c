"""Which runs a suite needs, and its named targets."""

from changed_params import PARAMS, changed, setting

from dac.config import suites
from dac.config.suites import Key

PAPER = suites.results(PARAMS, "paper")


def test_runs_are_every_task_with_every_method_and_seed() -> None:
    table = PARAMS.file.aggregate.tables["table3"]
    keys = suites.runs(table)
    assert len(keys) == len(set(keys)) == 2 * 7 * 3
    assert keys[0] == Key("cifar-50-500", "fixmatch", 1)
    assert str(keys[0].folder) == "cifar-50-500/fixmatch/seed1"


def test_a_run_of_several_tables_is_one_run() -> None:
    grids = [PAPER.tables["table1"], PAPER.tables["table2"]]
    first, both = suites.all_runs(grids[:1]), suites.all_runs(grids)
    assert first == both  # every open-set number comes from a run that Table 1 has


def test_the_paper_has_all_its_tables_and_figures() -> None:
    assert list(PAPER.tables) == [*(f"table{n}" for n in range(1, 7)), "variants"]
    assert list(PAPER.figures) == [f"fig{n:02}" for n in (1, 2, 5, 6, 7, 8, 9, 10, 11)]


def test_the_paper_takes_967_runs() -> None:
    assert len(suites.all_runs(PAPER.grids().values())) == 967


def test_every_method_of_the_paper_is_in_its_table() -> None:
    names = set(PAPER.tables["table1"].methods) - {"dac-released"}
    assert len(names) == 14
    assert set(PAPER.tables["table2"].methods) <= names | {"dac-released"}


def test_targets_name_stages_tables_figures_and_tasks() -> None:
    demo = suites.results(PARAMS, "demo")
    targets = suites.targets(PARAMS, demo)
    assert targets["data"] == ["data/prepared/digits/meta.json"]
    assert targets["digits"] == ["results/tables/digits.md"]
    assert targets["digits-heads"] == ["results/figures/digits-heads.pdf"]
    assert len(targets["digits-6-30"]) == 3 * (15 + 3)  # every method, three compositions
    assert targets["pretraining"] == ["pretrained/digits/small-cnn/run.json"]
    assert len(targets["splits"]) == 6
    assert targets["summary"] == ["results/summary/demo/runs.csv"]


def test_only_some_figures_need_the_outputs_of_every_image() -> None:
    runs = suites.targets(PARAMS, PAPER)["runs"]
    outputs = [path for path in runs if path.endswith("outputs.json")]
    assert len(outputs) == 10 + 4  # Fig. 2: ten models; Fig. 5: four panels
    assert len(runs) == len(set(runs))


def test_pretraining_is_shared_by_methods_and_seeds() -> None:
    keys = suites.runs(PAPER.tables["table6"])
    origins = {suites.pretraining_of(PARAMS, key) for key in keys}
    backbones = sorted(origin.backbone for origin in origins if origin)
    assert None in origins and backbones == ["resnet18", "resnet18-released"]


def test_a_new_seed_adds_only_its_runs() -> None:
    more = changed(setting("aggregate/tables/digits/seeds", (1, 2, 3, 4)))
    before = suites.all_runs(suites.results(PARAMS, "demo").grids().values())
    after = suites.all_runs(suites.results(more, "demo").grids().values())
    assert set(after) - set(before) == {
        Key("digits-6-30", method, 4) for method in PARAMS.file.aggregate.tables["digits"].methods
    }


def test_figures_may_be_asked_for_without_their_zero() -> None:
    targets = suites.targets(PARAMS, PAPER)
    assert targets["fig8"] == targets["fig08"] and "fig11" in targets
