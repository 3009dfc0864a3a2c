"""Checkpoints: read back exactly, two kept, damage passed over, nothing executed."""

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dac.io.errors import UserError
from dac.runs import checkpoint


def state(step: int) -> dict[str, Any]:
    return {"run": {"seed": 1}, "step": step, "weights": torch.full((3,), float(step))}


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 7, state(7))
    for found in (checkpoint.from_file(path), checkpoint.newest(tmp_path)):
        assert found is not None and found["step"] == 7
        assert torch.equal(found["weights"], torch.full((3,), 7.0))


def test_the_two_newest_are_kept_by_step_and_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 100, 1000):
        checkpoint.save(tmp_path, step, state(step))
    assert [int(path.name[5:14]) for path in checkpoint.saved(tmp_path)] == [1000, 100]


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    names = {"last-1.pt", "last-best.pt", "model.pt"}
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, state(step))
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert len(checkpoint.saved(tmp_path)) == 2


def test_a_damaged_one_is_passed_over_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = (checkpoint.save(tmp_path, step, state(step)) for step in (1, 2))
    newer.write_bytes(newer.read_bytes()[:-1] + b"?")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["step"] == 1
    told = capsys.readouterr().err
    (aside,) = tmp_path.glob("damaged-*")
    assert f"{newer} is damaged" in told and f"set aside as {aside.name}; trying" in told
    older.write_bytes(b"")
    assert checkpoint.newest(tmp_path) is None


def in_the_way(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Path.mkdir, "Is a directory"),
        (os.mkfifo, "it is a pipe"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
        (lambda path: path.symlink_to(path), "Too many levels"),
    ],
)
def test_one_that_is_no_file_is_passed_over_like_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None], told: str
) -> None:
    _, newer = (checkpoint.save(tmp_path, step, state(step)) for step in (1, 2))
    in_the_way(newer, make)
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["step"] == 1
    assert f"{newer} is damaged ({told}" in capsys.readouterr().err
    for step in (3, 4, 5):
        checkpoint.save(tmp_path, step, state(step))
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["step"] == 5, "what cannot be removed stops nothing"


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "other bytes": lambda path: path.write_bytes(b"damaged"),
    "a folder": Path.mkdir,
    "a folder with files": lambda path: (path.mkdir(), (path / "x").touch()),
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a loop": lambda path: path.symlink_to(path),
    "a pipe": os.mkfifo,
}


def step_of_newest(folder: Path) -> int | None:
    found = checkpoint.newest(folder)
    return None if found is None else int(found["step"])


@pytest.mark.parametrize("can_rename", [True, False])
@pytest.mark.parametrize("looks_first", [True, False])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_run_that_starts_over_keeps_what_it_saves(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    looks_first: bool,
    can_rename: bool,
) -> None:
    """Both states are damaged: the later number of their step is no reason to keep them."""
    for step in (100, 200):
        in_the_way(checkpoint.save(tmp_path, step, state(step)), DAMAGE[kind])
    if not can_rename:
        monkeypatch.setattr(Path, "rename", denied)
    if looks_first:  # as training does
        assert checkpoint.newest(tmp_path) is None
    for step in (10, 20, 30, 150, 250, 300, 350):
        path = checkpoint.save(tmp_path, step, state(step))
        assert path.is_file() and step_of_newest(tmp_path) == step
    path.write_bytes(b"damaged")
    assert step_of_newest(tmp_path) == 300, "two are kept again"


