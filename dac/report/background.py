"""What stands behind the results: missing runs, the rule graph, provenance, parameters."""

from dac import aggregate, grid
from dac.report import runs
from dac.report.dag import chain, layout, to_svg
from dac.report.inputs import Page
from dac.report.markup import (
    Code,
    bytes_of,
    details,
    duration,
    scrolling,
    short_commit,
    table,
    text,
    verbatim,
)
from dac.report.runs import Cost
from dac.settings import Grid

STAGES = ("download", "prepare", "split", "pretrain", "train", "evaluate", "aggregate", "figures")
SHORT_HASH = 12


def missing(page: Page) -> str:
    notes = [*page.runs.faults, *grid.left_out(page.params, page.results.grids())]
    notes += aggregate.report(page.params, {}, page.runs.found, page.folder)
    rows = [_state(page, name, described) for name, described in page.results.grids().items()]
    header = ["result", "runs needed", "runs in", "built", "methods left out"]
    inside = table("Runs that every table and figure rests on", header, rows)
    if notes:
        listed = "".join(f"<li>{text(note)}</li>\n" for note in notes)
        return f'{inside}\n<ul class="notes">\n{listed}</ul>'
    if all(row[1] == row[2] and row[3] == "yes" for row in rows):
        return f"<p>Nothing: every run is in, every table and figure is built.</p>\n{inside}"
    return inside


def _state(page: Page, name: str, described: Grid) -> list[object]:
    keys = grid.runs(page.params, described)
    done = sum(key in page.runs.found.finished for key in keys)
    files = page.tables.get(name, {}).keys() | page.figures.get(name, {}).keys()
    absent = len(described.methods) - len(grid.existing(page.params, described))
    return [name, len(keys), done, "yes" if {"html", "png"} & files else "no", absent or ""]


# --- workflow -----------------------------------------------------------------------------------


def workflow(page: Page) -> str:
    graph, kind = page.graph, "Rules"
    if graph is None:
        graph, kind = chain(STAGES), "Stages"
    words = f"{kind} of the workflow and the jobs of each for this suite"
    order = "; ".join(f"{first} before {then}" for first, then in graph.edges)
    notes = {
        name: f"{count} job{'' if count == 1 else 's'}"
        for name, count in jobs(page).items()
        if name in graph.names
    }
    drawing = layout(graph, rightwards=page.graph is None)
    return f"<p>{words}.</p>\n{scrolling(words, to_svg(drawing, notes, words, order))}"


def jobs(page: Page) -> dict[str, int]:
    """By the name of a rule or a stage."""
    files = grid.targets(page.params, page.results)
    evaluated = [file for file in files["runs"] if file.endswith("metrics.json")]
    return {
        "download": len(files["downloads"]),
        "prepare": len(files["data"]),
        "split": len(files["splits"]),
        "pretrain": len(files["pretraining"]),
        "train": len(files["models"]),
        "evaluate": len(evaluated),
        "outputs": len(files["runs"]) - len(evaluated),
        "table": len(files["tables"]),
        "figure": len(files["figures"]),
        "figures": len(files["figures"]),
        "aggregate": len(files["summary"])
        + (len(files["tables"]) if page.graph is None else 0),  # the stage makes the tables, too
    }


# --- provenance ---------------------------------------------------------------------------------


def provenance(page: Page) -> str:
    if not page.runs.all_records:
        return "<p>No run has finished yet.</p>"
    total = runs.cost(page.runs.all_records)
    networks = len(page.runs.pretrained)
    also = f", {networks} of them pre-training" if networks else ""
    return "\n".join(
        [
            f"<p>{total.runs} trained networks{also}; {duration(total.seconds)} of training.</p>",
            _makers(page),
            _costs(page),
            details("Splits: which images were labeled", _splits(page)),
        ]
    )


def _makers(page: Page) -> str:
    rows = [
        [
            Code(short_commit(record.text("provenance.commit"))),
            count,
            record.text("provenance.device"),
            record.text("provenance.host"),
            record.text("provenance.python"),
            record.packages,
        ]
        for count, record in runs.makers(page.runs)
    ]
    caption = (
        "Code and machines that trained them; a + marks code that was changed and not committed"
    )
    return table(caption, ["commit", "runs", "device", "host", "Python", "packages"], rows, "words")


def _costs(page: Page) -> str:
    costs = runs.by_task(page.runs) | {
        f"pre-training {name}": runs.cost([record]) for name, record in page.runs.pretrained.items()
    }
    header = ["task", "runs", "training time", "longest run", "peak memory", "views per second"]
    return table("Cost of training", header, [[name, *_cost(cost)] for name, cost in costs.items()])


def _cost(cost: Cost) -> list[object]:
    speeds = cost.views_per_second
    words = "unknown" if speeds is None else " to ".join(dict.fromkeys(f"{v:,.0f}" for v in speeds))
    times = duration(cost.seconds), duration(cost.longest)
    return [cost.runs, *times, bytes_of(cost.peak_memory), words]


def _splits(page: Page) -> str:
    rows = [
        [task, seed, Code(digest[:SHORT_HASH]), count]
        for (task, seed, digest), count in runs.splits(page.runs).items()
    ]
    caption = (
        f"First {SHORT_HASH} digits of each split's hash; methods compare on equal splits only"
    )
    return table(caption, ["task", "seed", "split", "runs"], rows)


# --- parameters ---------------------------------------------------------------------------------


def parameters(page: Page) -> str:
    name = page.params.path.name
    return (
        f"<p>Every number of this suite, with its source, as it stands in <code>{text(name)}</code>"
        f" now.</p>\n{details(f'The whole of {name}', verbatim(page.parameters))}"
    )
