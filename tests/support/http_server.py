"""A real HTTP server on loopback that misbehaves on request: one scripted fault per answer.

After `with serving({"/a.bin": content}) as server:` say `server.faults["/a.bin"] = [cut(100)]`;
an answer without a fault is correct and honours ranges. `server.requests` keeps what was asked.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[["Handler", bytes], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[Asked] = []
        self.closing = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Quiet: a client that has seen enough hangs up."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def asked(self, path: str) -> list[str | None]:
        """The `Range` header of every request for `path`."""
        return [asked.range for asked in self.requests if asked.path == path]


@dataclass(frozen=True)
class Asked:
    path: str
    range: str | None = field(default=None)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(Asked(self.path, self.headers.get("Range")))
        content = self.server.files.get(self.path)
        faults = self.server.faults.get(self.path, [])
        if faults:
            faults.pop(0)(self, content or b"")
        elif content is None:
            self.send_error(404)
        else:
            self.answer(content)

    def wanted(self, content: bytes) -> tuple[int, int]:
        """First byte and status of a correct answer."""
        asked = self.headers.get("Range")
        return (int(asked.removeprefix("bytes=").rstrip("-")), 206) if asked else (0, 200)

    def answer(self, content: bytes, *, stop_at: int | None = None) -> None:
        """A correct answer, or one whose body ends at byte `stop_at` of the file."""
        start, status = self.wanted(content)
        if status == 206 and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) - start))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[start:stop_at])
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


def status(code: int) -> Fault:
    return lambda handler, content: handler.send_error(code)


def cut(at: int) -> Fault:
    """Promises the whole file and hangs up after byte `at`."""
    return lambda handler, content: handler.answer(content, stop_at=at)


def stall(at: int) -> Fault:
    """Goes silent after byte `at`, with the connection open."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.answer(content, stop_at=at)
        handler.server.closing.wait(10)

    return fault


def slow(at: int) -> Fault:
    """Goes on with a byte at a time after byte `at`."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.answer(content, stop_at=at)
        rest = iter(content[at:])
        _until_hung_up(handler, lambda: bytes([next(rest)]), pause=0.01)

    return fault


def verbatim(answer: bytes, endless: bytes = b"", pause: float = 0.0) -> Fault:
    """Sends these bytes as the whole answer, headers included, then `endless` without end."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.wfile.write(answer)
        if endless:
            _until_hung_up(handler, lambda: endless, pause)

    return fault


def _until_hung_up(handler: Handler, piece: Callable[[], bytes], pause: float) -> None:
    with suppress(OSError, StopIteration):
        while not handler.server.closing.wait(pause):
            handler.wfile.write(piece())


def other(content: bytes) -> Fault:
    """Serves another file under the same name."""
    return lambda handler, _: handler.answer(content)


def whole(at: int | None = None) -> Fault:
    """Ignores the range: 200 and everything from the start (up to byte `at`)."""

    def fault(handler: Handler, content: bytes) -> None:
        del handler.headers["Range"]
        handler.answer(content, stop_at=at)

    return fault


def shifted(handler: Handler, content: bytes) -> None:
    """Answers 206 with another range than was asked for."""
    handler.send_response(206)
    handler.send_header("Content-Length", str(len(content) - 1))
    handler.send_header("Content-Range", f"bytes 1-{len(content) - 1}/{len(content)}")
    handler.end_headers()
    handler.wfile.write(content[1:])


def unmeasured(extra: bytes = b"") -> Fault:
    """No Content-Length; the end of the connection is the end of the file."""

    def fault(handler: Handler, content: bytes) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content + extra)

    return fault


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    server = Server(files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
