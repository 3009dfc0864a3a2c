"""What is below a folder: links are followed, and nothing is skipped silently."""

import errno
import os
from pathlib import Path

import pytest
from tiny_sets import unreadable_folder, write_files

from dac.config import DownloadSet
from dac.data import raw
from dac.data.raw import Listing, files_below, listing
from dac.io.errors import UserError


def test_files_are_sorted_by_path_and_hidden_ones_named(tmp_path: Path) -> None:
    names = ["b/a", "a", "b.c", ".x", "b/.y/z", "b/B"]
    write_files(tmp_path, dict.fromkeys(names, b""))
    assert listing(tmp_path) == Listing(["a", "b.c", "b/B", "b/a"], [".x", "b/.y"], [])


def test_nothing_is_below_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert listing(tmp_path / "none") == Listing([], [], [])


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    write_files(tmp_path / "far", {"1/x": b"", "y": b""})
    (tmp_path / "here").mkdir()
    (tmp_path / "here/folder").symlink_to(tmp_path / "far")
    (tmp_path / "here/again").symlink_to("../far/1")
    (tmp_path / "here/file").symlink_to(tmp_path / "far/y")
    assert files_below(tmp_path / "here") == ["again/x", "file", "folder/1/x", "folder/y"]


def test_a_link_to_a_folder_that_contains_it_is_a_fault(tmp_path: Path) -> None:
    write_files(tmp_path, {"top/a/x": b""})
    (tmp_path / "top/a/up").symlink_to("../..")  # above the top: found one round later
    (fault,) = listing(tmp_path / "top").faults
    assert fault == f"{tmp_path}/top/a/up/top is a link to {tmp_path}/top, which contains it"


@pytest.mark.parametrize("target", ["gone", "self"])
def test_a_link_that_leads_nowhere_is_a_fault(tmp_path: Path, target: str) -> None:
    (tmp_path / "self").symlink_to(target)
    reason = os.strerror(errno.ENOENT if target == "gone" else errno.ELOOP)
    with pytest.raises(UserError) as caught:
        files_below(tmp_path)
    expected = f"{tmp_path}/self is a link to {target}, which cannot be read ({reason}); repair"
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("place", ["top", "top/a", "top/a/b"])
def test_a_folder_that_cannot_be_read_is_a_fault(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {"top/a/b/x": b"", "top/y": b""})
    unreadable_folder(monkeypatch, tmp_path / place)
    (fault,) = listing(tmp_path / "top").faults
    assert fault == f"{tmp_path / place} cannot be read (Permission denied)"


def test_many_faults_are_counted(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / str(i)).symlink_to("gone")
    with pytest.raises(UserError, match="; and 2 more; repair or remove"):
        files_below(tmp_path)


def test_faults_of_a_raw_folder_are_among_its_faults(tmp_path: Path) -> None:
    write_files(tmp_path, {"train/a": b""})
    (tmp_path / "train/b").symlink_to("gone")
    link, count = raw.faults(tmp_path, DownloadSet(counts={"train": 2}))
    assert "train/b is a link to gone" in link
    assert count == "train/ holds 1 files, expected 2"


def test_names_that_would_break_a_line_are_escaped_in_messages() -> None:
    assert raw.shown("plain name.jpg") == "plain name.jpg"
    assert raw.shown("a\nb\udcff") == r"'a\nb\udcff'"
