"""The raw folder: what is missing or wrong in it."""

from pathlib import Path

from tiny_sets import write_files

from dac.config import DownloadSet
from dac.data import raw


def test_faults_of_a_raw_folder_are_among_its_faults(tmp_path: Path) -> None:
    write_files(tmp_path, {"train/a": b""})
    (tmp_path / "train/b").symlink_to("gone")
    link, count = raw.faults(tmp_path, DownloadSet(counts={"train": 2}))
    assert "train/b is a link to gone" in link
    assert count == "train/ holds 1 files, expected 2"
