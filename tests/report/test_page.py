"""The report: complete, escaped, honest about what is missing, and the same twice."""

import json
import math
import os
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from fake_results import DOT, TOP, call, fake, write

from dac.io.files import write_json
from dac.report import page as page_module

VOID = {"meta", "br", "img", "path", "rect"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    return fake(tmp_path_factory.mktemp("demo"), "demo")


@pytest.fixture(scope="module")
def page(demo: Path) -> str:
    return write(demo, "demo", "--rulegraph", "rules.dot")


class Outline(HTMLParser):
    """Tags of a page: ids, links, addresses, and whether every tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.opened: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if values.get("id") else []
        self.links += [values["href"]] if values.get("href") else []
        if tag not in VOID:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


# --- the page -----------------------------------------------------------------------------------


def test_every_tag_is_closed_and_every_link_has_its_target(page: str) -> None:
    outline = Outline(page)
    assert outline.opened == []
    assert len(set(outline.ids)) == len(outline.ids)
    inside = [link for link in outline.links if link.startswith("#")]
    assert len(inside) == 10  # six sections, two tables, two figures
    assert {link[1:] for link in inside} <= set(outline.ids)


def test_nothing_on_the_page_lies_elsewhere(page: str) -> None:
    outline = Outline(page)
    addresses = [
        value
        for _, values in outline.tags
        for name, value in values.items()
        if name in ("src", "href", "srcset", "action", "data", "poster", "xlink:href")
    ]
    assert all(address and address.startswith(("#", "data:")) for address in addresses)
    assert not {"script", "link", "iframe", "object", "form"} & {tag for tag, _ in outline.tags}
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#dag-head"}


def test_people_who_do_not_see_the_page_can_read_it(page: str) -> None:
    tags = Outline(page).tags
    assert ("html", {"lang": "en"}) in tags
    assert all(values.get("alt") for tag, values in tags if tag == "img")
    assert all(values.get("scope") for tag, values in tags if tag == "th")
    assert sum(tag == "caption" for tag, _ in tags) == sum(tag == "table" for tag, _ in tags)
    levels = [int(tag[1]) for tag, _ in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_every_table_and_figure_is_there_with_its_files(page: str, demo: Path) -> None:
    tags = Outline(page).tags
    assert sum(tag == "img" for tag, _ in tags) == 2
    saved = {values["download"] for tag, values in tags if tag == "a" and "download" in values}
    tables = {
        f"{name}.{end}" for name in ("digits", "digits-pretrained") for end in ("csv", "md", "tex")
    }
    assert saved == tables | {"digits-consensus.pdf", "digits-heads.pdf"}
    assert (demo / "results/tables/digits.csv").read_text().splitlines()[1] in page
    assert "Nothing: every run is in, every table and figure is built." in page
    assert "Agreement of every pair of heads on test digits" in page


def test_costs_are_sums_of_time_and_maxima_of_memory(page: str) -> None:
    cells = ("12", "5 min", "32.5 s", "441.0 MB", "9,000 to 9,110")  # of twelve faked runs
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    assert f'<th scope="row">digits-6-30</th>{row}' in page


def terms(page: str, section: str) -> dict[str, str]:
    """The definition list of a section."""
    start = page.index(f'<section id="section-{section}"')
    listed = page[start : page.index("</dl>", start)]
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", listed, re.S)
    assert len(dict(found)) == len(found)
    return {term: " ".join(meaning.split()) for term, meaning in found}


def test_the_columns_of_the_suite_are_explained_once(page: str, tmp_path: Path) -> None:
    columns = terms(page, "tables")
    assert list(columns) == ["closed", "open", "open, inductive", "open, reject nothing", "AUROC"]
    assert columns["open"].startswith("Balanced accuracy over the known classes and one class")
    assert "never sees the test set" in columns["open, inductive"]
    assert "(n=2) after a value means that only two of its runs are there" in page
    assert set(terms(write(tmp_path, "paper"), "tables")) == {"closed", "open", "top-1", "top-5"}


def test_the_kinds_of_figures_are_explained_once(page: str, tmp_path: Path) -> None:
    kinds = terms(page, "figures")
    assert list(kinds) == ["histogram", "heatmap"]
    assert "inliers blue, outliers red-orange" in kinds["histogram"]
    assert "One color scale for inliers and outliers." in kinds["heatmap"]
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page, re.S)
    for kind, caption in zip(kinds, captions, strict=True):
        assert f"dac.figures.{kind}" in caption
        assert "inliers" not in caption
        assert "test digits" not in caption  # the title is the heading
    paper = write(tmp_path, "paper")
    assert paper.count("error bars are sample standard deviations") == 1  # of five such figures
    assert len(terms(paper, "figures")) == 5


def test_provenance_counts_runs_by_what_made_them(page: str) -> None:
    words = " ".join(Outline(page).words.split())
    assert "16 trained networks, 1 of them pre-training" in words
    assert "8275d26f1c+" in words  # changed code is marked
    seconds = sum(21.5 + number for number in range(15)) + 22.5
    assert f"{round(seconds / 60)} min of training" in words
    assert "Intel(R) Xeon(R) CPU @ 2.80GHz" in words
    assert "9,000 to 9,110" in words
    assert "numpy 2.4.6, pillow 13.0.0, torch 2.13.0, torchvision 0.28.0" in words
    assert "2026-11-04 14:00 UTC" in words  # of the newest run


def test_the_same_inputs_give_the_same_bytes(page: str, demo: Path) -> None:
    shuffled = re.sub(r"\b(\d+)(?=\[label)|(?<=\t)(\d+)(?= ->)|(?<=-> )(\d+)", r"9\g<0>", DOT)
    lines = shuffled.splitlines()
    (demo / "shuffled.dot").write_text("\n".join([*lines[:4], *reversed(lines[4:-1]), "}"]))
    assert write(demo, "demo", "--rulegraph", "shuffled.dot") == page
    dated = write(demo, "demo", "--rulegraph", "rules.dot", "--date", "<today>")
    assert dated == page.replace("2026-11-04 14:00 UTC", "&lt;today&gt;")


def test_boxes_name_the_jobs_of_the_suite(page: str) -> None:
    picture = page[page.index("<svg") : page.index("</svg>")]
    found = re.findall(
        r'class="name"[^>]*>([a-z]+)</text><text class="note"[^>]*>(\d+ jobs?)<', picture
    )
    assert dict(found)["train"] == "15 jobs"
    assert dict(found)["split"] == "6 jobs"
    assert dict(found)["pretrain"] == "1 job"
    assert dict(found)["table"] == "2 jobs"
    assert "all" not in dict(found)


# --- half of everything -------------------------------------------------------------------------


def test_a_page_of_nothing_says_what_to_run(tmp_path: Path) -> None:
    page = write(tmp_path, "paper")
    assert page.count("Not built yet:") == 16
    assert "snakemake --cores all table4</code>" in page
    assert "No run has finished yet." in page
    assert "none has finished" in page
    assert re.findall('class="name"[^>]*>([a-z]+)<', page) == [
        "download", "prepare", "split", "pretrain", "train", "evaluate", "aggregate", "figures",
    ]  # fmt: skip


def test_broken_files_and_missing_runs_are_named_and_not_fatal(tmp_path: Path) -> None:
    fake(tmp_path, "demo", every=5)
    run = tmp_path / "runs" / "digits-6-30" / "dac"
    (run / "seed1" / "run.json").write_text('{"run"')
    (run / "seed2" / "run.json").write_text("[]")
    (run / "seed3" / "run.json").write_text('{"training_seconds": "long", "provenance": 3}')
    (run / "seed3" / "metrics.json").write_text("{}")
    (tmp_path / "results/figures/digits-heads.png").write_bytes(b"")
    (tmp_path / "results/tables/digits.html").unlink()
    page = write(tmp_path, "demo")
    assert Outline(page).opened == []
    assert "Not built yet: <code>snakemake --cores all digits</code>" in page
    assert "Not built yet: <code>snakemake --cores all digits-heads</code>" in page
    words = Outline(page).words
    assert "digits-6-30/dac/seed1/run.json cannot be read" in words
    assert "digits-6-30/dac/seed2/run.json holds no record of a run" in words
    assert "digits-6-30/dac/seed3/metrics.json lacks" in words
    assert "Nothing: every run is in" not in words


@pytest.mark.parametrize("file", ["tables/digits.csv", "figures/digits-heads.png"])
def test_a_result_that_may_not_be_read_or_is_a_folder_is_one_message(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path, "demo")
    path, read = Path("results") / file, Path.read_bytes
    given = ("--suite", "demo", "--params", str(TOP / "params.yaml"))

    def denied(here: Path) -> bytes:
        if here == path:
            raise PermissionError(13, "Permission denied", str(here))
        return read(here)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", denied)
        said = call(tmp_path, "dac.report", *given, check=False)
    assert said.startswith(f"error: {path} cannot be read (Permission denied); fix its permissions")
    (tmp_path / path).unlink()
    (tmp_path / path).mkdir()
    said = call(tmp_path, "dac.report", *given, check=False)
    assert said.startswith(f"error: {path} cannot be read (Is a directory)")
    (tmp_path / path).rmdir()
    os.mkfifo(tmp_path / path)
    said = call(tmp_path, "dac.report", *given, check=False)
    assert said.startswith(f"error: {path} cannot be read (it is a pipe, expected a regular file)")
    assert not (tmp_path / "results/report.html").exists()


def test_a_page_never_takes_the_place_of_a_pipe(tmp_path: Path) -> None:
    fake(tmp_path, "demo")
    os.mkfifo(tmp_path / "page")
    given = ("--suite", "demo", "--params", str(TOP / "params.yaml"), "--out", "page")
    said = call(tmp_path, "dac.report", *given, check=False)
    assert said == "error: cannot write page: it is a pipe; give the name of a regular file\n"
    assert (tmp_path / "page").is_fifo()


def test_runs_of_other_parameters_do_not_count(tmp_path: Path) -> None:
    fake(tmp_path, "demo")
    path = tmp_path / "runs/digits-6-30/dac/seed1/metrics.json"
    content = json.loads(path.read_text())
    content["run"]["train"]["lr"] = 123.0
    path.write_text(json.dumps(content))
    words = Outline(write(tmp_path, "demo")).words
    assert "14 of 15 are in" in words
    assert "stale, not counted: digits-6-30/dac seed1" in words


def test_names_and_files_are_text_on_the_page(tmp_path: Path) -> None:
    """Titles, provenance, rule names and downloads; the tables escape their own titles."""
    evil = '<script>alert("x & y")</script><img src=http://192.0.2.1/x.png onerror=z>'
    raw = (TOP / "params.yaml").read_text()
    for title in ("Open-set digits, the demo", "Consensus of the heads on test digits"):
        assert f"title: {title}\n" in raw
        raw = raw.replace(f"title: {title}\n", f"title: '{evil}'\n")
    (tmp_path / "params.yaml").write_text(raw)
    fake(tmp_path, "demo")
    path = tmp_path / "runs/digits-6-30/dac/seed1/run.json"
    provenance = {"commit": "<b>1", "device": evil, "packages": {"<i>": evil}}
    write_json(path, json.loads(path.read_text()) | {"provenance": provenance})
    (tmp_path / "rules.dot").write_text('digraph {0[label = "<script>"]}')
    call(tmp_path, "dac.aggregate", "--suite", "demo", "--out", "results/tables")
    (tmp_path / "results/tables/digits.csv").write_text(evil)
    call(tmp_path, "dac.report", "--rulegraph", "rules.dot", "--suite", "demo", "--date", evil)
    page = (tmp_path / "results/report.html").read_text()
    outline = Outline(page)
    assert outline.opened == []
    assert not {"script", "b", "i"} & {tag for tag, _ in outline.tags}
    assert not any("onerror" in values for _, values in outline.tags)
    assert all(values["src"].startswith("data:") for tag, values in outline.tags if tag == "img")
    # twice in the contents, twice as a heading, in the table's caption, in the parameters, and once
    # each as device, package, CSV and date
    assert outline.words.count(evil) == 11
    assert all(word in outline.words for word in ("<b>1", "<i> "))
    assert page.count("&lt;script&gt;</text>") == 1  # the rule
    assert sum(evil in (values.get("alt") or "") for _, values in outline.tags) == 1


def test_words_for_numbers() -> None:
    seconds = (math.nan, 0.04, 119.94, 121.0, 7100.0, 7300.0, 4e6)
    assert [page_module.duration(each) for each in seconds] == [
        "unknown", "0.0 s", "119.9 s", "2 min", "118 min", "2.0 h", "1,111.1 h",
    ]  # fmt: skip


def test_numbers_that_nobody_wrote_down_are_unknown(tmp_path: Path) -> None:
    fake(tmp_path, "demo")
    for path in (tmp_path / "runs").rglob("run.json"):
        odd = {"training_seconds": True, "views_per_second": math.inf}
        write_json(path, {"run": {}, "peak_memory_bytes": 10**400, **odd})
    page = write(tmp_path, "demo")
    costs = page[page.index("<caption>Cost of training") :]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall("<tr>.*?</tr>", costs, re.S)]
    assert rows[1] == ["12", *4 * ["unknown"]]
    assert rows[3] == ["1", "22.5 s", "22.5 s", "431.0 MB", "9,010"]  # pre-training
    assert "2 commits</dd>" in page  # the unknown one, too


def test_a_missing_graph_is_named(tmp_path: Path) -> None:
    given = ["--params", str(TOP / "params.yaml"), "--rulegraph", "none.dot"]
    said = call(tmp_path, "dac.report", *given, check=False)
    assert said.startswith("error: rule graph none.dot cannot be read")
    assert "`snakemake all --rulegraph dot`" in said


# --- the rule -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_rule_draws_its_own_graph(demo: Path, tmp_path: Path) -> None:
    """A Snakemake inside a running one, which keeps its lock."""
    folder = tmp_path / "with space"
    shutil.copytree(demo, folder)
    (folder / "results" / "report.html").unlink(missing_ok=True)
    shutil.copy(TOP / "params.yaml", folder)
    (folder / "dac/results").mkdir(parents=True)
    shutil.copy(TOP / "dac/results/paper_values.csv", folder / "dac/results")
    command = ["--snakefile", str(TOP / "Snakefile"), "--cores", "1", "report"]
    call(folder, "snakemake", *command, "--allowed-rules", "report", "--workflow-profile", "none")
    page = (folder / "results" / "report.html").read_text()
    names = set(re.findall('class="name"[^>]*>([a-z]+)<', page))
    assert {"download", "split", "pretrain", "train", "evaluate", "table", "figure", "all"} <= names
    assert not list((folder / ".snakemake" / "incomplete").iterdir())
