"""The prepared format: what was written is read back, and damage of any kind is found."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dac.data import prepared, prepared_writer
from dac.data.prepared import load
from dac.data.prepared_writer import NewPart, NewSet
from dac.io.errors import UserError


def small_set(count: int = 4) -> NewSet:
    images = np.arange(count * 3 * 4, dtype=np.uint8).reshape(count, 3, 2, 2)
    blocks = [images[:1], images[1:]]
    part = NewPart(np.arange(count) - 1, 2, blocks, tuple(f"a/{i}.png" for i in range(count)))
    return NewSet(("a", "b", "c"), {"train": part}, labeled_count=2)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The folder of a small prepared set named digits."""
    with prepared_writer.held(tmp_path, "digits") as folder:
        prepared_writer.write(folder, "digits", small_set(), {"side": 2})
    return folder


def test_what_was_written_is_read_back(tmp_path: Path, small: Path) -> None:
    found = load(tmp_path, "digits")
    part = found.part("train")
    assert (part.images == np.arange(48, dtype=np.uint8).reshape(4, 3, 2, 2)).all()
    assert part.labels.tolist() == [-1, 0, 1, 2]
    assert found.files("train") == ("a/0.png", "a/1.png", "a/2.png", "a/3.png")
    assert (found.classes, found.labeled_count) == (("a", "b", "c"), 2)
    assert found.labels_hash("train") == found.meta["parts"]["train"]["labels"]["sha256"]


def test_a_missing_set_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"python -m dac\.prepare --data cifar10 --root"):
        load(tmp_path, "cifar10")
    with pytest.raises(UserError, match="--pictures FOLDER"):
        load(tmp_path, "folder")


def test_a_part_that_does_not_exist_is_named(tmp_path: Path, small: Path) -> None:
    with pytest.raises(UserError, match="has no part 'dev'; it has train"):
        load(tmp_path, "digits").part("dev")


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "is missing"),
    "truncated": (lambda path: os.truncate(path, 100), "holds 100 bytes, expected"),
    "changed": (flip_last_byte, "does not have the sha256"),
}


@pytest.mark.parametrize("file", ["train.npy", "train_labels.npy", "train_files.txt"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_found_and_named(
    tmp_path: Path, small: Path, file: str, damage: str
) -> None:
    spoil, message = DAMAGES[damage]
    if (file, damage) == ("train_files.txt", "truncated"):
        message = "holds 100 bytes, expected 32"
    spoil(small / file)
    with pytest.raises(UserError, match=f"{file} {message}.*python -m dac.prepare --data digits"):
        load(tmp_path, "digits").verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta.pop("parts"), "parts: Field required"),
        (lambda meta: meta.update(format=2), "format: Input should be 1"),
        (lambda meta: meta["parts"]["train"].update(count="4"), "parts.train.count"),
        (lambda meta: meta.update(name="cifar10"), "describes 'cifar10', expected 'digits'"),
    ],
)
def test_a_wrong_description_is_refused(
    tmp_path: Path, small: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    meta = json.loads((small / "meta.json").read_text())
    change(meta)
    (small / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match=message):
        load(tmp_path, "digits")


def test_a_description_that_is_no_json_is_refused(tmp_path: Path, small: Path) -> None:
    (small / "meta.json").write_text('{"format": 1,')
    with pytest.raises(UserError, match=r"meta\.json cannot be read"):
        load(tmp_path, "digits")


def test_an_array_of_another_shape_is_refused(tmp_path: Path, small: Path) -> None:
    meta = json.loads((small / "meta.json").read_text())
    meta["parts"]["train"]["side"] = 3
    (small / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match=r"is uint8 \(4, 3, 2, 2\), expected uint8 \(4, 3, 3, 3\)"):
        load(tmp_path, "digits").part("train")


def test_large_files_are_mapped_and_checked_by_size(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "HASHED_UP_TO", 170)  # images 176 bytes, labels 160
    part = load(tmp_path, "digits").part("train")
    assert isinstance(part.images, np.memmap)
    assert not isinstance(part.labels, np.memmap)
    os.truncate(small / "train.npy", 171)
    with pytest.raises(UserError, match="holds 171 bytes, expected 176"):
        load(tmp_path, "digits").part("train")


def test_an_interrupted_prepare_never_looks_finished_and_starts_clean(
    tmp_path: Path, small: Path
) -> None:
    def interrupted() -> Iterator[np.ndarray]:
        yield np.zeros((1, 3, 2, 2), np.uint8)
        raise KeyboardInterrupt

    new = small_set()
    broken = NewSet(new.classes, {"train": NewPart(np.arange(4), 2, interrupted())})
    with pytest.raises(KeyboardInterrupt):
        prepared_writer.write(small, "digits", broken, {"side": 2})
    assert {path.name for path in small.iterdir()} == {"lock"}
    (small / ".train.npy.1.abcd.partial").write_bytes(b"left by a killed process")
    prepared_writer.write(small, "digits", small_set(), {"side": 2})
    load(tmp_path, "digits").verify()
    assert not list(small.glob(".*.partial"))
