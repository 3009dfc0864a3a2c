"""A disk that is full for chosen files: they are opened as /dev/full, so the kernel says ENOSPC."""

from collections.abc import Callable
from pathlib import Path

import pytest


def fill_disk(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[Path], bool]) -> None:
    real_open = Path.open

    def open_or_full(self: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        if set(mode) & set("wax") and is_full(self):
            real_open(self, mode).close()  # the name appears, as on a real disk
            return real_open(Path("/dev/full"), "wb", *arguments, **options)  # type: ignore
        return real_open(self, mode, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_or_full)
