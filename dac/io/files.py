"""Files that are never half written: write beside, fsync, rename. Also checksums and locks.

A reader of any path written here sees either no file, the old content or all of the new content.
"""

import csv
import errno
import fcntl
import glob
import hashlib
import io
import json
import math
import os
import secrets
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dac.io.errors import AGAIN, FOR_THE_USER, FULL, UserError, reason, remedy

if TYPE_CHECKING:
    import numpy as np

CHUNK = 1 << 20
SPECIAL = {
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears at `path` only if the block ends without an error.

    A link at `path` is replaced, and the file it points to stays as it is: with DVC's links that
    file is in the cache and must not change. What killed writers of `path` have left is removed.
    """
    refuse_special(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened_beside(path) as (beside, file):
            yield file
            file.flush()
            os.fsync(file.fileno())
            beside.replace(path)  # before the lock ends
        sync_folder(path.parent)
        remove_leftovers(path.parent, path.name)
    except OSError as error:
        if message := explain(error, path):
            raise UserError(message) from error
        raise


@contextmanager
def _opened_beside(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a file beside `path` that is locked, so that nobody takes it for a leftover."""
    while True:
        beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
        try:
            with beside.open("wb") as file:
                with suppress(OSError):  # not every file system has locks
                    fcntl.flock(file, fcntl.LOCK_EX)  # waits for who is about to remove it
                if beside.exists():  # not removed between the two lines above
                    yield beside, file
                    return
        finally:
            with suppress(OSError):  # the folder itself may be the problem
                beside.unlink(missing_ok=True)


def refuse_special(path: Path) -> None:
    """Refuse a device, pipe or socket, in whose place a rename would put a regular file."""
    folder = os.path.realpath(path.parent)
    kind = "in a system folder" if folder == "/dev" or folder.startswith("/proc/") else None
    with suppress(OSError):  # nothing is there, or writing will say what is wrong
        kind = SPECIAL.get(stat.S_IFMT(path.stat().st_mode), kind)
    if kind is not None:
        raise UserError(f"cannot write {path}: it is {kind}; give the name of a regular file")


def regular(path: Path) -> Path:
    """Return `path` if it leads to a regular file; reading a pipe or a device may never end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kind = SPECIAL.get(stat.S_IFMT(mode), "special")
        raise OSError(f"it is {kind}, expected a regular file")
    return path


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers of `name`, or of any file, have left in `folder`.

    The file of a writer that is still at work is locked, and stays.
    """
    of_name = "*" if name is None else glob.escape(name)
    for path in folder.glob(f".{of_name}.*.partial"):
        with suppress(OSError), path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def explain(error: OSError, path: Path) -> str | None:
    """Return a message for write errors that a user can fix; None for the others."""
    if error.errno not in FOR_THE_USER:
        return None
    step = remedy(error, f"give another folder and {AGAIN}")
    if error.errno in FULL:
        step = step.capitalize()
        return f"no space left while writing {path}; nothing was changed there. {step}"
    return f"cannot write {path} ({error.strerror}); {step}"


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    with atomic(path) as file:
        file.write(content)


def write_arrays(path: Path, arrays: "dict[str, np.ndarray]") -> None:
    """Write a compressed .npz file."""
    import numpy as np  # the workflow reads this module in every job and writes no arrays

    with atomic(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON that every reader accepts: NaN is null, infinities are "inf" and "-inf"."""
    content = json.dumps(portable(value), indent=1, sort_keys=True, allow_nan=False)
    write_text(path, content + "\n")


def portable(value: Any) -> Any:
    """Return `value` as it reads back from a file written by `write_json`."""
    if isinstance(value, dict):
        return {key: portable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def read_json(path: Path, what: str) -> Any:
    """Parse a JSON file; `what` names it in the message when it is missing or broken."""
    try:
        return json.loads(regular(path).read_text())
    except FileNotFoundError:
        raise UserError(
            f"{what} {path} does not exist; run the stage that makes it first"
        ) from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no JSON, or a huge number
        step = remedy(error, "delete it and run its stage again")
        raise UserError(f"{what} {path} cannot be read ({reason(error)}); {step}") from error


def csv_text(
    header: Sequence[str], rows: Iterable[Sequence[Any]], *, quote_text: bool = False
) -> str:
    """Return CSV text: None is an empty field, and floats read back exactly.

    Quote all text if it may hold a carriage return: one without quotes ends the row.
    """
    text = io.StringIO()
    writer = csv.writer(
        text,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if quote_text else csv.QUOTE_MINIMAL,
    )
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn {"a": {"b": 1}} into {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def digest(path: Path, algorithm: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def canonical_hash(value: Any) -> str:
    """sha256 of a JSON value, independent of key order and whitespace."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold `folder` for one process and refuse others; the kernel frees it when that one ends."""
    path = folder / "lock"
    refuse_special(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise UserError(explain(error, path) or f"cannot use {what} {folder} ({error})") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise UserError(
                    f"{what} {folder} cannot be locked ({error.strerror}): its file system does "
                    "not support locks; give a folder on another one"
                ) from error
            file.seek(0)
            raise UserError(
                f"{what} {folder} is in use by {file.read().strip() or 'another process'}; "
                "wait for it, stop it, or give another folder"
            ) from None
        with suppress(OSError):  # on a full disk others are not told who holds the folder
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
