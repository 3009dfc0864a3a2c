"""What is below a folder of files. Links are followed; nothing is skipped without being named."""

import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from dac.io.errors import UserError, reason
from dac.io.files import SPECIAL

REPAIR = "repair or remove that, then run the same command again"


@dataclass(frozen=True)
class Listing:
    """All names are paths relative to the folder, sorted."""

    files: list[str]
    folders: list[str]
    hidden: list[str]
    """Files and folders whose names have a leading dot: they are left out."""
    faults: list[str]
    """What cannot be read, is neither a file nor a folder, or is reached twice, and why."""

    def check(self) -> None:
        if self.faults:
            raise UserError(f"{first_of(self.faults)}; {REPAIR}")


def listing(folder: Path) -> Listing:
    """List everything below `folder`; a folder that does not exist has nothing below it."""
    entries = sorted(_walk(folder), key=itemgetter(0)) if _exists(folder) else []
    sound = [(name, _is_hidden(name)) for name, fault in entries if not fault]
    seen = [name for name, is_hidden in sound if not is_hidden]
    return Listing(
        files=[name for name in seen if not name.endswith("/")],
        folders=sorted(name[:-1] for name in seen if name.endswith("/")),
        hidden=[name for name, is_hidden in sound if is_hidden],
        faults=[fault for _, fault in entries if fault],
    )


def files_below(folder: Path) -> list[str]:
    """Return the sorted paths of all files below `folder`, without names with a leading dot."""
    found = listing(folder)
    found.check()
    return found.files


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any OSError raised in the block into one message."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{_unreadable(Path(error.filename or path), error)}; {REPAIR}") from error


def first_of(items: Sequence[str], count: int = 3) -> str:
    more = f"; and {len(items) - count} more" if len(items) > count else ""
    return "; ".join(items[:count]) + more


def shown(path: Path | str) -> str:
    """Return a path as messages write it: quoted and escaped if it would break the line."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def _walk(top: Path) -> Iterator[tuple[str, str | None]]:
    """Yield name and fault of everything below `top`; the names of folders end with a slash.

    Each folder may be reached once: links in a circle would never end, two links per level would
    double the files with each level, and the same picture would be used many times. Links are
    followed last, so that a fault names the link and not the folder.
    """
    waiting, seen = deque([(top, "")]), dict[tuple[int, int], Path]()
    while waiting:
        folder, below = waiting.popleft()
        try:
            status = folder.stat()
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield below, _unreadable(folder, error)
            continue
        first = seen.setdefault((status.st_dev, status.st_ino), folder)
        if first is not folder:
            same = f"is the same folder as {shown(first)}, and its files would be used twice"
            yield below, f"{shown(folder)} {same}"
            continue
        if below:
            yield below, None
        for entry in entries:
            name = below + entry.name
            if _is_hidden(name):
                yield name, None
            elif fault := _fault(entry):
                yield name, fault
            elif not entry.is_dir():
                yield name, None
            elif entry.is_symlink():
                waiting.append((Path(entry.path), f"{name}/"))
            else:
                waiting.appendleft((Path(entry.path), f"{name}/"))


def _exists(folder: Path) -> bool:
    try:
        folder.lstat()
    except FileNotFoundError:
        return False
    except OSError:  # something is there, or cannot be seen; the walk says why
        pass
    return True


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


def _fault(entry: os.DirEntry[str]) -> str | None:
    """Return why an entry is neither a file nor a folder; opening a pipe would wait forever."""
    try:
        if entry.is_dir() or entry.is_file():
            return None
        kind = SPECIAL.get(stat.S_IFMT(entry.stat().st_mode), "of no known kind")
    except OSError as error:
        return _unreadable(Path(entry.path), error)
    return f"{shown(entry.path)} is {kind}, expected a file or a folder"


def _unreadable(path: Path, error: OSError) -> str:
    what = f"cannot be read ({reason(error)})"
    with suppress(OSError):  # raised if it is no link
        what = f"is a link to {shown(path.readlink())}, which {what}"
    return f"{shown(path)} {what}"
