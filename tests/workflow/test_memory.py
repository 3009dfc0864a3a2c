"""Snakemake's memory as one archive: whole, equal for equal content, harmless when damaged."""

import dataclasses
import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dac.workflow.memory import Memory


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(
        tmp_path / ".snakemake/metadata", tmp_path / "provenance/snakemake.tgz", tmp_path / "stamp"
    )


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
    memory.stamp.unlink()
    memory.restore()
    found = {
        path.relative_to(memory.folder).as_posix(): path.read_text()
        for path in memory.folder.rglob("*")
        if path.is_file()
    }
    assert found == FILES


def test_records_of_untracked_rules_stay_at_home(memory: Memory) -> None:
    fill(memory, FILES)
    memory.save()
    before = memory.archive.read_bytes()
    fill(memory, {"cmVwb3J0": '{"rule": "report"}'})
    dataclasses.replace(memory, untracked=frozenset({"report"})).save()
    assert memory.archive.read_bytes() == before
    memory.save()
    assert memory.archive.read_bytes() != before


def test_equal_memories_are_equal_bytes(memory: Memory, tmp_path: Path) -> None:
    fill(memory, FILES)
    memory.save()
    other = Memory(tmp_path / "other", tmp_path / "other.tgz", tmp_path / "other.stamp")
    fill(other, dict(reversed(FILES.items())))
    other.save()
    assert memory.archive.read_bytes() == other.archive.read_bytes()


def test_what_happened_since_the_last_archive_is_left_alone(memory: Memory) -> None:
    fill(memory, FILES)
    memory.save()
    fill(memory, {"cnVucw==": "newer"})
    memory.restore()
    assert (memory.folder / "cnVucw==").read_text() == "newer"


def test_an_archive_that_came_from_elsewhere_is_taken_over(memory: Memory, tmp_path: Path) -> None:
    fill(memory, FILES | {"mine": "1"})
    memory.save()
    colleague = Memory(tmp_path / "theirs", memory.archive, tmp_path / "their.stamp")
    fill(colleague, FILES | {"cnVucw==": "theirs"})
    colleague.save()
    memory.restore()
    assert (memory.folder / "cnVucw==").read_text() == "theirs"
    assert (memory.folder / "mine").read_text() == "1"
    fill(memory, {"cnVucw==": "newer"})
    memory.restore()  # taken over once
    assert (memory.folder / "cnVucw==").read_text() == "newer"


def test_an_empty_memory_does_not_replace_the_archive(memory: Memory) -> None:
    fill(memory, FILES)
    memory.save()
    before = memory.archive.read_bytes()
    empty(memory.folder)
    memory.save()
    assert memory.archive.read_bytes() == before


def test_a_damaged_archive_is_named_and_left(memory: Memory, capsys) -> None:
    memory.archive.parent.mkdir()
    memory.archive.write_bytes(b"not an archive")
    memory.restore()
    assert "cannot be read" in capsys.readouterr().err
    assert memory.archive.read_bytes() == b"not an archive"


@settings(max_examples=25)
@given(at=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_damaged_byte_is_noticed(at: int, value: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = Memory(Path(folder, "m"), Path(folder, "a.tgz"), Path(folder, "s"))
        fill(memory, {f"record{n}": str(n) * 50 for n in range(40)})
        memory.save()
        content = bytearray(memory.archive.read_bytes())
        at = 10 + at % (len(content) - 10)  # the header's bytes carry no content
        if content[at] == value:
            return
        content[at] = value
        memory.archive.write_bytes(bytes(content))
        empty(memory.folder)
        memory.restore()
        found = len(list(memory.folder.rglob("*")))
        assert found in (0, 40)  # nothing, or a byte that carries none of the content


def test_an_archive_cannot_write_outside_its_folder(memory: Memory, capsys) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../evil"), io.BytesIO())
    memory.archive.parent.mkdir()
    memory.archive.write_bytes(buffer.getvalue())
    memory.restore()
    assert not (memory.folder.parents[1] / "evil").exists()
    assert "cannot be read" in capsys.readouterr().err
