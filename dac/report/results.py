"""The tables and figures of the page, each with its files; one that is not built says how to."""

import struct
from collections.abc import Mapping

from jinja2 import Template

from dac import grid
from dac.report.inputs import PNG_HEADER, Page
from dac.report.markup import (
    clean,
    data_address,
    details,
    download,
    prose,
    scrolling,
    text,
    verbatim,
)
from dac.settings import Figure, Grid

SHOWN = 0.6  # CSS pixels per pixel of a figure: drawn at 200 dpi, read at 120


def tables(page: Page) -> str:
    intro = f"<p>{prose(page.captions['table'])}</p>\n" if "table" in page.captions else ""
    return (
        intro
        + "\n".join(_table(page, name) for name in page.results.tables)
        + _none(page.results.tables, "tables")
    )


def figures(page: Page) -> str:
    drawn = page.results.figures
    return "\n".join(_figure(page, name, f) for name, f in drawn.items()) + _none(drawn, "figures")


def _none(grids: Mapping[str, Grid], what: str) -> str:
    return "" if grids else f"<p>This suite has no {what}.</p>"


def _table(page: Page, name: str) -> str:
    files = page.tables.get(name, {})
    if "html" not in files:
        inside = _not_built(name)
    else:
        inside = scrolling(f"Table {name}", clean(files["html"].decode(errors="replace")))
        links = [download(f"{name}.{e}", files[e]) for e in ("csv", "md", "tex") if e in files]
        inside += f'\n<p class="downloads">Download: {" ".join(links)}</p>' if links else ""
        if "csv" in files:
            numbers = verbatim(files["csv"].decode(errors="replace"))
            inside += "\n" + details("The numbers as CSV", numbers)
    return _result("table", name, page.results.tables[name], inside)


def _figure(page: Page, name: str, figure: Figure) -> str:
    files = page.figures.get(name, {})
    if "png" not in files:
        return _result("figure", name, figure, _not_built(name))
    width, height = struct.unpack(">II", files["png"][PNG_HEADER - 8 : PNG_HEADER])
    seeds = f"seed{'s' if len(figure.seeds) > 1 else ''} {', '.join(map(str, figure.seeds))}"
    methods = ", ".join(grid.existing(page.params, figure))
    of_runs = f"{', '.join(figure.tasks)}; {methods}; {seeds}"
    alt = text(f"{figure.title} ({figure.kind}): {of_runs}")
    image = (
        f'<img src="{data_address("image/png", files["png"])}" width="{round(SHOWN * width)}"'
        f' height="{round(SHOWN * height)}" alt="{alt}">'
    )
    words = prose(_rendered(page.captions.get("figure", ""), figure.kind))
    caption = f'{text(figure.title)}. {words} <span class="runs">{text(of_runs)}</span>'
    link = download(f"{name}.pdf", files["pdf"]) if "pdf" in files else ""
    inside = f"<figure>{image}\n<figcaption>{caption}</figcaption></figure>"
    inside += f'\n<p class="downloads">Download: {link}</p>' if link else ""
    return _result("figure", name, figure, inside)


def _rendered(caption: str, kind: str) -> str:
    """A caption is a template, as in Snakemake's own report: figures differ by `params.kind`."""
    return Template(caption).render(snakemake={"params": {"kind": kind}})


def _result(kind: str, name: str, described: Grid, inside: str) -> str:
    return (
        f'<section id="{kind}-{text(name)}" aria-labelledby="heading-{kind}-{text(name)}">\n'
        f'<h3 id="heading-{kind}-{text(name)}">{text(described.title)} '
        f"<code>{text(name)}</code></h3>\n{inside}\n</section>"
    )


def _not_built(name: str) -> str:
    command = text(f"snakemake --cores all {name}")
    return f'<p class="missing">Not built yet: <code>{command}</code></p>'
