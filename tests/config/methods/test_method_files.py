"""The method behind a name or a path: its settings, its class, and what is wrong with its file."""

import re
from pathlib import Path
from typing import get_type_hints

import pytest
from changed_params import PARAMS, RAW, changed, faults, setting

from dac.config.methods import METHODS_FOLDER, SHIPPED, MethodSettings, settings_of
from dac.io.errors import UserError
from dac.methods.base import Method
from dac.methods.network import class_of

IMPORTS = """
from dac.config import FixMatchSettings, MethodSettings, Phase, ViewCounts
from dac.methods.base import Method
"""
SETTINGS = """
class ToySettings(MethodSettings):
    weight: float

    def phase(self, epoch):
        return Phase(shared=ViewCounts(labeled=self.labeled_views))
"""
TOY = """
class Toy(Method):
    settings: ToySettings
"""
SECOND = """
class Second(Method):
    settings: ToySettings
"""
VALUES = {"labeled_views": 1, "feature_layernorm": False, "weight": 0.5}
ONE_ANNOTATION = "has no annotation `settings: ...` with a subclass of"


@pytest.fixture
def toy(tmp_path: Path) -> str:
    path = tmp_path / "toy.py"
    path.write_text(IMPORTS + SETTINGS + TOY)
    return str(path)


# --- methods that ship ------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_method_is_its_file_with_one_class_for_its_settings(name: str) -> None:
    assert settings_of(name) is SHIPPED[name]
    run = next(
        run
        for entry in PARAMS.file.methods
        if type((run := PARAMS.run("digits-6-30", entry, 1)).method) is SHIPPED[name]
    )
    found = class_of(run.method)
    assert issubclass(found, Method)
    assert found.__module__ == f"dac.methods.{name.replace('-', '_')}"
    assert get_type_hints(found)["settings"] is SHIPPED[name]


def test_every_file_with_a_method_ships_under_a_name() -> None:
    text = {path.stem: path.read_text() for path in METHODS_FOLDER.glob("*.py")}
    files = {stem for stem in text if re.search(r"^class \w+\(Method\)", text[stem], re.MULTILINE)}
    assert files == {name.replace("-", "_") for name in SHIPPED}


# --- methods from a file ----------------------------------------------------------------------


def test_a_path_gives_the_settings_and_the_class_of_that_file(toy: str) -> None:
    model = settings_of(toy)
    assert model.__name__ == "ToySettings" and issubclass(model, MethodSettings)
    assert settings_of(toy) is model, "imported once"
    found = class_of(model(**VALUES))
    assert found.__name__ == "Toy" and issubclass(found, Method)


def test_an_entry_may_name_a_file(toy: str) -> None:
    entry = {"method": toy, "settings": VALUES, "by_data": {"digits": {"weight": 2.0}}}
    params = changed(setting("methods/toy", entry))
    runs = [params.run(task, "toy", 1) for task in ("cifar-6-60", "digits-6-30")]
    model = settings_of(toy)
    assert [run.method.model_dump() for run in runs] == [
        model(**VALUES).model_dump(),
        model(**VALUES | {"weight": 2.0}).model_dump(),
    ]
    assert runs[0].identity()["method"]["file"] == toy, "another file is another run"
    assert "file" not in params.run("digits-6-30", "dac", 1).identity()["method"]


def test_a_relative_path_begins_at_the_working_folder(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(toy).parent)
    assert settings_of("./toy.py") is settings_of(toy)


def test_settings_of_a_file_are_checked_like_those_that_ship(toy: str) -> None:
    entry = {"method": toy, "settings": VALUES | {"wieght": 1.0}}
    assert faults(setting("methods/toy", entry)) == [
        "methods.toy.settings.wieght: unknown key; did you mean 'weight'?"
    ]


def test_dac_wraps_a_file_only_if_it_weighs_its_samples(toy: str, tmp_path: Path) -> None:
    def wrapping(path: str) -> list[str]:
        def change(raw: dict) -> None:
            raw["methods"]["toy"] = {"method": path, "settings": VALUES}
            raw["methods"]["toy+dac"] = {"base": "dac", "settings": {"objective": "toy"}}

        return faults(change)

    (line,) = wrapping(toy)
    assert line.startswith(f"methods.toy+dac.settings.objective: 'toy' is {toy}; DAC wraps ")
    weighing = tmp_path / "weighing.py"
    weighs = SETTINGS.replace("    weight:", "    weighs_samples = True\n    weight:")
    weighing.write_text(IMPORTS + weighs + TOY)
    assert wrapping(str(weighing)) == []


def test_another_file_of_the_objective_is_another_run_of_dac(toy: str, tmp_path: Path) -> None:
    def identity(path: Path) -> dict:
        path.write_text(
            IMPORTS
            + SETTINGS.replace("    weight:", "    weighs_samples = True\n    weight:")
            + TOY
        )

        def change(raw: dict) -> None:
            raw["methods"]["toy"] = {"method": str(path), "settings": VALUES}
            raw["methods"]["toy+dac"] = {"base": "dac", "settings": {"objective": "toy"}}

        return changed(change).run("digits-6-30", "toy+dac", 1).identity()

    first, second = identity(tmp_path / "a.py"), identity(tmp_path / "b.py")
    assert first["objective"].pop("file") != second["objective"].pop("file")
    assert first == second


