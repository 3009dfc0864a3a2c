"""Checkpoints: read back exactly, two kept, damage passed over, nothing executed."""

import pickle
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
    assert f"{newer} is damaged" in capsys.readouterr().err
    older.write_bytes(b"")
    assert checkpoint.newest(tmp_path) is None


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


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist; train first"):
        checkpoint.from_file(tmp_path / "model.pt")


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
