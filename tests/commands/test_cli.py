"""The console script `dac`: every command is there, and a wrong one gets one message."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dac import cli

TOP = Path(__file__).parents[2]


def called(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dac", *words])
    try:
        return cli.main()
    except SystemExit as exit:
        return int(exit.code or 0)


def test_help_lists_every_command_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "--help") == 0
    text = capsys.readouterr().out
    for name, (module, about) in cli.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(about)}$", text, re.MULTILINE)
        assert find_spec(module), module


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: dac {name} ")


def test_every_module_that_is_a_command_is_listed() -> None:
    modules = {module for module, _ in cli.COMMANDS.values()}
    for path in (TOP / "dac").rglob("*.py"):
        is_command = '__name__ == "__main__"' in path.read_text() and path.name != "cli.py"
        parts = path.relative_to(TOP).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__main__")
        assert not is_command or name in modules, name


def test_a_command_gets_its_own_options_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "plan", "--suite", "demo") == 0
    assert "suite demo" in capsys.readouterr().out
    assert called(monkeypatch, "plan", "--suite", "dmo") == 2
    assert "did you mean 'demo'?" in capsys.readouterr().err


def test_an_unknown_command_is_one_message_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "trian") == 2
    assert capsys.readouterr().err == ("error: dac has no command 'trian'; did you mean 'train'?\n")
    assert called(monkeypatch) == 2
    assert "usage: dac COMMAND" in capsys.readouterr().out


def test_an_empty_path_is_not_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unset variable: --out "$FOLDER"."""
    run = ("--task", "digits-6-30", "--method", "dac", "--seed", "1")
    assert called(monkeypatch, "train", *run, "--out", "") == 2
    assert "argument --out: the path is empty" in capsys.readouterr().err
