"""Preparing a set again: the one prepared before stays until the new one is whole."""

import faulthandler
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import fill_disk

from dac.data import prepared_writer
from dac.data.prepared import PartName, load
from dac.data.prepared_writer import NewPart, NewSet
from dac.io.errors import UserError

BEFORE, AFTER = 1, 2  # the value of every pixel: the sets differ in nothing that sizes show
FILES = {f"train{ending}" for ending in (".npy", "_labels.npy", "_files.json")}


def part(pixel: int, names: tuple[str, ...] = ("a", "b")) -> NewPart:
    return NewPart(np.array([0, 1]), 2, [np.full((2, 3, 2, 2), pixel, np.uint8)], names)


def write(root: Path, pixel: int, **more: NewPart) -> None:
    parts: dict[PartName, NewPart] = {"train": part(pixel), **more}  # type: ignore[dict-item]
    with prepared_writer.held(root, "digits") as folder:
        prepared_writer.write(folder, "digits", NewSet(("0", "1"), parts), {"pixel": pixel})


def pixel_of(root: Path) -> int:
    """The pixel of the set, after checking that it is whole."""
    found = load(root, "digits")
    found.verify()
    (pixel,) = np.unique(found.part("train").images)
    assert found.meta["recipe"] == {"pixel": pixel}
    return int(pixel)


def names_in(root: Path) -> set[str]:
    return {path.name for path in (root / "prepared/digits").iterdir()}


def interrupted(error: BaseException) -> Iterator[np.ndarray]:
    yield np.zeros((1, 3, 2, 2), np.uint8)
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UserError("cannot be decoded")])
def test_an_error_leaves_the_set_prepared_before(
    tmp_path: Path, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, BEFORE)
    with pytest.raises(type(error)):
        write(tmp_path, AFTER, test=NewPart(np.zeros(2), 2, interrupted(error)))
    assert pixel_of(tmp_path) == BEFORE
    assert names_in(tmp_path) == FILES | {"lock", "meta.json"}
    assert "the set prepared before" in capsys.readouterr().err
    write(tmp_path, AFTER)
    assert pixel_of(tmp_path) == AFTER


def test_an_error_in_the_first_attempt_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write(tmp_path, AFTER, test=NewPart(np.zeros(2), 2, interrupted(UserError("no"))))
    assert names_in(tmp_path) == {"lock"}


@pytest.mark.parametrize("file", sorted(FILES | {"meta.json"}))
def test_a_full_disk_leaves_the_set_prepared_before(tmp_path: Path, file: str) -> None:
    write(tmp_path, BEFORE)
    with pytest.MonkeyPatch.context() as patch:
        fill_disk(patch, lambda path: path.name.startswith(f".{file}."))
        with pytest.raises(UserError, match="no space left while writing"):
            write(tmp_path, AFTER)
    assert pixel_of(tmp_path) == BEFORE
    assert names_in(tmp_path) == FILES | {"lock", "meta.json"}


def test_the_space_that_both_sets_need_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, BEFORE)
    monkeypatch.setattr("dac.io.disk.free_bytes", lambda folder: 10)
    with pytest.raises(UserError, match="stays until the new one is whole; to do without it, del"):
        write(tmp_path, AFTER)
    assert pixel_of(tmp_path) == BEFORE


def test_files_that_the_new_set_does_not_have_are_removed(tmp_path: Path) -> None:
    write(tmp_path, BEFORE, dev=part(BEFORE))
    (tmp_path / "prepared/digits/train_files.txt").write_text("of a former version")
    (tmp_path / "prepared/digits/notes.txt").write_text("of the user")
    write(tmp_path, AFTER)
    assert names_in(tmp_path) == FILES | {"lock", "meta.json", "notes.txt"}


@pytest.mark.parametrize(("names", "format"), [((), 1), (("a", "b"), 2)])
def test_only_sets_with_file_names_have_the_new_format(
    tmp_path: Path, names: tuple[str, ...], format: int
) -> None:
    """The others must keep the bytes of their description: shipped results depend on them."""
    with prepared_writer.held(tmp_path, "digits") as folder:
        new = NewSet(("0", "1"), {"train": part(BEFORE, names)})
        prepared_writer.write(folder, "digits", new, {})
    assert load(tmp_path, "digits").meta["format"] == format


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    write(tmp_path, BEFORE)
    folder = tmp_path / "prepared/digits"
    (folder / ".train.npy.1.abcd.partial").write_bytes(b"of a former version")
    for name in (".set.partial", ".arriving-0123456789abcdef"):
        (folder / name).mkdir()
        (folder / name / "train.npy").write_bytes(b"half")
    with prepared_writer.held(tmp_path, "digits"):
        assert names_in(tmp_path) == FILES | {"lock", "meta.json"}
    assert pixel_of(tmp_path) == BEFORE


# --- kill -9 ------------------------------------------------------------------------------------

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def is_killed(action: Callable[[], object], at_change: int) -> bool:
    """Run `action` in a child that kill -9 hits before its n-th change of the file system."""
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(60, exit=True, file=os.dup(2))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        changes = itertools.count()

        def kill(event: str, arguments: tuple[Any, ...]) -> None:
            is_change = event in CHANGES or (event == "open" and arguments[1] == "wb")
            if is_change and next(changes) == at_change:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        try:
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_kill_at_any_moment_leaves_the_old_set_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # for power cuts only, and slow
    left, dev = [], {name.replace("train", "dev") for name in FILES}
    for change in itertools.count():
        root = tmp_path / str(change)
        write(root, BEFORE, dev=part(BEFORE))
        was_killed = is_killed(lambda root=root: write(root, AFTER), change)  # type: ignore[misc]
        left.append(pixel_of(root))
        with prepared_writer.held(root, "digits"):  # the next command, whatever it does then
            more = dev if left[-1] == BEFORE else set()
            assert names_in(root) == FILES | more | {"lock", "meta.json"}
            assert pixel_of(root) == left[-1]
        write(root, AFTER)
        assert pixel_of(root) == AFTER
        if not was_killed:
            break
    assert left == sorted(left) and left.count(BEFORE) > 10 and left.count(AFTER) > 4
