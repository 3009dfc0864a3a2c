"""Download one file over HTTP into a `.partial` file that the next attempt continues.

Broken connections, silence and server errors are retried, resuming with a range; a refusal (404,
403, ...) is final for that address. The caller checks whether the bytes are the right ones.
"""

import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dac.io.disk import write_all, writing
from dac.io.files import CHUNK
from dac.io.progress import MEGABYTES, Progress, say

BUSY = (408, 425, 429)  # the 4xx responses that ask to try again


class FetchError(Exception):
    """This address does not provide the file; the message is the reason."""


class _AttemptError(Exception):
    """This attempt failed; another may succeed."""


@dataclass(frozen=True)
class Patience:
    timeout: float
    """Seconds of silence after which a connection counts as dead."""
    retries: int
    wait: float
    """Seconds before the first retry; it doubles with each further one."""


def fetch(url: str, partial: Path, patience: Patience, size: int | None = None) -> None:
    """Complete `partial` from `url`; `size` is the full length, where it is known."""
    reason = ""
    for attempt in range(patience.retries + 1):
        if attempt:
            wait = patience.wait * 2 ** (attempt - 1)
            say(f"{url}: {reason}; retry {attempt} of {patience.retries} in {wait:g} s")
            time.sleep(wait)
        try:
            _attempt(url, partial, patience.timeout, size)
            return
        except _AttemptError as failed:
            reason = str(failed)
    raise FetchError(f"{reason} ({patience.retries + 1} attempts)")


def _attempt(url: str, partial: Path, timeout: float, size: int | None) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    if size is not None and have > size:
        partial.unlink()
        have = 0
    if have and have == size:
        return
    try:
        with urllib.request.urlopen(_request(url, have), timeout=timeout) as response:
            _receive(response, partial, have, size)
    except urllib.error.HTTPError as error:
        _judge(error, partial, have)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise FetchError(f"its certificate is not trusted: {reason.verify_message}") from error
        if isinstance(error, http.client.InvalidURL):
            raise FetchError(f"not a valid address: {error}") from error
        raise _AttemptError(_described(reason, timeout)) from error


def _request(url: str, have: int) -> urllib.request.Request:
    # Without `identity`, a server may send a compressed stream, whose ranges are other bytes.
    headers = {"User-Agent": "dac-download", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    return urllib.request.Request(url, headers=headers)


def _judge(error: urllib.error.HTTPError, partial: Path, have: int) -> None:
    """Handle an HTTP error: already complete, worth another attempt, or final."""
    error.close()
    answer = f"HTTP {error.code} {error.reason}".strip()
    if error.code == 416 and have:  # there is nothing after what we have
        total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        if total and int(total[1]) == have:
            return
        partial.unlink()
        raise _AttemptError(f"{answer}: the partial file does not match, starting over")
    if error.code >= 500 or error.code in BUSY:
        raise _AttemptError(answer)
    raise FetchError(answer)


def _receive(response: Any, partial: Path, have: int, size: int | None) -> None:
    start = _start(response, partial, have)
    length = response.headers.get("Content-Length")
    total = start + int(length) if length is not None and length.isdigit() else None
    if size is not None and total is not None and total != size:
        raise FetchError(f"serves a file of {total} bytes, expected {size}")
    expected = total if total is not None else size
    done = _store(response, partial, start, expected)
    if expected is not None and done < expected:
        raise _AttemptError(f"connection closed after {done} of {expected} bytes")


def _start(response: Any, partial: Path, have: int) -> int:
    """Return the position of the response's first byte: 0 if the server ignored the range."""
    if response.status != 206:
        if have:
            say("the server does not support resuming; starting over")
        return 0
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not have or not found or int(found[1]) != have:
        partial.unlink(missing_ok=True)
        raise _AttemptError("sent a different range than requested, starting over")
    return have


def _store(response: Any, partial: Path, start: int, expected: int | None) -> int:
    progress = Progress(f"download {partial.stem}", expected or 0, done=start, unit=MEGABYTES)
    done = start
    with writing(partial):
        file = partial.open("ab" if start else "wb", buffering=0)
    with file:
        # read1 returns what has arrived; read would lose up to a chunk if the server goes silent.
        while chunk := response.read1(CHUNK):
            write_all(file, chunk, partial)  # a full disk must not look like a broken connection
            done += len(chunk)
            if expected is not None:
                if done > expected:
                    raise FetchError(f"sends more than the expected {expected} bytes")
                progress.update(done)
    return done


def _described(reason: Any, timeout: float) -> str:
    if isinstance(reason, TimeoutError):
        return f"silent for {timeout:g} s"
    if isinstance(reason, http.client.IncompleteRead):
        return "connection closed too early"
    return str(reason) or type(reason).__name__