def denied(path: Path, *_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_what_is_damaged_takes_no_place_of_the_two_and_is_never_deleted(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, state(step))
    for content in (b"damaged", b"again"):
        (tmp_path / "last-000000003-0123456789abcdef.pt").write_bytes(content)
        assert step_of_newest(tmp_path) == 2
    for step in (4, 5):
        last = checkpoint.save(tmp_path, step, state(step))
        last.rename(tmp_path / "away")
        assert step_of_newest(tmp_path) == {4: 2, 5: 4}[step]
        (tmp_path / "away").rename(last)
    checkpoint.drop(tmp_path)
    aside = sorted(path.read_bytes() for path in tmp_path.iterdir())
    assert aside == [b"again", b"damaged"]


def test_one_that_may_not_be_read_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, newer = (checkpoint.save(tmp_path, step, state(step)) for step in (1, 2))
    read = Path.read_bytes

    def denied(path: Path) -> bytes:
        if path == newer:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", denied)
    found = checkpoint.newest(tmp_path)
    assert found is not None and found["step"] == 1
    told = f"{newer} cannot be read (Permission denied); trying the one before"
    assert told in capsys.readouterr().err and newer.exists(), "it may be whole"


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_disk_that_fails_for_a_moment_does_not_start_training_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, state(step))

    def fails(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as moment:
        moment.setattr(Path, "read_bytes", fails)
        with pytest.raises(UserError, match=r"last-000000002-.* cannot be read .*and run the same"):
            checkpoint.newest(tmp_path)
    assert step_of_newest(tmp_path) == 2


def test_what_a_killed_save_left_goes_with_the_next_one(tmp_path: Path) -> None:
    left = tmp_path / ".last-000000001-0123456789abcdef.pt.77.0123abcd.partial"
    left.write_bytes(b"half")
    path = checkpoint.save(tmp_path, 2, state(2))
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    assert checkpoint.newest(tmp_path / "none") is None


class Attack:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    mark, path = tmp_path / "was-run", tmp_path / "model.pt"
    torch.save({"run": {}, "weights": Attack(mark)}, path)
    with pytest.raises(UserError, match="cannot be read"):
        checkpoint.from_file(path)
    path.write_bytes(pickle.dumps(Attack(mark), protocol=2))
    with pytest.raises(UserError, match="cannot be read"):
        checkpoint.from_file(path)
    assert not mark.exists()


@pytest.mark.parametrize("content", [{"weights": 1}, [1, 2], {"run": 3}])
def test_a_file_of_something_else_is_no_checkpoint(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(UserError, match="is no checkpoint of dac"):
        checkpoint.from_file(tmp_path / "model.pt")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut short"])
def test_a_file_that_cannot_be_read_is_one_message(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot be read .*delete it and train again"):
        checkpoint.from_file(tmp_path / "model.pt")


def test_a_model_that_may_not_be_read_is_not_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checkpoint.save(tmp_path, 7, state(7)).rename(tmp_path / "model.pt")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", denied)  # as for mode 000, which root may read
    monkeypatch.setattr("io.open", denied)
    with pytest.raises(UserError, match=r"\(Permission denied\); fix its permissions") as caught:
        checkpoint.from_file(path)
    assert "delete" not in str(caught.value)


def test_a_pipe_in_place_of_a_model_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"cannot be read \(it is a pipe, .*; delete it and train"):
        checkpoint.from_file(tmp_path / "model.pt")


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; train first"):
        checkpoint.from_file(tmp_path / "model.pt")


@pytest.mark.parametrize("content", [b"\x80\x02.", b"\x80\x02}q\x00(U\x01", bytes(range(256))])
def test_no_bytes_are_a_traceback(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        checkpoint.from_file(tmp_path / "model.pt")


def test_tensors_fit_if_names_and_shapes_are_the_same() -> None:
    wanted = {"a": torch.ones(2, 3), "b": torch.zeros(1)}
    assert checkpoint.misfit({"b": torch.ones(1), "a": torch.zeros(2, 3)}, wanted) is None
    for found, told in (
        ({"a": torch.ones(2, 3)}, "b is missing"),
        ({"a": torch.ones(2, 3), "b": 0.0}, "b is missing"),
        ({"a": torch.ones(3, 2), "b": torch.zeros(1)}, "a is (3, 2), expected (2, 3)"),
        (wanted | {"c": torch.zeros(1)}, "c has no place"),
        ([1, 2], "no tensors"),
    ):
        assert checkpoint.misfit(found, wanted) == told


def test_the_hash_is_of_names_types_shapes_and_values() -> None:
    weights = {"a": torch.ones(2, 3), "b": torch.zeros(1)}
    same = checkpoint.weights_hash({"b": torch.zeros(1), "a": torch.ones(3, 2).T})
    assert checkpoint.weights_hash(weights) == same
    others: list[dict[str, torch.Tensor]] = [
        {"a": torch.ones(3, 2), "b": torch.zeros(1)},
        {"a": torch.ones(2, 3).double(), "b": torch.zeros(1)},
        {"a": torch.ones(2, 3), "c": torch.zeros(1)},
        {"a": torch.ones(2, 3), "b": torch.full((1,), 1e-30)},
    ]
    assert len({same, *map(checkpoint.weights_hash, others)}) == 5


def test_a_flipped_byte_of_a_weight_is_damage(tmp_path: Path) -> None:
    """torch.load alone reads it as another weight, without a word."""
    path = tmp_path / "model.pt"
    content = bytearray(checkpoint.to_bytes(state(7)))
    at = content.index(torch.full((3,), 7.0).numpy().tobytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    assert not torch.equal(torch.load(path, weights_only=True)["weights"], torch.full((3,), 7.0))
    with pytest.raises(UserError, match="does not have its checksum"):
        checkpoint.from_file(path)
