"""Files: whole or not at all, readable everywhere, one process per folder."""

import csv
import errno
import fcntl
import hashlib
import io
import json
import math
import multiprocessing
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from full_disk import fill_disk
from hypothesis import given
from hypothesis import strategies as st

from dac.io import files
from dac.io.errors import UserError

# --- whole files ------------------------------------------------------------------------------


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_appears_with_its_folders(tmp_path: Path) -> None:
    files.write_text(tmp_path / "a/b/c.txt", "grün\n")
    assert (tmp_path / "a/b/c.txt").read_bytes() == "grün\n".encode()
    assert names(tmp_path / "a/b") == {"c.txt"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_content(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with pytest.raises(error), files.atomic(path) as file:
        file.write(b"half of the n")
        raise error
    assert path.read_text() == "old" and names(tmp_path) == {"a.txt"}


def test_the_new_content_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    with files.atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_full_disk_is_one_message_and_the_old_content_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    fill_disk(monkeypatch, lambda found: found.name.startswith(".a.txt."))
    with pytest.raises(UserError, match=f"no space left while writing {path}.*Free some space"):
        files.write_text(path, "new")
    assert path.read_text() == "old" and names(tmp_path) == {"a.txt"}


def test_a_folder_that_is_a_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(UserError, match=f"cannot write {tmp_path / 'folder/a.txt'}"):
        files.write_text(tmp_path / "folder/a.txt", "x")


def test_a_path_that_is_a_folder_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        files.write_text(tmp_path / "a.txt", "x")
    assert names(tmp_path) == {"a.txt"}


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a pipe"),
        (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), "a socket"),
        (lambda path: path.symlink_to("/dev/null"), "a device"),
    ],
)
def test_a_pipe_a_socket_and_a_device_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    path = Path("out.html")
    make(path)
    before = path.lstat()
    with pytest.raises(UserError, match=f"cannot write out.html: it is {kind}; give the name of a"):
        files.write_text(path, "x")
    assert path.lstat() == before and names(tmp_path) == {"out.html"}


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/none-such"])
def test_open_files_among_devices_are_refused_whatever_they_lead_to(name: str) -> None:
    with pytest.raises(UserError, match=f"cannot write {name}: it is .*name of a regular file"):
        files.refuse_special(Path(name))


def test_a_link_is_replaced_and_the_file_it_points_to_stays(tmp_path: Path) -> None:
    cached, link = tmp_path / "cached", tmp_path / "link"
    cached.write_text("old")
    link.symlink_to(cached)
    files.write_text(link, "new")
    assert (cached.read_text(), link.read_text()) == ("old", "new") and not link.is_symlink()


@pytest.mark.parametrize("name", ["loop/a.txt", "n" * 300])
def test_paths_that_no_system_can_follow_are_one_message(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match=r"cannot write .*give another folder"):
        files.write_text(tmp_path / name, "x")


def test_what_killed_writers_of_a_file_left_goes_with_the_next_write(tmp_path: Path) -> None:
    left = [".a[1].txt.77.0123abcd.partial", ".a[1].txt.78.0123abcd.partial"]
    others = [".b.txt.77.0123abcd.partial", "a[1].txt.partial"]
    for name in (*left, *others):
        (tmp_path / name).write_text("half")
    files.write_text(tmp_path / "a[1].txt", "whole")
    assert names(tmp_path) == {"a[1].txt", *others}
    files.remove_leftovers(tmp_path)
    assert names(tmp_path) == {"a[1].txt", "a[1].txt.partial"}


def test_a_writer_that_is_still_at_work_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with files.atomic(path) as file:
        file.write(b"the last one ")
        files.write_text(path, "another one")
        files.remove_leftovers(tmp_path)
        file.write(b"wins")
    assert path.read_text() == "the last one wins" and names(tmp_path) == {"a.txt"}


def before_the_first_lock(monkeypatch: pytest.MonkeyPatch, happens: Callable[[Any], None]) -> None:
    """Let something happen between the opening of a writer's file and its lock."""
    flock, is_first = fcntl.flock, iter([True])

    def interrupted(file: Any, how: int) -> None:
        if next(is_first, False):
            happens(file)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", interrupted)


