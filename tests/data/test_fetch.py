"""Downloads of one file against a real, misbehaving HTTP server on loopback."""

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from full_disk import fill_disk
from http_server import Server, cut, other, serving, shifted, stall, status, unmeasured, whole

from dac.data.fetch import FetchError, Patience, fetch
from dac.io.errors import UserError

CONTENT = random.Random(1).randbytes(300_000)
NAME = "/set.tar.gz"
PATIENT = Patience(timeout=5.0, retries=4, wait=0.0)
HASTY = Patience(timeout=0.3, retries=1, wait=0.0)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({NAME: CONTENT}) as running:
        yield running


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    return tmp_path / "set.tar.gz.partial"


def test_a_healthy_server_is_asked_once_without_a_range(server: Server, partial: Path) -> None:
    fetch(server.url(NAME), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == [None]


def test_a_cut_connection_is_resumed_where_it_broke(server: Server, partial: Path) -> None:
    server.faults[NAME] = [cut(100_000), cut(250_000)]
    fetch(server.url(NAME), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == [None, "bytes=100000-", "bytes=250000-"]


def test_a_partial_file_of_an_earlier_run_is_continued(server: Server, partial: Path) -> None:
    partial.write_bytes(CONTENT[:123_456])
    fetch(server.url(NAME), partial, PATIENT, size=len(CONTENT))
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == ["bytes=123456-"]


def test_a_silent_server_is_given_up_after_the_timeout_and_resumed(
    server: Server, partial: Path
) -> None:
    server.faults[NAME] = [stall(100_000)]
    started = time.monotonic()
    fetch(server.url(NAME), partial, HASTY)
    assert 0.3 <= time.monotonic() - started < 5
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == [None, "bytes=100000-"]


def test_a_server_that_stays_silent_is_an_error_that_says_so(server: Server, partial: Path) -> None:
    server.faults[NAME] = [stall(1000), stall(2000)]
    with pytest.raises(FetchError, match=r"silent for 0\.3 s \(2 attempts\)"):
        fetch(server.url(NAME), partial, HASTY)
    assert partial.read_bytes() == CONTENT[:2000], "kept for the next run"


@pytest.mark.parametrize("code", [500, 503, 429])
def test_a_busy_server_is_asked_again(server: Server, partial: Path, code: int) -> None:
    server.faults[NAME] = [status(code), status(code)]
    fetch(server.url(NAME), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_refusal_is_final(server: Server, partial: Path, code: int) -> None:
    server.faults[NAME] = [status(code)]
    with pytest.raises(FetchError, match=f"HTTP {code}"):
        fetch(server.url(NAME), partial, PATIENT)
    assert len(server.requests) == 1
    assert not partial.exists()


def test_tries_are_counted_and_waits_double(
    server: Server, partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("dac.data.fetch.time.sleep", waits.append)
    server.faults[NAME] = [status(503)] * 9
    with pytest.raises(FetchError, match=r"HTTP 503 .*\(4 attempts\)"):
        fetch(server.url(NAME), partial, Patience(timeout=5.0, retries=3, wait=0.5))
    assert waits == [0.5, 1.0, 2.0]


def test_a_server_without_ranges_makes_it_start_over(server: Server, partial: Path) -> None:
    server.faults[NAME] = [cut(100_000), whole()]
    fetch(server.url(NAME), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == [None, "bytes=100000-"]


def test_a_wrong_range_is_never_appended(server: Server, partial: Path) -> None:
    server.faults[NAME] = [cut(100_000), shifted]
    fetch(server.url(NAME), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == [None, "bytes=100000-", None]


def test_a_partial_file_that_is_complete_is_not_fetched_again(
    server: Server, partial: Path
) -> None:
    partial.write_bytes(CONTENT)
    fetch(server.url(NAME), partial, PATIENT, size=len(CONTENT))
    assert server.requests == []
    fetch(server.url(NAME), partial, PATIENT)  # size unknown: the server says 416
    assert server.asked(NAME) == [f"bytes={len(CONTENT)}-"]
    assert partial.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("size", "asked"), [(len(CONTENT), [None]), (None, [f"bytes={len(CONTENT) + 4}-", None])]
)
def test_a_partial_file_that_is_too_long_is_thrown_away(
    server: Server, partial: Path, size: int | None, asked: list[str | None]
) -> None:
    partial.write_bytes(CONTENT + b"more")
    fetch(server.url(NAME), partial, PATIENT, size=size)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == asked


def test_a_file_of_the_wrong_length_is_refused_before_it_is_read(
    server: Server, partial: Path
) -> None:
    server.faults[NAME] = [other(b"<html>log in first</html>")]
    with pytest.raises(FetchError, match="serves a file of 25 bytes, expected 300000"):
        fetch(server.url(NAME), partial, PATIENT, size=len(CONTENT))
    assert not partial.exists()


def test_a_stream_without_length_is_held_to_the_known_size(server: Server, partial: Path) -> None:
    server.faults[NAME] = [unmeasured()]
    fetch(server.url(NAME), partial, PATIENT, size=len(CONTENT))
    assert partial.read_bytes() == CONTENT
    partial.unlink()
    server.faults[NAME] = [unmeasured(extra=b"endless")]
    with pytest.raises(FetchError, match="sends more than the expected 300000 bytes"):
        fetch(server.url(NAME), partial, PATIENT, size=len(CONTENT))


def test_nobody_listening_is_an_error_that_says_so(partial: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        with pytest.raises(FetchError, match=r"Connection refused.*\(2 attempts\)"):
            fetch(url, partial, HASTY)


def test_a_full_disk_is_not_taken_for_a_broken_connection(
    server: Server, partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, lambda path: path == partial)
    with pytest.raises(UserError, match=r"no space left while writing .*Free some space"):
        fetch(server.url(NAME), partial, PATIENT)
    assert len(server.requests) == 1