@pytest.mark.parametrize("name", ["method", "name", "file"])
def test_a_setting_may_not_have_a_name_that_the_run_uses(name: str, tmp_path: Path) -> None:
    path = tmp_path / "taken.py"
    path.write_text(IMPORTS + SETTINGS + f"    {name}: str\n" + TOY)
    with pytest.raises(
        UserError, match=f"ToySettings has the field '{name}', a name that is taken"
    ):
        settings_of(str(path))


WRONG = {
    "a file that raises": ("1 / 0", r"cannot be imported \(ZeroDivisionError: division by zero\)"),
    "a file with a slip": ("def f(:", r"cannot be imported \(SyntaxError"),
    "a file that ends the program": ("import sys; sys.exit(3)", r"\(SystemExit: 3\)"),
    "a file that needs a missing package": ("import no_such_package", "No module named 'no_such"),
    "no method": (IMPORTS + SETTINGS, "has 0 classes with an annotation"),
    "an imported method": ("from dac.methods.fixmatch import FixMatch", "has 0 classes"),
    "two methods": (IMPORTS + SETTINGS + TOY + SECOND, "has 2 classes with an annotation"),
    "no annotation": (IMPORTS + "class Toy(Method):\n    pass", "has 0 classes with an annotation"),
    "an annotation with a slip": (
        IMPORTS + "class Toy(Method):\n    settings: '1 +'",
        "annotations of .* cannot be read",
    ),
    "another annotation": (IMPORTS + "class Toy(Method):\n    settings: int", ONE_ANNOTATION),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_one_message_and_one_listed_fault(what: str, tmp_path: Path) -> None:
    content, message = WRONG[what]
    path = tmp_path / "wrong.py"
    path.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        settings_of(str(path))
    assert str(path) in str(caught.value)
    (line,) = faults(setting("methods/toy", {"method": str(path), "settings": VALUES}))
    assert line == f"methods.toy.method: {caught.value}"


def test_a_file_that_failed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "corrected.py"
    path.write_text("1 / 0")
    with pytest.raises(UserError):
        settings_of(str(path))
    path.write_text(IMPORTS + SETTINGS + TOY)
    assert settings_of(str(path)).__name__ == "ToySettings"


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "none.py"
    message = f"the file {str(path)!r} does not exist; give a path from {Path.cwd()}"
    with pytest.raises(UserError, match=re.escape(message)):
        settings_of(str(path))
    entry = {"method": str(path), "settings": VALUES}
    assert faults(setting("methods/toy", entry)) == [f"methods.toy.method: {message}"]


def test_an_unknown_name_is_one_listed_fault_with_the_nearest_valid_one() -> None:
    with pytest.raises(UserError, match="'fixmach' is not one of 'labeled-only', 'mixmatch'"):
        settings_of("fixmach")
    entry = RAW["methods"]["fixmatch"] | {"method": "fixmach"}
    (line,) = faults(setting("methods/new", entry))
    assert line.startswith("methods.new.method: 'fixmach' is not one of ")
    assert line.endswith("; did you mean 'fixmatch'?")


@pytest.mark.parametrize("name", ["base", "step", "__init__", ""])
def test_a_file_of_the_package_that_is_no_method_is_a_listed_fault(name: str) -> None:
    (line,) = faults(setting("methods/toy", {"method": name, "settings": VALUES}))
    assert line.startswith("methods.toy.method: ")


@pytest.mark.parametrize("name", ["a" * 5000, f"{'a' * 5000}.py", "a\0.py"])
def test_a_name_that_no_file_can_have_is_a_listed_fault(name: str) -> None:
    (line,) = faults(setting("methods/toy", {"method": name, "settings": VALUES}))
    assert line.startswith("methods.toy.method: ")


@pytest.mark.parametrize("name", ["../train", "parts/banks"])
def test_a_path_without_its_ending_is_a_listed_fault(name: str) -> None:
    assert len(faults(setting("methods/toy", {"method": name, "settings": VALUES}))) == 1


def test_an_annotation_that_does_not_exist_is_a_listed_fault(tmp_path: Path) -> None:
    path = tmp_path / "undefined.py"
    path.write_text("from __future__ import annotations\n" + IMPORTS + TOY)
    assert len(faults(setting("methods/toy", {"method": str(path), "settings": VALUES}))) == 1


def test_a_file_may_use_the_settings_of_a_shipped_method(tmp_path: Path) -> None:
    path = tmp_path / "reuse.py"
    path.write_text(IMPORTS + TOY.replace("ToySettings", "FixMatchSettings"))
    entry = RAW["methods"]["fixmatch"] | {"method": str(path)}
    settings = changed(setting("methods/toy", entry)).run("digits-6-30", "toy", 1).method
    assert class_of(settings).__name__ == "Toy", "another method would be trained, silently"
