"""Snakemake's memory as one archive: whole, equal for equal content, harmless when damaged."""

import io
import tarfile
from pathlib import Path

import pytest

from dac.workflow_memory import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / ".snakemake/metadata", tmp_path / "provenance/snakemake.tgz")


def fill(memory: Memory, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = memory.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


FILES = {"cnVucw==": '{"rule": "train"}', "deep/b64": "{}"}


def empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()


def test_what_was_saved_comes_back(memory: Memory) -> None:
    fill(memory, FILES)
    memory.save()
    empty(memory.folder)
    memory.restore()
    found = {
        path.relative_to(memory.folder).as_posix(): path.read_text()
        for path in memory.folder.rglob("*")
        if path.is_file()
    }
    assert found == FILES


def test_equal_memories_are_equal_bytes(memory: Memory, tmp_path: Path) -> None:
    fill(memory, FILES)
    memory.save()
    other = Memory(tmp_path / "other", tmp_path / "other.tgz")
    fill(other, dict(reversed(FILES.items())))
    other.save()
    assert memory.archive.read_bytes() == other.archive.read_bytes()


def test_a_memory_that_is_there_is_left_alone(memory: Memory) -> None:
    fill(memory, FILES)
    memory.save()
    fill(memory, {"cnVucw==": "newer"})
    memory.restore()
    assert (memory.folder / "cnVucw==").read_text() == "newer"


def test_an_empty_memory_does_not_replace_the_archive(memory: Memory) -> None:
    fill(memory, FILES)
    memory.save()
    before = memory.archive.read_bytes()
    empty(memory.folder)
    memory.save()
    assert memory.archive.read_bytes() == before


def test_a_damaged_archive_is_told_and_left(memory: Memory, capsys) -> None:
    memory.archive.parent.mkdir()
    memory.archive.write_bytes(b"not an archive")
    memory.restore()
    assert "cannot be read" in capsys.readouterr().err
    assert memory.archive.read_bytes() == b"not an archive"


def test_an_archive_cannot_write_outside_its_folder(memory: Memory, capsys) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../evil"), io.BytesIO())
    memory.archive.parent.mkdir()
    memory.archive.write_bytes(buffer.getvalue())
    memory.restore()
    assert not (memory.folder.parents[1] / "evil").exists()
    assert "cannot be read" in capsys.readouterr().err
