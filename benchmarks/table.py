"""One measured figure a row, its target and the verdict."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dac.io.text_table import text_table

HEADER = ("", "what", "measured", "target", "verdict", "")


@dataclass(frozen=True)
class Row:
    section: str
    what: str
    value: float | None
    """None: could not be measured, the note says why."""
    unit: str = "x"
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"at most {_number(self.at_most, self.unit)}"
        return f"at least {_number(self.at_least, self.unit)}" if self.at_least is not None else ""

    @property
    def verdict(self) -> str:
        if self.value is None or (self.at_most is None and self.at_least is None):
            return "info"
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return "ok" if low <= self.value <= high else "MISSED"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"target": self.target, "verdict": self.verdict}

    def cells(self) -> tuple[str, ...]:
        measured = "-" if self.value is None else _number(self.value, self.unit)
        return self.section, self.what, measured, self.target, self.verdict, self.note


def _number(value: float, unit: str) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(digits, 3)}f} {unit}"


def table(rows: Sequence[Row]) -> str:
    return text_table([HEADER, *(row.cells() for row in rows)], rule=True)
