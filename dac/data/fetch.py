"""Download one file over HTTP into a `.partial` file that the next attempt continues.

Broken connections, silence, slowness and server errors are retried, resuming with a range; a
refusal (404, 403, ...) and too large a file are final for that address. The caller checks whether
the bytes are the right ones.
"""

import http.client
import re
import ssl
import time
import urllib.error
from dataclasses import dataclass
from pathlib import Path

from dac.data.connection import Response, Watch, open_url
from dac.io.disk import write_all, writing
from dac.io.files import CHUNK
from dac.io.progress import MEGABYTES, Progress, say

BUSY = (408, 425, 429)  # the 4xx responses that ask to try again
NUMBER = "[0-9]{1,18}"  # of bytes in a header; int() takes more than these, and fails on some


class FetchError(Exception):
    """This address does not provide the file; the message is the reason."""


class _AttemptError(Exception):
    """This attempt failed; another may succeed."""


@dataclass(frozen=True)
class Patience:
    """The settings of `download:` in `params.yaml`, in bytes and seconds."""

    timeout: float
    """Seconds without an answer, or of silence, after which a connection counts as dead."""
    slowest: float
    """Bytes per second, over `timeout` seconds, below which it counts as dead, too."""
    retries: int
    wait: float
    """Seconds before the first retry; it doubles with each further one."""
    longest: float
    """Seconds for one file from one address, all attempts and waits included."""
    largest: int
    """Bytes of a file whose size is not known."""


def fetch(url: str, partial: Path, patience: Patience, size: int | None = None) -> None:
    """Complete `partial` from `url`; `size` is the full length, where it is known."""
    end = time.monotonic() + patience.longest
    reason = ""
    for attempt in range(patience.retries + 1):
        if attempt:
            wait = patience.wait * 2 ** (attempt - 1)
            if time.monotonic() + wait >= end:
                raise FetchError(f"{reason}; {_out_of_time(patience)}")
            say(f"{url}: {reason}; retry {attempt} of {patience.retries} in {wait:g} s")
            time.sleep(wait)
        try:
            _attempt(url, partial, patience, size, end)
            return
        except _AttemptError as failed:
            reason = str(failed)
    raise FetchError(f"{reason} ({patience.retries + 1} attempts)")


def _attempt(url: str, partial: Path, patience: Patience, size: int | None, end: float) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    if size is not None and have > size:
        partial.unlink()
        have = 0
    if have and have == size:
        return
    watch = Watch(patience.timeout, patience.slowest * patience.timeout, end)
    try:
        with open_url(url, _headers(have), watch) as response:
            _receive(response, partial, have, size, patience)
    except urllib.error.HTTPError as error:
        _judge(error, partial, have)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise _failure(error, watch, patience) from error
    except (ValueError, OverflowError) as error:  # the address, or that of a proxy
        raise FetchError(f"cannot be requested: {error}") from error


def _failure(error: Exception, watch: Watch, patience: Patience) -> Exception:
    """Tell failures that another attempt may cure from final ones."""
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return FetchError(f"its certificate is not trusted: {reason.verify_message}")
    if isinstance(error, http.client.InvalidURL):
        return FetchError(f"not a valid address: {error}")
    if isinstance(reason, TimeoutError):
        return FetchError(_out_of_time(patience)) if watch.is_over() else _slow(watch, patience)
    if isinstance(reason, http.client.IncompleteRead):
        return _AttemptError("connection closed too early")
    return _AttemptError(str(reason) or type(reason).__name__)


def _slow(watch: Watch, patience: Patience) -> _AttemptError:
    within = f"{patience.timeout:g} s"
    if not watch.is_answered:
        return _AttemptError(f"no answer within {within} (download.timeout_seconds)")
    if not watch.count:
        return _AttemptError(f"silent for {within} (download.timeout_seconds)")
    return _AttemptError(
        f"too slow: {watch.count} bytes in {within}, less than "
        f"download.slowest_kilobytes_per_second ({patience.slowest / 1e3:g}) asks for"
    )


