"""Progress: a bar in a terminal, plain lines in a log. Messages go to stderr, results to stdout."""

import sys
import time
from typing import TextIO

MEGABYTES = " MB"  # the unit of work that is counted in bytes
SETTLED_SECONDS = 15


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class Progress:
    """Progress toward `total` units of work; `update` may be called at any rate."""

    def __init__(
        self,
        what: str,
        total: int,
        *,
        done: int = 0,
        unit: str = "",
        seconds_between_lines: float = 15.0,
        stream: TextIO | None = None,
    ) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.stream = stream or sys.stderr
        self.is_terminal = self.stream.isatty()
        self.longest_interval = 0.1 if self.is_terminal else seconds_between_lines
        self.first_done, self.started = done, time.monotonic()
        self.shown_at = self.started

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        # Every second at first, then a tenth of the elapsed time apart, up to the longest interval.
        interval = min(self.longest_interval, max(1.0, (now - self.started) / 10))
        if now - self.shown_at < interval and done < self.total:
            return
        self.shown_at = now
        self._show(done, note, now)

    def _show(self, done: int, note: str, now: float) -> None:
        line = f"{self.what} {self._amount(done)}/{self._amount(self.total)}{self.unit}"
        if self.total:
            line += f" {100 * done / self.total:.0f}%"
        if self.first_done < done < self.total and self._is_settled(done, now):
            left = (now - self.started) * (self.total - done) / (done - self.first_done)
            line += f", {_clock(left)} left"
        if note:
            line += f", {note}"
        if self.is_terminal:
            width = 20 * done // self.total if self.total else 0
            end = "\n" if done >= self.total else ""
            self.stream.write(f"\r\x1b[K[{'#' * width}{'.' * (20 - width)}] {line}{end}")
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def _is_settled(self, done: int, now: float) -> bool:
        """Whether the speed so far says something: the first units include the start-up."""
        return now - self.started >= SETTLED_SECONDS or done - self.first_done >= self.total / 20

    def _amount(self, count: int) -> str:
        return f"{count / 1e6:.1f}" if self.unit == MEGABYTES else str(count)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
