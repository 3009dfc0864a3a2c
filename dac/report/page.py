"""The page of a suite as one HTML text: no script, no address but in-page links and data.

Pure: everything was read before (inputs.py), so equal inputs give equal bytes.
"""

from collections.abc import Mapping

from dac.report import background, results, runs
from dac.report.inputs import Page
from dac.report.markup import duration, short_commit, text
from dac.report.style import CSS

PAPER = "Diversify and Conquer"
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"


def render(page: Page) -> str:
    sections = {
        "tables": ("Tables", results.tables(page)),
        "figures": ("Figures", results.figures(page)),
        "missing": ("What is missing", background.missing(page)),
        "workflow": ("Workflow", background.workflow(page)),
        "provenance": ("Provenance", background.provenance(page)),
        "parameters": ("Parameters", background.parameters(page)),
    }
    title = f"{PAPER}: results of the suite {page.results.suite}"
    body = "\n".join(
        f'<section id="section-{name}" aria-labelledby="heading-{name}">\n'
        f'<h2 id="heading-{name}">{text(heading)}</h2>\n{inside}\n</section>'
        for name, (heading, inside) in sections.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{text(title)}</title>
<style>
{CSS}
</style>
</head>
<body>
{_header(page)}
{_contents(page, {name: heading for name, (heading, _) in sections.items()})}
<main>
{body}
</main>
<footer><p>Written by <code>python -m dac.report --suite {text(page.results.suite)}</code> from the
files of this suite; everything on this page is inside this file.</p></footer>
</body>
</html>
"""


# --- head ---------------------------------------------------------------------------------------


def _header(page: Page) -> str:
    found = page.runs
    commits = runs.commits(found)
    code = short_commit(commits[0]) if len(commits) == 1 else f"{len(commits)} commits"
    facts = {
        "Newest run": page.date or "none has finished",
        "Code of the runs": code if commits else "none yet",
        "Runs": f"{len(found.found.finished)} of {len(found.needed)} are in",
        "Training time": duration(runs.cost(found.all_records).seconds),
    }
    listed = "".join(f"<div><dt>{k}</dt><dd>{text(v)}</dd></div>" for k, v in facts.items())
    return (
        f"<header>\n<h1>{PAPER}</h1>\n"
        f'<p class="lede">Open-set semi-supervised learning: the tables and figures of the suite '
        f'<code>{text(page.results.suite)}</code></p>\n<dl class="facts">{listed}</dl>\n</header>'
    )


def _contents(page: Page, headings: Mapping[str, str]) -> str:
    inner = {
        "tables": {f"table-{name}": t.title for name, t in page.results.tables.items()},
        "figures": {f"figure-{name}": f.title for name, f in page.results.figures.items()},
    }
    items = []
    for name, heading in headings.items():
        below = "".join(_link(to, title) for to, title in inner.get(name, {}).items())
        items.append(_link(f"section-{name}", heading, f"<ul>{below}</ul>" if below else ""))
    return (
        '<nav aria-labelledby="heading-contents"><h2 id="heading-contents">Contents</h2>'
        f"<ul>\n{''.join(items)}</ul></nav>"
    )


def _link(target: str, words: str, below: str = "") -> str:
    return f'<li><a href="#{text(target)}">{text(words)}</a>{below}</li>\n'
