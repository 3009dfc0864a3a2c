"""What is below a folder: links are followed, and nothing is skipped silently."""

import errno
import os
from pathlib import Path

import pytest
from tiny_sets import unreadable_folder, write_files

from dac.data.listing import Listing, files_below, listing, shown
from dac.io.errors import UserError


def test_files_are_sorted_by_path_and_hidden_ones_named(tmp_path: Path) -> None:
    names = ["b/a", "a", "b.c", ".x", "b/.y/z", "b/B"]
    write_files(tmp_path, dict.fromkeys(names, b""))
    assert listing(tmp_path) == Listing(
        files=["a", "b.c", "b/B", "b/a"], folders=["b"], hidden=[".x", "b/.y"], faults=[]
    )


def test_nothing_is_below_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert listing(tmp_path / "none") == Listing([], [], [], [])


def test_folders_are_sorted_by_name_and_empty_ones_are_among_them(tmp_path: Path) -> None:
    for name in ("a", "a.b", "a/c", "z"):
        (tmp_path / name).mkdir()
    assert listing(tmp_path).folders == ["a", "a.b", "a/c", "z"]


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    write_files(tmp_path / "far", {"1/x": b"", "y": b"", "z": b""})
    (tmp_path / "here").mkdir()
    (tmp_path / "here/folder").symlink_to("../far/1")
    (tmp_path / "here/file").symlink_to(tmp_path / "far/y")
    (tmp_path / "here/again").symlink_to(tmp_path / "far/y")
    assert files_below(tmp_path / "here") == ["again", "file", "folder/x"]


def test_a_link_to_a_folder_that_contains_it_is_a_fault(tmp_path: Path) -> None:
    write_files(tmp_path, {"top/a/x": b""})
    (tmp_path / "top/a/up").symlink_to("../..")  # above the top: found one round later
    (fault,) = listing(tmp_path / "top").faults
    assert fault.startswith(f"{tmp_path}/top/a/up/top is the same folder as {tmp_path}/top, and")


def test_a_folder_that_is_reached_twice_is_a_fault_of_the_link(tmp_path: Path) -> None:
    write_files(tmp_path, {"top/middle/x": b""})
    for link in ("a", "z"):
        (tmp_path / "top" / link).symlink_to("middle")
    found = listing(tmp_path / "top")
    assert found.files == ["middle/x"]
    same = f"is the same folder as {tmp_path}/top/middle, and its files would be used twice"
    assert found.faults == [f"{tmp_path}/top/{link} {same}" for link in ("a", "z")]


def test_two_links_per_level_do_not_double_the_files_with_every_level(tmp_path: Path) -> None:
    """Without a memory of the folders seen, thirty levels never end."""
    for level in range(30):
        folder = tmp_path / str(level)
        folder.mkdir()
        for link in ("left", "right"):
            (folder / link).symlink_to(tmp_path / str(level + 1))
    write_files(tmp_path / "30", {"x": b""})
    found = listing(tmp_path / "0")
    assert found.files == ["left/" * 30 + "x"]
    assert len(found.faults) == 30


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


def test_names_that_would_break_a_line_are_escaped_in_messages() -> None:
    assert shown("plain name.jpg") == "plain name.jpg"
    assert shown("a\nb\udcff") == r"'a\nb\udcff'"
