"""A comparison as CSV, Markdown, LaTeX and HTML: the same words, the same bytes for the same runs.

Wide tables are cut into panels in Markdown and LaTeX, so that they fit a screen and a
page; HTML keeps one table.
"""

import html
import re
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from dac.io.files import csv_text
from dac.io.text_table import markdown_table, text_table
from dac.results.tables import BEST, DASH, SECOND, Column, Comparison, Shown, panels

CSV_HEADER = (
    "table", "task", "method", "heading", "mean", "std", "n", "expected_n",
    "paper", "paper_std", "difference",
)  # fmt: skip
COLUMNS_WITH_PAPER, COLUMNS_ALONE = 4, 6  # of a panel; brackets double the width of a cell
TEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    DASH: "--",
}


def caption(table: Comparison) -> str:
    """Title, what the numbers are, how many seeds: a table must explain itself."""
    seeds, tasks = _seeds(table), table.tasks()
    where = f" on {tasks[0]}" if len(tasks) == 1 else ""
    what = f"{table.headings()[0]} in percent" if _has_one_heading(table) else "percent"
    sentences = [
        " ".join(table.title.split()).rstrip("."),
        f"Mean ± sample standard deviation over {seeds}{where}, {what}; n where fewer are in",
    ]
    if len(table.rows) > 1:
        sentences.append("Best mean of a column bold, second underlined")
    if table.has_paper:
        sentences.append("In brackets the paper's value and the difference (ours - paper)")
    return ". ".join(sentences) + "."


def _seeds(table: Comparison) -> str:
    return "1 seed" if table.num_seeds == 1 else f"{table.num_seeds} seeds"


# --- CSV --------------------------------------------------------------------------------------


def to_csv(table: Comparison) -> str:
    return csv_text(CSV_HEADER, _csv_rows(table))


def _csv_rows(table: Comparison) -> Iterable[list[Any]]:
    for method, cells in table.rows.items():
        for column, cell in zip(table.columns, cells, strict=True):
            paper = cell.paper
            published = (None, None) if paper is None else (paper.mean, paper.std)
            numbers = [_rounded(cell.mean), _rounded(cell.std), cell.n, cell.expected]
            named = [table.name, column.task, method, column.heading]
            yield [*named, *numbers, *published, _rounded(cell.difference)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4) + 0.0


# --- Markdown ---------------------------------------------------------------------------------


def to_markdown(table: Comparison) -> str:
    """Panels of aligned columns, which also read well in a terminal."""
    shown = table.shown()
    parts = [f"**{table.name}.** {_markdown_text(caption(table))}"]
    for chosen in _panels(table):
        header = ["method", *(_one_line(table, table.columns[i]) for i in chosen)]
        lines = [[m, *(_markdown_cell(cells[i]) for i in chosen)] for m, cells in shown.items()]
        parts.append(markdown_table([[_markdown_text(word) for word in header], *lines]))
    return "\n\n".join(parts) + "\n"


def _panels(table: Comparison) -> list[list[int]]:
    return panels(table.columns, COLUMNS_WITH_PAPER if table.has_paper else COLUMNS_ALONE)


def _has_one_heading(table: Comparison) -> bool:
    return len(table.headings()) == 1


def _one_line(table: Comparison, column: Column) -> str:
    """The shortest heading that tells the columns apart."""
    if _has_one_heading(table):
        return column.task
    return column.heading if len(table.tasks()) == 1 else f"{column.task} {column.heading}"