def test_a_file_that_is_removed_before_it_is_locked_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    before_the_first_lock(monkeypatch, lambda _: files.write_text(path, "another one"))
    files.write_text(path, "the last one wins")
    assert path.read_text() == "the last one wins" and names(tmp_path) == {"a.txt"}


def test_a_writer_waits_for_who_is_about_to_remove_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, removers = tmp_path / "a.txt", []

    def lock_and_remove_soon(opened: Any) -> None:
        file = Path(opened.name).open("r+b")  # noqa: SIM115 - closed by the remover
        fcntl.flock(file, fcntl.LOCK_EX)
        removers.append(threading.Timer(0.05, lambda: (Path(opened.name).unlink(), file.close())))
        removers[0].start()

    before_the_first_lock(monkeypatch, lock_and_remove_soon)
    with files.atomic(path) as file:
        removers[0].join()
        file.write(b"whole")
    assert path.read_text() == "whole" and names(tmp_path) == {"a.txt"}


def test_a_file_system_without_locks_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(file: Any, how: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    files.write_text(tmp_path / "a.txt", "whole")
    assert (tmp_path / "a.txt").read_text() == "whole" and names(tmp_path) == {"a.txt"}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "raise the quota"),
        (errno.EACCES, "cannot write"),
        (errno.EROFS, "cannot write"),
    ],
)
def test_faults_that_a_user_can_remedy_are_explained(number: int, words: str) -> None:
    assert words in str(files.explain(OSError(number, "reason"), Path("a")))


def test_other_faults_of_a_disk_are_not_the_users() -> None:
    assert files.explain(OSError(errno.EIO, "reason"), Path("a")) is None


def test_arrays_are_read_back(tmp_path: Path) -> None:
    files.write_arrays(tmp_path / "a.npz", {"x": np.arange(3), "y": np.zeros((2, 2))})
    with np.load(tmp_path / "a.npz") as found:
        assert found["x"].tolist() == [0, 1, 2] and found["y"].shape == (2, 2)


# --- JSON -------------------------------------------------------------------------------------


def test_json_is_strict_and_sorted(tmp_path: Path) -> None:
    value = {"b": [math.nan, math.inf, -math.inf], "a": {"c": (1, 2.5)}}
    files.write_json(tmp_path / "a.json", value)
    text = (tmp_path / "a.json").read_text()
    found = json.loads(text, parse_constant=pytest.fail)
    assert found == {"a": {"c": [1, 2.5]}, "b": [None, "inf", "-inf"]} == files.portable(value)
    assert list(found) == ["a", "b"] and text.endswith("\n")


def test_a_missing_or_broken_json_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    with pytest.raises(UserError, match=f"metrics file {path} does not exist; run the stage"):
        files.read_json(path, "metrics file")
    too_deep, too_long = b"[" * 100_000, b"[" + b"1" * 5000 + b"]"
    for content in (b"", b'{"a":', b"\xff\xfe", too_deep, too_long):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"metrics file {path} cannot be read .*delete it"):
            files.read_json(path, "metrics file")


def test_a_json_file_that_may_not_be_read_or_is_a_folder_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\); delete it"):
        files.read_json(tmp_path, "metrics file")

    def denied(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    path = tmp_path / "metrics.json"
    path.write_text("{}")
    monkeypatch.setattr(Path, "read_text", denied)
    told = r"cannot be read \(Permission denied\); fix its permissions and run the same command"
    with pytest.raises(UserError, match=told) as caught:
        files.read_json(path, "metrics file")
    assert "delete" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "it is a pipe, expected a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device, expected a regular file"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path), "Too many levels"),
    ],
)
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, make: Any, told: str) -> None:
    path = tmp_path / "metrics.json"
    make(path)
    with pytest.raises(OSError, match=told):
        files.regular(path)
    with pytest.raises(UserError, match=rf"metrics file {path} cannot be read \({told}.*delete it"):
        files.read_json(path, "metrics file")


def test_a_link_to_a_file_is_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "cached").touch()
    (tmp_path / "link").symlink_to("cached")
    assert files.regular(tmp_path / "link") == tmp_path / "link"
    with pytest.raises(FileNotFoundError):
        files.regular(tmp_path / "none")


