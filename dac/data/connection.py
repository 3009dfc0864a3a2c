"""HTTP connections whose reads end in time.

A socket's timeout starts over with every read, so a server that sends a byte per second, or
`100 Continue` over and over, could keep a connection open forever. Here every read may only take
the time left on its `Watch`.
"""

import http.client
import io
import time
import urllib.parse
import urllib.request
from functools import partial
from typing import Any


class Watch:
    """Times one attempt: a stretch of `timeout` seconds for the headers, then stretch after
    stretch, each of which must bring `quota` bytes. Nothing may be read after `end`."""

    def __init__(self, timeout: float, quota: float, end: float) -> None:
        self.timeout, self.quota, self.end = timeout, quota, end
        self.is_answered = False
        self._begin_stretch()

    def answered(self) -> None:
        """The headers are complete."""
        self.is_answered = True
        self._begin_stretch()

    def arrived(self, count: int) -> None:
        self.count += count
        if self.count >= self.quota:
            self._begin_stretch()

    def left(self) -> float:
        """Return the seconds that the next read may take."""
        left = min(self.stretch_end, self.end) - time.monotonic()
        if left <= 0:
            raise TimeoutError("out of time")
        return left

    def is_over(self) -> bool:
        return time.monotonic() >= self.end

    def _begin_stretch(self) -> None:
        self.count, self.stretch_end = 0, time.monotonic() + self.timeout


class _Redirects(urllib.request.HTTPRedirectHandler):
    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        fp.close()  # urllib would read the whole body into memory, however long
        _check(headers.get("Location", ""), base=req.full_url)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Handler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
        def connection(*arguments: Any, **more: Any) -> Any:
            made = http_class(*arguments, **more)
            made.response_class = partial(Response, watch=self.watch)
            return made

        req.timeout = self.watch.left()  # for the connection and the TLS handshake
        return super().do_open(connection, req, **options)


class Response(http.client.HTTPResponse):
    """Limits every read to the time left on `watch`. Callers report each chunk that they read with
    `watch.arrived`."""

    def __init__(self, sock: Any, *arguments: Any, watch: Watch, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self.watch = watch
        self.fp: Any = io.BufferedReader(_TimedReader(self.fp.detach(), sock, watch))


class _TimedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: Any, watch: Watch) -> None:
        self.raw, self.sock, self.watch = raw, sock, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        self.sock.settimeout(self.watch.left())
        return self.raw.readinto(buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


def open_url(url: str, headers: dict[str, str], watch: Watch) -> Response:
    """Like urllib's `urlopen`, timed by `watch`, and for HTTP only: a redirect to FTP is refused.
    A ValueError says that the address, or one that it redirects to, cannot be used."""
    _check(url)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
        _Handler(watch),
    ):
        opener.add_handler(handler)
    response: Response = opener.open(urllib.request.Request(url, headers=headers))
    watch.answered()
    return response


def _check(url: str, base: str = "") -> None:
    """Raise a ValueError for an address whose host or port no connection accepts."""
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(base, url))
        host, _ = parts.hostname, parts.port
        if not host:
            raise ValueError("it names no host")
        host.encode("idna")
    except ValueError as error:
        raise ValueError(f"{url[:200]!r} is not a valid address ({error})") from error