def _markdown_cell(cell: Shown) -> str:
    mark = {BEST: "**{}**", SECOND: "<ins>{}</ins>"}.get(cell.rank, "{}")
    return " ".join(filter(None, (mark.format(cell.ours), cell.count, cell.paper)))


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\|*_`<])", r"\\\1", text)


# --- plain text ---------------------------------------------------------------------------------


def to_text(table: Comparison) -> str:
    """For a terminal: no markup, the best of a column marked with a star."""
    parts = [f"{table.name}: {' '.join(table.title.split())}"]
    for chosen in _panels(table):
        header = ["method", *(_one_line(table, table.columns[i]) for i in chosen)]
        rows = [[m, *(_text_cell(cells[i]) for i in chosen)] for m, cells in table.shown().items()]
        parts.append(text_table([header, *rows], rule=True))
    below = f"mean ± sample standard deviation over {_seeds(table)}, percent"
    if len(table.rows) > 1:
        below += "; * best of a column"
    if any(cell.count for cells in table.shown().values() for cell in cells):
        below += "; n: runs that are there"
    return "\n".join([*parts, below, ""])


def _text_cell(cell: Shown) -> str:
    star = " *" if cell.rank == BEST else ""
    return " ".join(filter(None, (cell.ours + star, cell.count, cell.paper)))


# --- LaTeX ------------------------------------------------------------------------------------


def to_tex(table: Comparison) -> str:
    """A float that needs only booktabs; the paper's values are below ours."""
    shown = table.shown()
    tabulars = [_tabular(table, shown, chosen) for chosen in _panels(table)]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex_text(caption(table))}}}",
        rf"\label{{tab:{table.name}}}",
        "\n\\par\\medskip\n".join(tabulars),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tabular(table: Comparison, shown: dict[str, list[Shown]], chosen: list[int]) -> str:
    columns = [table.columns[i] for i in chosen]
    body = []
    for method, cells in shown.items():
        body.append(_tex_row(tex_text(method), [_tex_ours(cells[i]) for i in chosen]))
        if table.has_paper:
            body.append(_tex_row("", [_tex_paper(cells[i]) for i in chosen]))
    lines = [
        rf"\begin{{tabular}}{{l{'c' * len(chosen)}}}",
        r"\toprule",
        *_tex_header(columns, _has_one_heading(table)),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def _tex_header(columns: list[Column], has_one_heading: bool) -> list[str]:
    if has_one_heading:
        return [_tex_row("method", [tex_text(column.task) for column in columns])]
    spans = [(task, len(list(same))) for task, same in groupby(columns, lambda c: c.task)]
    first = _tex_row("", [rf"\multicolumn{{{n}}}{{c}}{{{tex_text(task)}}}" for task, n in spans])
    rules, start = [], 2
    for _, width in spans:
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    return [first, "".join(rules), _tex_row("method", [tex_text(c.heading) for c in columns])]


def _tex_row(name: str, cells: list[str]) -> str:
    return " & ".join([name, *cells]) + r" \\"


def _tex_ours(cell: Shown) -> str:
    mark = {BEST: r"\textbf{%s}", SECOND: r"\underline{%s}"}.get(cell.rank, "%s")
    return " ".join(filter(None, (mark % tex_text(cell.ours), cell.count)))


def _tex_paper(cell: Shown) -> str:
    return rf"{{\scriptsize {re.sub(r'-(?=[0-9])', '$-$', tex_text(cell.paper))}}}"


def tex_text(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)


# --- HTML -------------------------------------------------------------------------------------


def to_html(table: Comparison) -> str:
    """A fragment: one table element for any page."""
    rows = [
        f'<tr><th scope="row">{html.escape(method)}</th>{"".join(map(_html_cell, cells))}</tr>'
        for method, cells in table.shown().items()
    ]
    lines = [
        f'<table id="{table.name}">',
        f"<caption>{html.escape(caption(table))}</caption>",
        *("<thead>", *_html_header(table), "</thead>"),
        *("<tbody>", *rows, "</tbody>"),
        "</table>",
    ]
    return "\n".join(lines) + "\n"


def _html_header(table: Comparison) -> list[str]:
    def heads(words: Iterable[str], kind: str = 'scope="col"') -> str:
        return "".join(f"<th {kind}>{html.escape(word)}</th>" for word in words)

    if _has_one_heading(table):
        return [f"<tr>{heads(['method', *table.tasks()])}</tr>"]
    headings = heads(column.heading for column in table.columns)
    span = f'scope="colgroup" colspan="{len(table.headings())}"'
    method = heads(["method"], 'scope="col" rowspan="2"')
    return [f"<tr>{method}{heads(table.tasks(), span)}</tr>", f"<tr>{headings}</tr>"]


def _html_cell(cell: Shown) -> str:
    mark = {BEST: "<strong>{}</strong>", SECOND: "<u>{}</u>"}.get(cell.rank, "{}")
    ours = " ".join(filter(None, (mark.format(html.escape(cell.ours)), cell.count)))
    paper = f"<br><small>{html.escape(cell.paper)}</small>" if cell.paper else ""
    return f"<td>{ours}{paper}</td>"


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_tex,
    "html": to_html,
}