def test_a_hash_does_not_depend_on_the_order_of_keys() -> None:
    one, other = {"a": 1, "b": [1, {"c": 2}]}, {"b": [1, {"c": 2}], "a": 1}
    assert files.canonical_hash(one) == files.canonical_hash(other)
    assert files.canonical_hash(one) != files.canonical_hash(one | {"a": 2})
    expected = hashlib.sha256(b'{"a":1,"b":[1,{"c":2}]}').hexdigest()
    assert files.canonical_hash(one) == expected, "hashes of finished runs would change"


def test_flat_names_join_the_keys() -> None:
    assert files.flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {
        "a.b": 1,
        "a.c.d": 2,
        "e": [3],
    }


def test_a_digest_is_that_of_the_content(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "a", b"abc" * 1_000_000)
    assert files.digest(tmp_path / "a") == hashlib.sha256(b"abc" * 1_000_000).hexdigest()
    assert files.digest(tmp_path / "a", "md5") == hashlib.md5(b"abc" * 1_000_000).hexdigest()


# --- CSV --------------------------------------------------------------------------------------


def test_csv_has_a_line_per_row_and_empty_fields_for_none() -> None:
    assert files.csv_text(["step", "loss"], [[1, 0.5], [2, None]]) == "step,loss\n1,0.5\n2,\n"
    assert files.csv_text(["step"], []) == "step\n"


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_floats_read_back_the_same(values: list[float]) -> None:
    rows = list(csv.reader(io.StringIO(files.csv_text(["x"], [[value] for value in values]))))
    assert [float(row[0]) for row in rows[1:]] == values


def test_csv_is_what_pandas_writes() -> None:
    losses = [0.1, None, 1e-300, 12345678.9]
    scores = np.array([0.1, 1 / 3, 1e-7, 1e16], dtype=np.float32)
    frame = pd.DataFrame(
        {
            "file": ["a.jpg", "with, comma.jpg", 'a "quote".jpg', "two\nlines.jpg"],
            "step": [1, 20, 300, 4000],
            "loss": losses,
            "score": scores,
        }
    )
    rows = list(zip(frame["file"], frame["step"], losses, scores, strict=True))
    assert files.csv_text(list(frame), rows) == frame.to_csv(index=False, lineterminator="\n")


def test_quoted_text_keeps_carriage_returns_and_numbers_stay_bare() -> None:
    written = files.csv_text(["file", "score"], [["a\rb", np.float32(0.5)]], quote_text=True)
    assert written == '"file","score"\n"a\rb",0.5\n'
    assert list(csv.reader(io.StringIO(written, newline="")))[1] == ["a\rb", "0.5"]


def test_there_is_one_writer_of_csv() -> None:
    package = Path(files.__file__).parents[1]
    others = [path for path in package.rglob("*.py") if path != Path(files.__file__)]
    writers = ("csv.writer(", "csv.DictWriter(", ".to_csv(")
    found = [path for path in others if any(writer in path.read_text() for writer in writers)]
    assert not found


# --- locks ------------------------------------------------------------------------------------


def hold(folder: Path, held: Any, go_on: Any) -> None:
    with files.locked(folder, "run"):
        held.set()
        go_on.wait(60)


def test_a_second_process_learns_who_holds_the_folder_and_death_frees_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")  # quick: nothing is imported again
    held, go_on = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, held, go_on))
    holder.start()
    assert held.wait(60)
    with (
        pytest.raises(UserError, match=f"run {tmp_path} is in use by process {holder.pid} on "),
        files.locked(tmp_path, "run"),
    ):
        pytest.fail("two processes hold one folder")
    holder.kill()
    holder.join()
    with files.locked(tmp_path, "run"):
        pass


def test_a_lock_ends_with_its_block(tmp_path: Path) -> None:
    for _ in range(2):
        with files.locked(tmp_path / "new", "run"):
            pass


def test_a_folder_that_cannot_be_made_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write"), files.locked(tmp_path / "file/run", "run"):
        pytest.fail("locked a file")


def test_a_full_disk_does_not_keep_a_folder_from_being_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, lambda path: path.name == "lock")
    with files.locked(tmp_path, "run"):
        pass
