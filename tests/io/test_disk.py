"""Faults of a disk as messages, and refusals before any work."""

from pathlib import Path

import pytest

from dac.io import disk
from dac.io.disk import check_space, write_all, writing
from dac.io.errors import UserError


def test_a_full_disk_is_one_message_even_when_closing_fails_too(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=f"no space left while writing {tmp_path / 'a'}"),
        Path("/dev/full").open("wb", buffering=0) as file,
    ):
        write_all(file, bytes(100_000), tmp_path / "a")


def test_everything_is_written_where_the_system_takes_less_at_a_time(tmp_path: Path) -> None:
    class Slow:
        def __init__(self) -> None:
            self.content = b""

        def write(self, rest: memoryview) -> int:
            self.content += bytes(rest[:7])
            return min(7, len(rest))

    file, content = Slow(), bytes(range(100))
    write_all(file, content, tmp_path / "a")  # type: ignore[arg-type]
    assert file.content == content


def test_any_fault_while_writing_names_the_path(tmp_path: Path) -> None:
    message = f"cannot write {tmp_path} .*Input/output error"
    with pytest.raises(UserError, match=message), writing(tmp_path):
        raise OSError(5, "Input/output error")


def test_more_than_the_disk_has_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 2_000_000)
    check_space(tmp_path, 2_000_000)
    with pytest.raises(UserError, match=r"needs 3\.0 MB and its disk has 2\.0 MB free; free some"):
        check_space(tmp_path, 3_000_000)
