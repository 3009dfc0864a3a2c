"""Text tables: columns padded to their widest cell.

tabulate, which is in the environment, is not used: it adds two spaces to every header unless one of
its globals is changed, and the wrapper around it was longer than this.
"""

from collections.abc import Sequence


def text_table(
    rows: Sequence[Sequence[str]],
    *,
    rule: bool = False,
    right: bool = False,
    edges: tuple[str, str, str] = ("", "  ", ""),
) -> str:
    """Return lines of aligned cells; the first row is the header.

    `rule` draws dashes below the header, `right` aligns all columns but the first to the right, and
    `edges` are the strings before, between and after the cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [rows[0], *([["-" * width for width in widths]] if rule else []), *rows[1:]]
    first, between, last = edges

    def padded(place: int, cell: str) -> str:
        return cell.rjust(widths[place]) if right and place else cell.ljust(widths[place])

    return "\n".join(
        (first + between.join(padded(*cell) for cell in enumerate(line)) + last).rstrip()
        for line in lines
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    return text_table(rows, rule=True, edges=("| ", " | ", " |"))
