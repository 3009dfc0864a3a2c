"""Progress: a bar in a terminal, plain lines in a log. Messages go to stderr, results to stdout."""

import sys
import time
from typing import TextIO


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
        line = f"{self.what} {_amount(done, self.unit)}/{_amount(self.total, self.unit)}"
        if self.total:
            line += f" {100 * done / self.total:.0f}%"
        if done > self.first_done and done < self.total:
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


def _amount(count: int, unit: str) -> str:
    return f"{count / 1e6:.1f} MB" if unit == "bytes" else f"{count}{unit}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
