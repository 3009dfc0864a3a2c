"""The documents are finished, and what they point at exists."""

import re
from pathlib import Path

import pytest

from dac import params, plan

TOP = Path(__file__).parents[1]
DOCUMENTS = [*TOP.glob("*.md"), *TOP.glob("docs/*.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_placeholder_is_left(path):
    assert not re.findall(r"(?:MEASURED|CHOSEN):\w+", path.read_text())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_modules_named_in_documents_exist(path):
    text = path.read_text()
    examples = {
        "dac/methods/entropy.py",
        "dac/data/stl10_files.py",
    }
    for name in set(re.findall(r"`(dac/[\w/]+\.py)`", text)) - examples:
        assert (TOP / name).exists(), name
    for module in re.findall(r"python -m (dac\.[\w.]+)", text):
        place = TOP / module.rstrip(".").replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def test_headings_named_in_code_comments_exist():
    headings = re.findall(r"^#+ (.+)$", (TOP / "docs/protocol.md").read_text(), re.MULTILINE)
    sources = [*TOP.glob("dac/**/*.py"), TOP / "params.yaml"]
    named = [
        heading
        for path in sources
        for heading in re.findall(r'protocol\.md,? "([^"]+)"', path.read_text())
    ]
    assert len(named) > 5
    assert not set(named) - set(headings)


def test_methods_and_tasks_named_in_the_readme_are_in_params_yaml():
    known = params.load(TOP / "params.yaml").file
    text = (TOP / "README.md").read_text()
    tasks, methods = re.findall(r"--task (\S+)", text), re.findall(r"--method (\S+)", text)
    assert tasks and set(tasks) <= set(known.tasks)
    assert methods and set(methods) <= set(known.methods)


def test_the_plan_in_the_readme_is_the_one_that_is_printed():
    described = plan.describe(params.load(TOP / "params.yaml"), "paper")
    assert described in (TOP / "README.md").read_text()
