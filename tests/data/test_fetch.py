"""Downloads of one file against a real, misbehaving HTTP server on loopback."""

import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from full_disk import fill_disk
from http_server import (
    Fault,
    Server,
    cut,
    other,
    serving,
    shifted,
    slow,
    stall,
    status,
    unmeasured,
    verbatim,
    whole,
)

from dac.data.fetch import FetchError, Patience, fetch
from dac.io.errors import UserError

CONTENT = random.Random(1).randbytes(300_000)
NAME = "/set.tar.gz"
PATIENT = Patience(timeout=5.0, slowest=0.0, retries=4, wait=0.0, longest=600.0, largest=10**9)
HASTY = replace(PATIENT, timeout=0.3, retries=1)
OK = b"HTTP/1.1 200 OK\r\n"
NEVER_ANSWERED = {
    "headers a byte at a time": verbatim(OK + b"Slow: ", endless=b"x", pause=0.01),
    "100 Continue without end": verbatim(b"", endless=b"HTTP/1.1 100 Continue\r\n\r\n"),
}
DRIP = verbatim(OK + b"\r\nfirst", endless=b"x", pause=0.01)


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
    fetch(server.url(NAME), partial, HASTY)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == [None, "bytes=100000-"]


def test_a_server_that_stays_silent_is_an_error_that_says_so(server: Server, partial: Path) -> None:
    server.faults[NAME] = [stall(1000), stall(2000)]
    with pytest.raises(FetchError, match=r"silent for 0\.3 s .*timeout_seconds\) \(2 attempts\)"):
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
        fetch(server.url(NAME), partial, replace(PATIENT, retries=3, wait=0.5))
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
    with pytest.raises(FetchError, match="sends 300007 bytes and more, expected 300000"):
        fetch(server.url(NAME), partial, PATIENT, size=len(CONTENT))


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", NEVER_ANSWERED.values(), ids=NEVER_ANSWERED)
def test_headers_must_be_complete_in_time(server: Server, partial: Path, fault: Fault) -> None:
    server.faults[NAME] = [fault, fault]
    with pytest.raises(FetchError, match=r"no answer within 0\.3 s .*seconds\) \(2 attempts\)"):
        fetch(server.url(NAME), partial, HASTY)
    server.faults[NAME] = [fault]
    fetch(server.url(NAME), partial, replace(HASTY, retries=4))
    assert partial.read_bytes() == CONTENT, "like any failed attempt, it is followed by another"


def test_a_body_that_drips_is_too_slow(server: Server, partial: Path) -> None:
    server.faults[NAME] = [DRIP, DRIP]
    message = (
        r"too slow: \d+ bytes in 0\.3 s, less than "
        r"download\.slowest_kilobytes_per_second \(1000\) asks for \(2 attempts\)"
    )
    with pytest.raises(FetchError, match=message):
        fetch(server.url(NAME), partial, replace(HASTY, slowest=1e6))


def test_a_download_that_became_slow_is_resumed(server: Server, partial: Path) -> None:
    server.faults[NAME] = [slow(100_000)]
    fetch(server.url(NAME), partial, replace(HASTY, slowest=3e5, retries=4))
    assert partial.read_bytes() == CONTENT
    first, second, *_ = server.asked(NAME)
    assert first is None and second is not None, "the second attempt continued the first"


@pytest.mark.parametrize("fault", [*NEVER_ANSWERED.values(), DRIP], ids=[*NEVER_ANSWERED, "drip"])
def test_the_whole_time_ends_a_download_for_good(
    server: Server, partial: Path, fault: Fault
) -> None:
    server.faults[NAME] = [fault]
    with pytest.raises(FetchError, match=r"not complete within .* h \(download\.longest_hours\)"):
        fetch(server.url(NAME), partial, replace(PATIENT, timeout=60.0, longest=0.3))
    assert len(server.requests) == 1
    assert fault is not DRIP or partial.read_bytes().startswith(b"first"), "kept for the next run"


