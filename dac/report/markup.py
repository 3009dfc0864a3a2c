"""Small pieces of HTML for the report: escaped text, tables, links that carry their file.

Nothing reaches the page unescaped. Table fragments that other stages wrote are read tag by tag, and
only what a table may hold is written again, so that a page one sends around carries nothing else.
"""

import base64
import html
import re
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser

ALLOWED = {
    "table": (), "caption": (), "thead": (), "tbody": (), "tfoot": (), "tr": (),
    "th": ("scope", "colspan", "rowspan"), "td": ("colspan", "rowspan"),
    "strong": (), "em": (), "u": (), "small": (), "br": (), "code": (), "sub": (), "sup": (),
}  # fmt: skip
SILENT = ("script", "style")  # dropped with what is inside
FORMATS = {
    "csv": ("CSV", "text/csv"),
    "md": ("Markdown", "text/markdown"),
    "tex": ("LaTeX", "text/x-tex"),
    "pdf": ("PDF", "application/pdf"),
}


def text(words: object) -> str:
    return html.escape(str(words))


def prose(rst: str) -> str:
    """A caption of workflow/report/: plain words and ``code``."""
    return re.sub(r"``(.+?)``", r"<code>\1</code>", html.escape(" ".join(rst.split())))


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "numbers"
) -> str:
    """Plain cells; the first of a row names it. `kind` is `numbers` or `words`."""
    heads = "".join(f'<th scope="col">{text(word)}</th>' for word in header)
    body = "".join(
        f'<tr><th scope="row">{_cell(first)}</th>'
        + "".join(f"<td>{_cell(cell)}</td>" for cell in cells)
        + "</tr>\n"
        for first, *cells in rows
    )
    return scrolling(
        caption,
        f'<table class="{kind}">\n<caption>{text(caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>",
    )


class Code(str):
    """A word to be shown as code."""


def _cell(value: object) -> str:
    return f"<code>{text(value)}</code>" if isinstance(value, Code) else text(value)


def scrolling(label: str, inside: str) -> str:
    """A box in which something wide scrolls, by keyboard, too."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(label)}">{inside}</div>'
    )


def details(summary: str, inside: str) -> str:
    return f"<details><summary>{text(summary)}</summary>\n{inside}\n</details>"


def verbatim(content: str) -> str:
    return f'<pre tabindex="0"><code>{text(content)}</code></pre>'


def download(name: str, content: bytes) -> str:
    """A link that carries the file itself; works offline."""
    label, mime = FORMATS[name.rpartition(".")[2]]
    return f'<a download="{text(name)}" href="{data_address(mime, content)}">{label}</a>'


def data_address(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


# --- numbers ------------------------------------------------------------------------------------


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:,.1f} h"


def bytes_of(count: float | None) -> str:
    if count is None:
        return "unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def short_commit(commit: str) -> str:
    """Ten digits, and the + of changed code."""
    mark = "+" if commit.endswith("+") else ""
    return commit.removesuffix("+")[:10] + mark


# --- fragments of other stages ------------------------------------------------------------------


def clean(fragment: str) -> str:
    """The tables of a fragment; anything that no table may hold is shown as text or dropped."""
    reader = _Cleaner()
    reader.feed(fragment)
    reader.close()
    return "".join([*reader.parts, *(f"</{tag}>" for tag in reversed(reader.opened))])


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.opened: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in SILENT
        if tag not in ALLOWED:
            return
        kept = "".join(f' {k}="{text(v or "")}"' for k, v in attrs if k in ALLOWED[tag])
        self.parts.append(f"<{tag}{kept}>")
        if tag != "br":
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in SILENT and self.silent > 0
        while tag in self.opened:
            closed = self.opened.pop()
            self.parts.append(f"</{closed}>")
            if closed == tag:
                return

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.parts.append(html.escape(data))
