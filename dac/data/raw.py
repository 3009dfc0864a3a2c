"""The raw folder `<root>/raw/<set>/`: official files as published, and whether they are complete.

Sets with published checksums are verified file by file, the others by the number of files in
each folder. `receipt.json` records where the files came from and their digests.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from dac.config import DownloadSet
from dac.io.errors import UserError, reason
from dac.io.files import SPECIAL, canonical_hash, digest, read_json

LISTS = "filelist"  # published lists of files and labels, optional
RECEIPT = "receipt.json"
REPAIR = "repair or remove that, then run the same command again"


def folder_of(root: Path, name: str) -> Path:
    return root / "raw" / name


def command(root: Path, name: str) -> str:
    return f"python -m dac.download --data {name} --root {root}"


@dataclass(frozen=True)
class Listing:
    """What is below a folder; links are followed."""

    files: list[str]
    """Paths relative to the folder, sorted."""
    hidden: list[str]
    """Files and folders whose names have a leading dot: they are left out."""
    faults: list[str]
    """What cannot be read, or is neither a file nor a folder, and why."""


def listing(folder: Path) -> Listing:
    """List everything below `folder`; a folder that does not exist has nothing below it."""
    entries = sorted(_walk(folder), key=itemgetter(0)) if _exists(folder) else []
    return Listing(
        files=[name for name, fault in entries if not fault and not _is_hidden(name)],
        hidden=[name for name, fault in entries if not fault and _is_hidden(name)],
        faults=[fault for _, fault in entries if fault],
    )


def files_below(folder: Path) -> list[str]:
    """Return the sorted paths of all files below `folder`, without names with a leading dot."""
    found = listing(folder)
    if found.faults:
        raise UserError(f"{first_of(found.faults)}; {REPAIR}")
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
    """Yield name and fault of everything below `top` but folders that can be listed."""
    waiting: list[tuple[Path, str, dict[tuple[int, int], Path]]] = [(top, "", {})]
    while waiting:
        folder, below, above = waiting.pop()  # above: the folders that led here, by inode
        try:
            status = folder.stat()
            with os.scandir(folder) as found:
                entries = list(found)
        except OSError as error:
            yield below, _unreadable(folder, error)
            continue
        here = (status.st_dev, status.st_ino)
        if here in above:
            yield below, f"{shown(folder)} is a link to {shown(above[here])}, which contains it"
            continue
        for entry in entries:
            name = below + entry.name
            if _is_hidden(name):
                yield name, None
            elif fault := _fault(entry):
                yield name, fault
            elif entry.is_dir():
                waiting.append((Path(entry.path), f"{name}/", above | {here: folder}))
            else:
                yield name, None


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


def find(folder: Path, name: str) -> Path | None:
    """Return the folder `name` in or one level below `folder`; `name/name` counts as `name`."""
    places = [folder / name, *sorted(folder.glob(f"*/{name}"))]
    found = next((place for place in places if place.is_dir()), None)
    while found is not None and (found / name).is_dir():
        found = found / name
    return found


def faults(folder: Path, spec: DownloadSet) -> list[str]:
    """Return everything that is missing or wrong in a raw folder; empty for a good one."""
    if not folder.is_dir():
        return ["the folder does not exist"]
    return [*_file_faults(folder, spec.files), *_count_faults(folder, spec.counts)]


def check(root: Path, name: str, spec: DownloadSet) -> Path:
    """Return the raw folder of `name` after verifying it."""
    folder = folder_of(root, name)
    if not (folder / RECEIPT).is_file():
        raise UserError(f"{folder} does not contain {name}; run `{command(root, name)}` first")
    if found := faults(folder, spec):
        raise UserError(
            f"{folder} is not the published {name}: {'; '.join(found)}. "
            f"Run `{command(root, name)}` to repair it"
        )
    return folder


def fingerprint(folder: Path) -> str:
    """Return a hash that changes with the official files or the lists beside them."""
    receipt = read_json(folder / RECEIPT, "receipt")
    lists = {name: digest(folder / LISTS / name, "md5") for name in files_below(folder / LISTS)}
    return canonical_hash([receipt.get("digests"), lists])


def receipt(name: str, source: dict[str, Any], digests: dict[str, Any]) -> dict[str, Any]:
    return {"set": name, "source": source, "digests": digests}


def _file_faults(folder: Path, files: dict[str, str]) -> list[str]:
    found = []
    for name, md5 in files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif fault := _md5_fault(path, md5):
            found.append(f"{name} {fault}")
    return found


def _md5_fault(path: Path, md5: str) -> str | None:
    try:
        seen = digest(path, "md5")
    except OSError as error:
        return f"cannot be read ({reason(error)})"
    return None if seen == md5 else f"has md5 {seen}, expected {md5}"


def _count_faults(folder: Path, counts: dict[str, int]) -> list[str]:
    found = []
    for name, count in counts.items():
        place = find(folder, name)
        if place is None:
            found.append(f"the folder {name}/ is missing")
            continue
        seen = listing(place)
        found += seen.faults[:3]
        if len(seen.files) != count:
            found.append(f"{name}/ holds {len(seen.files)} files, expected {count}")
    return found
