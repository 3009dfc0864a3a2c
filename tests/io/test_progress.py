"""Progress: few lines in a log, a bar on a terminal, and an honest guess of what is left."""

import io
from itertools import pairwise

import pytest

from dac.io import progress
from dac.io.progress import MEGABYTES, Progress, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `Progress` sees; change its only item."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_messages_go_to_stderr_and_never_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    Progress("train", 1).update(1)
    out, error = capsys.readouterr()
    assert out == "" and error == "hello\ntrain 1/1 100%\n"


def test_a_log_gets_lines_quickly_at_first_and_rarely_later(clock: list[float]) -> None:
    log = io.StringIO()
    shown = Progress("train", 1000, seconds_between_lines=15, stream=log)
    for done in range(1, 1001):
        clock[0] += 1  # a second per step
        shown.update(done)
    *steps, last = [int(line.split()[1].split("/")[0]) for line in log.getvalue().splitlines()]
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    assert steps[:3] == [1, 2, 3] and last == 1000
    assert gaps == sorted(gaps) and gaps[-1] == 15
    assert len(steps) < 100


def test_time_left_follows_from_the_speed_so_far(clock: list[float]) -> None:
    log = io.StringIO()
    shown = Progress("train", 1000, stream=log)
    clock[0] += 60
    shown.update(250)
    assert log.getvalue() == "train 250/1000 25%, 3:00 left\n"


def test_work_that_an_earlier_start_has_done_does_not_count_as_speed(clock: list[float]) -> None:
    log = io.StringIO()
    shown = Progress("train", 1000, done=900, stream=log)
    clock[0] += 60
    shown.update(910)
    assert log.getvalue() == "train 910/1000 91%, 9:00 left\n"


def test_the_first_seconds_promise_nothing(clock: list[float]) -> None:
    """They include the start-up; a twentieth of the work, or a while, is enough."""
    log = io.StringIO()
    shown = Progress("train", 1000, stream=log)
    for seconds, done in ((5, 49), (9, 49), (2, 49)):
        clock[0] += seconds
        shown.update(done)
    assert [line.endswith("left") for line in log.getvalue().splitlines()] == [False, False, True]
    clock[0], log = 1000.0, io.StringIO()
    shown = Progress("train", 1000, stream=log)
    clock[0] += 5
    shown.update(50)
    assert log.getvalue() == "train 50/1000 5%, 1:35 left\n"


def test_hours_bytes_and_notes_are_written_out(clock: list[float]) -> None:
    log = io.StringIO()
    shown = Progress("fetch", 10_000_000, unit=MEGABYTES, stream=log)
    clock[0] += 3725
    shown.update(5_000_000, note="slow")
    assert log.getvalue() == "fetch 5.0/10.0 MB 50%, 1:02:05 left, slow\n"


def test_other_units_follow_the_numbers(clock: list[float]) -> None:
    log = io.StringIO()
    Progress("train", 2, unit=" steps", stream=log).update(2)
    assert log.getvalue() == "train 2/2 steps 100%\n"


def test_a_terminal_gets_one_bar_that_is_drawn_over(clock: list[float]) -> None:
    screen = Terminal()
    shown = Progress("train", 4, stream=screen)
    for done in (1, 2, 3, 4):
        clock[0] += 1
        shown.update(done)
    first, *_, last = screen.getvalue().split("\r\x1b[K")[1:]
    assert first == "[#####...............] train 1/4 25%, 0:03 left"
    assert last == f"[{'#' * 20}] train 4/4 100%\n"
    assert screen.getvalue().count("\n") == 1


def test_a_terminal_is_not_flooded(clock: list[float]) -> None:
    screen = Terminal()
    shown = Progress("train", 1000, stream=screen)
    for done in range(1, 101):
        clock[0] += 0.01
        shown.update(done)
    assert 9 <= screen.getvalue().count("\r") <= 10  # one every tenth of a second


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_no_work_at_all_is_no_division_by_zero(stream: type[io.StringIO]) -> None:
    shown = stream()
    Progress("copy", 0, stream=shown).update(0)
    assert shown.getvalue().endswith("copy 0/0\n")
