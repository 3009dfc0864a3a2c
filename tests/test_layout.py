"""The rooms of the package: what lies where, and that imports go in one direction only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PACKAGE = TOP / "dac"
ROOMS = (  # a room imports from itself and from those before it
    "io",
    "config",
    "pieces",
    "augment",
    "data",
    "models",
    "losses",
    "methods",
    "runs",
    "evaluation",
    "training",
    "results",
    "figures",
    "report",
    "workflow",
    "commands",
)
SIDE_BY_SIDE = {"results": set(), "figures": set(), "report": {"results"}}
"""Rooms of one level, and which of the others each may read."""
PIECES = ("consensus", "otsu", "metrics")
COMMANDS = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", *PIECES}
MAX_FILES, MAX_LINES = 15, 250
LAZY = ("sklearn", "scipy", "pandas", "seaborn", "umap", "torchvision", "matplotlib", "snakemake")
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    """dac.methods.step -> methods, dac.otsu -> pieces, dac.train -> commands."""
    first = module.split(".")[1] if "." in module else "__init__"
    if first in PIECES:
        return "pieces"
    return first if (PACKAGE / first).is_dir() else "commands"


def module_of(path: Path) -> str:
    parts = path.relative_to(TOP).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(path: Path) -> list[str]:
    """Modules of the package that a file imports anywhere, also inside functions."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} has a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            are_modules = [name for name in names if is_module(name)]
            found += are_modules or [node.module]
    return [name for name in found if name.split(".")[0] == "dac"]


def is_module(name: str) -> bool:
    place = TOP.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def may_import(importer: str, other: str) -> bool:
    if importer == other:
        return importer != "commands"  # no stage imports another stage
    if importer in SIDE_BY_SIDE and other in SIDE_BY_SIDE:
        return other in SIDE_BY_SIDE[importer]
    return ROOMS.index(other) < ROOMS.index(importer)


@pytest.mark.parametrize("path", FILES, ids=lambda path: module_of(path))
def test_imports_go_in_one_direction(path: Path) -> None:
    importer = room_of(module_of(path))
    for name in imported(path):
        if name not in ("dac", module_of(path)):
            assert may_import(importer, room_of(name)), f"{module_of(path)} imports {name}"


def test_an_upward_import_and_a_stage_that_imports_a_stage_would_be_found() -> None:
    assert not may_import("losses", room_of("dac.methods.base"))
    assert not may_import("commands", room_of("dac.train"))
    assert not may_import("results", room_of("dac.figures.theme"))
    assert may_import("training", room_of("dac.otsu"))
    assert "dac.models.ema" in imported(PACKAGE / "methods" / "step.py")


def test_every_room_is_known_and_has_a_sentence_about_itself() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == set(ROOMS) - {"pieces", "commands"}
    for folder in folders:
        assert ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))


def test_few_files_lie_directly_in_the_package() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MAX_FILES


def test_no_file_is_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in FILES}
    assert not {str(path): count for path, count in lines.items() if count > MAX_LINES}


def test_tests_mirror_the_rooms() -> None:
    rooms = {path.name for path in (TOP / "tests").iterdir() if path.is_dir()}
    assert rooms - {"__pycache__"} == {*ROOMS, "support", "benchmarks", "fuzz", "gpu"} - {"pieces"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("dac.train, dac.training.run, dac.data.run_data, dac.runs.pretrained", LAZY),  # in main
        ("dac.evaluate", LAZY),
        ("dac.plan", ("torch", "numpy", *LAZY)),
        ("dac.cli", ("torch", "numpy", "pydantic", "yaml", *LAZY)),
    ],
)
def test_starts_import_nothing_that_they_do_not_use(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(absent) & set(done.stdout.split())
