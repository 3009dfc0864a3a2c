"""Archives: damaged, endless, or with members that lead elsewhere.

Nothing may come out wrong or outside, nothing may be missing, and no bomb may be read to its end.
"""

import bz2
import io
import lzma
import random
import shutil
import tarfile
import zipfile
from pathlib import Path

import damage
from verdicts import ACCEPTED, REFUSED, Wrong

from dac.data.archives import extract
from dac.io.errors import UserError

MODES = ("w", "w:gz", "w:bz2", "w:xz", "zip", "zip-lzma", "zip-bzip2")
METHODS = {
    "zip": zipfile.ZIP_DEFLATED,
    "zip-lzma": zipfile.ZIP_LZMA,
    "zip-bzip2": zipfile.ZIP_BZIP2,
}
HOSTILE = ("../out", "/tmp/fuzz-out", "a/../../out", "a", "a/b/c", "CON", "a\\..\\b", "x" * 300)


COMPRESSED = {"bz2": bz2.compress, "xz": lambda content: lzma.compress(content, preset=0)}


class Archives:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def case(self, draw: random.Random) -> str:
        if draw.random() < 0.02:
            return self._judged(bomb(draw), {}, may_come_out=False)
        mode = draw.choice(MODES)
        files = {f"set/{i}": draw.randbytes(draw.choice((0, 10, 3000))) for i in range(4)}
        is_hostile = draw.random() < 0.3
        if is_hostile:
            files[draw.choice(HOSTILE)] = b"hostile"
        content = packed(files, mode, links=is_hostile and draw.random() < 0.5)
        if not is_hostile or draw.random() < 0.3:
            content = damage.bytes_of(content, draw)
        return self._judged(content, files, has_checksums=mode != "w")

    def _judged(
        self,
        content: bytes,
        files: dict[str, bytes],
        has_checksums: bool = True,
        may_come_out: bool = True,
    ) -> str:
        place = self.folder / "case"
        place.mkdir()
        try:
            archive, target = place / "set.archive", place / "deep" / "target"
            archive.write_bytes(content)
            try:
                extract(archive, target)
            except UserError:
                return REFUSED
            if not may_come_out:
                raise Wrong("a decompression bomb was unpacked")
            self._check(place, target, files, has_checksums)
            if not has_checksums and not _has_lost_headers(content, target):
                return ACCEPTED
            if missing := files.keys() - _files(target):
                raise Wrong(f"{missing} was packed and did not come out")
            return ACCEPTED
        finally:
            shutil.rmtree(place)

    def _check(
        self, place: Path, target: Path, files: dict[str, bytes], has_checksums: bool
    ) -> None:
        outside = {path.name for path in place.rglob("*") if not path.is_relative_to(target)}
        if outside - {"set.archive", "deep"} or Path("/tmp/fuzz-out").exists():
            raise Wrong(f"written outside: {outside}")
        for path in target.rglob("*"):
            if path.is_symlink():
                raise Wrong(f"a link came out: {path}")
            expected = files.get(path.relative_to(target).as_posix())
            if path.is_file() and has_checksums and expected not in (None, path.read_bytes()):
                raise Wrong(f"{path} has other bytes than were packed")


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def _has_lost_headers(content: bytes, target: Path) -> bool:
    """Whether a plain tar has a header that is neither a file nor inside one. Without checksums, a
    last member under zeros, or one that moved into the file before it, cannot be noticed."""
    contents = [(target / name).read_bytes() for name in _files(target)]
    return content.count(b"ustar") > len(contents) + sum(c.count(b"ustar") for c in contents)


def bomb(draw: random.Random) -> bytes:
    """A few kilobytes for zeros or folders without end; a reader needs seconds or minutes."""
    folder = tarfile.TarInfo("set")
    folder.type = tarfile.DIRTYPE
    entry = folder.tobuf(tarfile.GNU_FORMAT)
    content = draw.choice((entry + bytes(40 << 20), entry * 20_000 + bytes(1024)))
    return draw.choice(list(COMPRESSED.values()))(content)


def packed(files: dict[str, bytes], mode: str, links: bool) -> bytes:
    buffer = io.BytesIO()
    if mode in METHODS:
        with zipfile.ZipFile(buffer, "w", METHODS[mode]) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        if links:
            entry = tarfile.TarInfo("set/link")
            entry.type, entry.linkname = tarfile.SYMTYPE, "../../../etc"
            tar.addfile(entry)
    return buffer.getvalue()
