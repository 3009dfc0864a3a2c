"""The prepared format: what was written is read back, and damage of any kind is found."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
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
    "truncated": (lambda path: os.truncate(path, 40), "holds 40 bytes, expected"),
    "changed": (flip_last_byte, "does not have the sha256"),
}


FILES = ["train.npy", "train_labels.npy", "train_files.json"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_found_and_named(
    tmp_path: Path, small: Path, file: str, damage: str
) -> None:
    spoil, message = DAMAGES[damage]
    spoil(small / file)
    with pytest.raises(UserError, match=f"{file} {message}.*python -m dac.prepare --data digits"):
        load(tmp_path, "digits").verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta.pop("parts"), "parts: Field required"),
        (lambda meta: meta.update(format=3), "format: Input should be 1 or 2"),
        (lambda meta: meta.update(format=1), "has the format 1, of another version of dac; run"),
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


# --- names of files and classes -----------------------------------------------------------------

LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
ODD_NAMES = (*(f"a{c}b.png" for c in LINE_BREAKS), "caf\udce9\udcff", "\u00e9", "\\", '"', ",", " ")


def test_file_and_class_names_may_have_any_character(tmp_path: Path) -> None:
    count = len(ODD_NAMES)
    part = NewPart(np.arange(count), 1, [np.zeros((count, 3, 1, 1), np.uint8)], ODD_NAMES)
    with prepared_writer.held(tmp_path, "folder") as folder:
        prepared_writer.write(folder, "folder", NewSet(ODD_NAMES, {"train": part}), {})
    found = load(tmp_path, "folder")
    assert found.files("train") == ODD_NAMES
    assert found.classes == ODD_NAMES
    assert (folder / "train_files.json").read_bytes().isascii()


@pytest.mark.parametrize(
    ("content", "found"), [(b'["a", "b", "c"]', "3"), (b'{"a": 1}', "no list of")]
)
def test_names_must_be_as_many_as_images(
    tmp_path: Path, small: Path, content: bytes, found: str
) -> None:
    (small / "train_files.json").write_bytes(content)
    meta = json.loads((small / "meta.json").read_text())
    known = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    meta["parts"]["train"]["files"] = known
    (small / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match=f"has {found} names, expected 4, one per image"):
        load(tmp_path, "digits").verify()


# --- what cannot be opened ----------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path, small: Path, file: str) -> None:
    (small / file).unlink()
    (small / file).mkdir()
    with pytest.raises(UserError, match=f"{file} is a folder, expected a file; move it away"):
        load(tmp_path, "digits").verify()
    with (
        pytest.raises(UserError, match=f"{file} is a folder, expected a file; move it away"),
        prepared_writer.held(tmp_path, "digits") as folder,
    ):
        prepared_writer.write(folder, "digits", small_set(), {"side": 2})


@pytest.mark.parametrize("file", ["train.npy", "meta.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_replaced(
    tmp_path: Path, small: Path, file: str
) -> None:
    (small / file).unlink()
    os.mkfifo(small / file)
    with pytest.raises(UserError, match=f"{file} (is a folder or a special file|holds 0 bytes)"):
        load(tmp_path, "digits").verify()
    with (
        pytest.raises(UserError, match=f"{file}: it is a pipe"),
        prepared_writer.held(tmp_path, "digits") as folder,
    ):
        prepared_writer.write(folder, "digits", small_set(), {"side": 2})
    assert (small / file).is_fifo()


def test_a_folder_in_the_place_of_the_description_is_named(tmp_path: Path, small: Path) -> None:
    (small / "meta.json").unlink()
    (small / "meta.json").mkdir()
    with pytest.raises(UserError, match=r"meta\.json is a folder or a special file, expected"):
        load(tmp_path, "digits")
    with (
        pytest.raises(UserError, match=r"meta\.json is a folder, expected a file; move it away"),
        prepared_writer.held(tmp_path, "digits") as folder,
    ):
        prepared_writer.write(folder, "digits", small_set(), {"side": 2})


def forbid(monkeypatch: pytest.MonkeyPatch, name: str, function: str) -> None:
    """Refuse a file of this name, as the kernel does for mode 000 unless one is root."""
    real: Callable[..., Any] = getattr(Path, function)

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == name:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, function, refuse)


@pytest.mark.parametrize("function", ["open", "stat"])
@pytest.mark.parametrize("file", FILES)
def test_a_file_without_permission_is_named(
    tmp_path: Path, small: Path, file: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, file, function)
    with pytest.raises(UserError, match=rf"{file} cannot be read \(Permission denied\); fix its"):
        load(tmp_path, "digits").verify()


def test_an_array_that_numpy_may_not_open_is_named(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **options: object) -> np.ndarray:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(np, "load", refuse)
    with pytest.raises(UserError, match=r"train\.npy cannot be read \(Permission denied\)"):
        load(tmp_path, "digits").part("train")


@pytest.mark.parametrize("function", ["open", "stat"])
def test_a_description_without_permission_is_named(
    tmp_path: Path, small: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, "meta.json", function)
    if function == "stat":  # a folder that may not be searched: nothing in it can be opened
        forbid(monkeypatch, "meta.json", "open")
    with pytest.raises(UserError, match=r"meta\.json cannot be read .*Permission denied"):
        load(tmp_path, "digits")
