"""Answers of a server: cut, slow, endless, lying. The file is right or the download is refused."""

import os
import random
import shutil
from pathlib import Path

import damage
import http_server as http
from tiny_sets import ARCHIVE, cifar100_files, cifar100_set, tar, write_params
from verdicts import ACCEPTED, Wrong, judged

from dac import download

CONTENT = tar(cifar100_files())
HEADERS = (
    *(
        "Content-Length: ²",
        f"Content-Length: {'9' * 5000}",
        "Content-Length: -1",
        "Content-Length: x",
    ),
    *(
        "Content-Range: bytes x",
        "Location: http://[::1",
        f"Location: http://{'a' * 70}.test/",
        "X: \0",
    ),
    *(
        "Location: http://a..b/",
        "Location: file:///etc/passwd",
        "Transfer-Encoding: chunked",
        ":",
        "",
    ),
    *(
        "Content-Encoding: gzip",
        f"X: {'y' * 70_000}",
        "Retry-After: 99999999999",
        "Content-Length: 10",
    ),
)
STATUS = ("200 OK", "206 Partial", "204 None", "301 Moved", "302 Found", "307 Again", "304 Same")
STATUS += ("404 No", "416 Range", "429 Slow", "500 No", "999 x", "0 x", "", "-1 x", "200")


class Http:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        os.environ["no_proxy"] = "*"

    def case(self, draw: random.Random) -> str:
        place = self.folder / "case"
        try:
            with http.serving({f"/{ARCHIVE}": CONTENT}) as server:
                server.faults[f"/{ARCHIVE}"] = [_fault(draw) for _ in range(draw.randint(1, 3))]
                return self._judged(place, server.url(f"/{ARCHIVE}"), draw)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _judged(self, place: Path, url: str, draw: random.Random) -> str:
        place.mkdir()
        spec = cifar100_set([url]).model_dump(mode="json", exclude_none=True)
        params = write_params(place / "params.yaml", download_cifar100=spec)
        root = place / "data"
        verdict = judged(download.main, "--data", "cifar100", "--root", root, "--params", params)
        if verdict == ACCEPTED:
            for name, content in cifar100_files().items():
                if (root / "raw/cifar100" / name).read_bytes() != content:
                    raise Wrong(f"{name} has other bytes than were sent")
        return verdict


def _fault(draw: random.Random) -> http.Fault:
    at = draw.randrange(len(CONTENT))
    return draw.choice(
        (
            http.status(draw.choice((400, 403, 404, 416, 429, 500, 503))),
            http.cut(at),
            http.slow(at),
            http.whole(draw.choice((None, at))),
            http.other(damage.bytes_of(CONTENT, draw)),
            http.shifted,
            http.verbatim(_head(draw) + CONTENT[:at]),
            http.verbatim(_head(draw), endless=b"x" * draw.choice((1, 1000)), pause=0.001),
            http.verbatim(b"HTTP/1.1 200 OK\r\n", endless=b"X: y\r\n"),
            http.verbatim(b"", endless=b"HTTP/1.1 100 Continue\r\n\r\n"),
            http.verbatim(draw.randbytes(draw.choice((0, 1, 100, 100_000)))),
        )
    )


def _head(draw: random.Random) -> bytes:
    lines = [f"HTTP/1.1 {draw.choice(STATUS)}"]
    lines += [draw.choice(HEADERS) for _ in range(draw.randint(0, 3))]
    return "\r\n".join([*lines, "", ""]).encode()
