"""Drives Debian's Chromium through a pipe: the DevTools protocol needs no package and no port.

Messages are JSON texts that end in a zero byte; the browser reads them from descriptor 3 and writes
to descriptor 4 (`--remote-debugging-pipe`). Everything a page says or asks for is kept.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0  # seconds for one answer; a busy machine starts a browser slowly
LOWEST = 10  # descriptors below are for the child


def executable() -> str:
    """Chromium's path. Without one the test is skipped, or fails where a browser is demanded."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = "no browser: install Debian's chromium (apt-get install chromium)"
        if os.environ.get("DAC_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}; DAC_REQUIRE_BROWSER=1 demands it")
        pytest.skip(reason)
    return found


@contextmanager
def browser(folder: Path) -> Iterator["Browser"]:
    """A browser with an empty profile in `folder`, which is ended with the block."""
    path = executable()
    to_child, commands = _pipe()
    answers, from_child = _pipe()
    profile = ["--user-data-dir=" + str(folder / "profile"), "about:blank"]
    log = str(folder / "chromium.log")
    opened = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    process = os.posix_spawn(
        path,
        [path, *OPTIONS, *profile],
        os.environ | {"HOME": str(folder)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, log, opened, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, to_child, 3),
            (os.POSIX_SPAWN_DUP2, from_child, 4),
        ],
        setpgroup=0,
    )
    os.close(to_child)
    os.close(from_child)
    driven = Browser(commands, answers, Path(log))
    try:
        yield driven
        driven.call("Browser.close")
    finally:
        os.close(commands)
        os.close(answers)
        _end(process)


def _pipe() -> tuple[int, int]:
    """Two ends above the descriptors that the browser wants for itself."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, LOWEST) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _end(process: int) -> None:
    """Our own process group only; the browser has helpers."""
    for _ in range(50):
        if os.waitpid(process, os.WNOHANG)[0]:
            break
        time.sleep(0.1)
    else:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


class Browser:
    def __init__(self, commands: int, answers: int, log: Path) -> None:
        self.commands, self.answers, self.log = commands, answers, log
        self.buffer, self.sent = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": given}
        if session:
            message["sessionId"] = session
        content = json.dumps(message).encode() + b"\0"
        while content:
            content = content[os.write(self.commands, content) :]
        while (answer := self._receive()).get("id") != self.sent:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def wait(self, method: str, session: str) -> None:
        """Until an event has come, maybe earlier."""
        while not self.of(session, method):
            self.events.append(self._receive())

    def of(self, session: str, *methods: str) -> list[dict[str, Any]]:
        return [
            event["params"]
            for event in self.events
            if event.get("sessionId") == session and event.get("method") in methods
        ]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], PATIENCE)
            content = os.read(self.answers, 1 << 16) if ready else b""
            assert content, f"the browser is silent or gone: {self.log.read_text()[-2000:]}"
            self.buffer += content
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, width: int, height: int = 800, **media: str) -> "Page":
        """A file in a new tab of this size; returns when it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        page = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": k.replace("_", "-"), "value": v} for k, v in media.items()]
        page.call("Emulation.setEmulatedMedia", features=features)
        page.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("Page.loadEventFired", page.session)
        return page


class Page:
    def __init__(self, driven: Browser, session: str) -> None:
        self.driven, self.session = driven, session

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        return self.driven.call(method, self.session, **given)

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Console messages, uncaught errors and what the browser itself had to say."""
        self.evaluate("new Promise(done => setTimeout(done, 100))")  # late ones
        names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event)[:2000] for event in self.driven.of(self.session, *names)]

    def requests(self) -> list[str]:
        """Everything that was asked for but data inside the page."""
        events = self.driven.of(self.session, "Network.requestWillBeSent")
        addresses = [event["request"]["url"] for event in events]
        return [address for address in addresses if not address.startswith("data:")]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        answer = self.call(
            "Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole)
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "scale": 1}}

    def print(self, path: Path) -> None:
        answer = self.call(
            "Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.7
        )
        path.write_bytes(base64.b64decode(answer["data"]))
