"""Write errors as messages: a full or read-only disk is for the user to fix, not a crash."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from dac.io.errors import UserError
from dac.io.files import explain


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn any OSError raised in the block into one message about `path`."""
    try:
        yield
    except OSError as error:
        message = explain(error, path) or f"cannot write {path} ({error.strerror or error})"
        raise UserError(message) from error


def write_all(file: FileIO, content: bytes, path: Path) -> None:
    """Write all of `content` to an unbuffered file. A buffered one would fail again in close(),
    and that bare error would replace the message."""
    with writing(path):
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def check_space(folder: Path, needed: int) -> None:
    """Fail early if the disk is too small; a quota still shows up only while writing."""
    free = free_bytes(folder)
    if needed > free:
        raise UserError(
            f"{folder} needs {needed / 1e6:,.1f} MB and its disk has {free / 1e6:,.1f} MB free; "
            "free some space or give another --root"
        )
