"""The documents are finished, their links lead somewhere, and what they name exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dac import config, plan
from dac.cli import COMMANDS

TOP = Path(__file__).parents[1]
DOCUMENTS = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])
# Files that a reader is asked to write.
EXAMPLES = {"dac/methods/entropy.py", "dac/data/stl10.py", "tests/data/test_stl10.py"}


def headings(path: Path) -> set[str]:
    return set(re.findall(r"^#+ (.+?) *$", path.read_text(), re.MULTILINE))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub and MkDocs give to headings."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings(path))
    return {word.strip().replace(" ", "-") for word in words}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(TOP)))
def test_links_and_names_of_a_document_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", text):
        place = path.parent / target if target else path
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"
    for name in set(re.findall(r"`((?:dac|tests|benchmarks|workflow)/[\w/]+\.py)`", text)):
        assert name in EXAMPLES or (TOP / name).exists(), name
    for module in re.findall(r"python -m ((?:dac|benchmarks)[\w.]*)", text):
        place = TOP / module.rstrip(".").replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for command in re.findall(r"(?:^    |`)dac ([a-z][\w-]*)", text, re.MULTILINE):
        assert command in COMMANDS, command


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(TOP)))
def test_methods_and_tasks_of_a_document_are_in_params_yaml(path: Path) -> None:
    known = config.load(TOP / "params.yaml").file
    text = path.read_text()
    assert set(re.findall(r"--task ([\w-]+)", text)) <= {*known.tasks, "TASK", "stl10"}
    assert set(re.findall(r"--method ([\w+-]+)", text)) <= {*known.methods, "entropy"}


def test_sections_of_the_protocol_named_in_code_exist() -> None:
    sources = [*TOP.glob("dac/**/*.py"), *TOP.glob("tests/**/*.py"), TOP / "params.yaml"]
    text = "\n".join(path.read_text() for path in sources)
    text = re.sub(r"\n\s*#?\s*", " ", text)  # a citation may be broken over two lines
    cited = set(re.findall(r'docs/protocol/(\w+)\.md, "([^"]+)"', text))
    assert len(cited) > 15
    for name, heading in cited:
        assert heading in headings(TOP / "docs" / "protocol" / f"{name}.md"), (name, heading)
    for name in set(re.findall(r"docs/(?:protocol/)?[\w-]+\.md", text)):
        assert (TOP / name).exists(), name


def test_the_plan_in_the_documents_is_the_one_that_is_printed() -> None:
    described = plan.describe(config.load(TOP / "params.yaml"), "paper")
    assert described in (TOP / "docs" / "performance.md").read_text()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=TOP, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "architecture.html").exists()


def test_files_for_github_and_the_workflow_catalog_are_valid_yaml() -> None:
    forms = sorted((TOP / ".github").rglob("*.yml"))
    assert len(forms) >= 4
    for path in [*forms, TOP / ".snakemake-workflow-catalog.yml"]:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
    workflow = (TOP / ".github" / "workflows" / "ci.yml").read_text()
    assert ".ci/run" in workflow
    assert (TOP / ".ci" / "run").stat().st_mode & 0o100