def test_no_retry_waits_beyond_the_whole_time(
    server: Server, partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dac.data.fetch.time.sleep", lambda seconds: pytest.fail("waited"))
    server.faults[NAME] = [status(503)]
    with pytest.raises(FetchError, match=r"HTTP 503 .*; not complete within 0\.5 h"):
        fetch(server.url(NAME), partial, replace(PATIENT, wait=1800.0, longest=1800.0))


def test_an_endless_body_of_unknown_size_ends_at_the_largest_size(
    server: Server, partial: Path
) -> None:
    server.faults[NAME] = [verbatim(OK + b"\r\n", endless=bytes(10_000))]
    with pytest.raises(FetchError, match=r"bytes and more, .*largest_gigabytes \(0\.002\) allows"):
        fetch(server.url(NAME), partial, replace(PATIENT, largest=2_000_000))
    assert 2_000_000 < partial.stat().st_size < 2_000_000 + (1 << 20) + 1
    assert len(server.requests) == 1


def test_a_file_that_is_announced_too_large_is_refused_unless_its_size_is_known(
    server: Server, partial: Path
) -> None:
    small = replace(PATIENT, largest=200_000)
    with pytest.raises(FetchError, match=r"a file of 300000 bytes, .*gigabytes \(0\.0002\) allows"):
        fetch(server.url(NAME), partial, small)
    assert not partial.exists()
    fetch(server.url(NAME), partial, small, size=len(CONTENT))
    assert partial.read_bytes() == CONTENT


# --- malformed answers and addresses ----------------------------------------------------------


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "1_0", "ten"])
def test_a_content_length_that_is_no_number_is_refused(
    server: Server, partial: Path, length: str
) -> None:
    head = OK + f"Content-Length: {length}\r\n\r\n".encode("latin-1")
    server.faults[NAME] = [verbatim(head + CONTENT)]
    with pytest.raises(FetchError, match=r"announces '.{1,40}' as Content-Length, expected a num"):
        fetch(server.url(NAME), partial, PATIENT)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer", ["206 Partial Content\r\nContent-Range: bytes {}-{}/{}", "416 Range\r\n{}"]
)
def test_a_range_of_thousands_of_digits_makes_it_start_over(
    server: Server, partial: Path, answer: str
) -> None:
    many = "9" * 5000
    if answer.startswith("416"):
        many = f"Content-Range: bytes */{many}"
    partial.write_bytes(CONTENT[:1000])
    head = f"HTTP/1.1 {answer.format(many, many, many)}\r\n\r\n"
    server.faults[NAME] = [verbatim(head.encode())]
    fetch(server.url(NAME), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == ["bytes=1000-", None]


BAD_ADDRESSES = [
    "http://[::1",
    f"http://{'a' * 70}.org/set",
    "http://a..b/set",
    "http://127.0.0.1:99999/set",
    "http://127.0.0.1:port/set",
    "http:///set",
]


@pytest.mark.parametrize("url", BAD_ADDRESSES)
def test_an_address_that_cannot_be_parsed_is_refused_at_once(url: str, partial: Path) -> None:
    with pytest.raises(FetchError, match="is not a valid address") as caught:
        fetch(url, partial, PATIENT)
    assert url in str(caught.value) and "attempts" not in str(caught.value)


def redirect(url: str, endless: bytes = b"") -> Fault:
    return verbatim(f"HTTP/1.1 302 Found\r\nLocation: {url}\r\n\r\n".encode(), endless)


@pytest.mark.parametrize("url", BAD_ADDRESSES[:-1])
def test_a_redirect_to_an_address_that_cannot_be_parsed_is_refused_at_once(
    server: Server, partial: Path, url: str
) -> None:
    server.faults["/moved"] = [redirect(url)]
    with pytest.raises(FetchError, match="is not a valid address") as caught:
        fetch(server.url("/moved"), partial, PATIENT)
    assert url in str(caught.value) and len(server.requests) == 1


def test_a_redirect_is_followed_without_reading_its_endless_body(
    server: Server, partial: Path
) -> None:
    server.faults["/moved"] = [redirect(server.url(NAME), endless=bytes(10_000))]
    partial.write_bytes(CONTENT[:1000])
    fetch(server.url("/moved"), partial, PATIENT)
    assert partial.read_bytes() == CONTENT
    assert server.asked(NAME) == ["bytes=1000-"]


def test_a_redirect_away_from_http_is_not_followed(server: Server, partial: Path) -> None:
    server.faults["/moved"] = [redirect("ftp://127.0.0.1/set")]
    with pytest.raises(FetchError, match="unknown url type: ftp"):
        fetch(server.url("/moved"), partial, replace(PATIENT, retries=0))


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