def _out_of_time(patience: Patience) -> str:
    return (
        f"not complete within {patience.longest / 3600:g} h (download.longest_hours); what has "
        "arrived is kept: run the same command again to continue, or raise the setting"
    )


def _headers(have: int) -> dict[str, str]:
    # Without `identity`, a server may send a compressed stream, whose ranges are other bytes.
    headers = {"User-Agent": "dac-download", "Accept-Encoding": "identity"}
    return headers | ({"Range": f"bytes={have}-"} if have else {})


def _judge(error: urllib.error.HTTPError, partial: Path, have: int) -> None:
    """Handle an HTTP error: already complete, worth another attempt, or final."""
    error.close()
    answer = " ".join(f"HTTP {error.code} {error.reason}".split())
    if error.code == 416 and have:  # there is nothing after what we have
        total = re.fullmatch(rf"bytes \*/({NUMBER})", error.headers.get("Content-Range", ""))
        if total and int(total[1]) == have:
            return
        partial.unlink()
        raise _AttemptError(f"{answer}: the partial file does not match, starting over")
    if error.code >= 500 or error.code in BUSY:
        raise _AttemptError(answer)
    raise FetchError(answer)


def _receive(
    response: Response, partial: Path, have: int, size: int | None, patience: Patience
) -> None:
    start = _start(response, partial, have)
    length = _length(response)
    total = None if length is None else start + length
    if size is not None and total is not None and total != size:
        raise FetchError(f"serves a file of {total} bytes, expected {size}")
    if size is None and total is not None and total > patience.largest:
        raise FetchError(f"serves a file of {total} bytes, {_too_large(patience)}")
    expected = total if total is not None else size
    most = patience.largest if expected is None else expected
    done = _store(response, partial, start, expected, most)
    if done > most:
        over = _too_large(patience) if expected is None else f"expected {expected}"
        raise FetchError(f"sends {done} bytes and more, {over}")
    if expected is not None and done < expected:
        raise _AttemptError(f"connection closed after {done} of {expected} bytes")


def _length(response: Response) -> int | None:
    text = response.headers.get("Content-Length")
    if text is None:
        return None
    if not re.fullmatch(NUMBER, text.strip()):
        raise FetchError(f"announces {text[:40]!r} as Content-Length, expected a number of bytes")
    return int(text)


def _too_large(patience: Patience) -> str:
    return (
        f"more than download.largest_gigabytes ({patience.largest / 1e9:g}) allows; "
        "raise the setting if the file is the right one"
    )


def _start(response: Response, partial: Path, have: int) -> int:
    """Return the position of the response's first byte: 0 if the server ignored the range."""
    if response.status != 206:
        if have:
            say("the server does not support resuming; starting over")
        return 0
    given = response.headers.get("Content-Range", "")
    found = re.fullmatch(rf"bytes ({NUMBER})-{NUMBER}/({NUMBER}|\*)", given)
    if not have or not found or int(found[1]) != have:
        partial.unlink(missing_ok=True)
        raise _AttemptError("sent a different range than requested, starting over")
    return have


def _store(response: Response, partial: Path, start: int, expected: int | None, most: int) -> int:
    """Append what arrives to `partial`, until it is longer than `most`; return its length."""
    progress = Progress(f"download {partial.stem}", expected or 0, done=start, unit=MEGABYTES)
    done = start
    with writing(partial):
        file = partial.open("ab" if start else "wb", buffering=0)
    with file:
        # read1 returns what has arrived; read would lose up to a chunk if the server goes silent.
        while done <= most and (chunk := response.read1(CHUNK)):
            write_all(file, chunk, partial)  # a full disk must not look like a broken connection
            response.watch.arrived(len(chunk))  # after writing: a slow disk is not a slow server
            done += len(chunk)
            if expected is not None:
                progress.update(done)
    return done
