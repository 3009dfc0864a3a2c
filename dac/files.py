"""Files that are never half a file: write beside, fsync, rename. Checksums and locks.

A reader of any path written here sees either nothing, the old content or the whole new content.
"""

import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dac.errors import UserError

CHUNK = 1 << 20


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under `path` only when the block ends without an error."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        if message := explain(error, path):
            raise UserError(message) from error
        raise
    finally:
        with suppress(OSError):  # the folder itself may be what is wrong
            beside.unlink(missing_ok=True)


def explain(error: OSError, path: Path) -> str | None:
    """One message for the write faults a user can mend; None for the others."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left while writing {path}; nothing was changed there. "
            "Free some space (or raise the quota) and run the same command again"
        )
    if error.errno in (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
    ):
        return (
            f"cannot write {path} ({error.strerror}); "
            "give another folder or mend its permissions, then run the same command again"
        )
    return None


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    with atomic(path) as file:
        file.write(content)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A compressed .npz file."""
    with atomic(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """JSON that every reader accepts: NaN becomes null, infinities become "inf" and "-inf"."""
    content = json.dumps(portable(value), indent=1, sort_keys=True, allow_nan=False)
    write_text(path, content + "\n")


def portable(value: Any) -> Any:
    """`value` as it comes back from a file of `write_json`."""
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
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(
            f"{what} {path} does not exist; run the stage that makes it first"
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(
            f"{what} {path} cannot be read ({error}); delete it and run its stage again"
        ) from error


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def digest(path: Path, algorithm: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def canonical_hash(value: Any) -> str:
    """sha256 of a JSON value, independent of key order and white space."""
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold `folder` for one process; a second one is refused. The kernel frees it on any death."""
    path = folder / "lock"
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
                    f"{what} {folder} cannot be locked ({error.strerror}): its file system has no "
                    "locks; give a folder on another one"
                ) from error
            file.seek(0)
            raise UserError(
                f"{what} {folder} is in use by {file.read().strip() or 'another process'}; "
                "wait for it, stop it, or give another folder"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
