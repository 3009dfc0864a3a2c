"""The folder of a run: state of its own, one model, and never that of another run."""

from pathlib import Path

import pytest

from dac.io.errors import UserError
from dac.runs import checkpoint
from dac.runs.folder import RunFolder, refuse_other_run

IDENTITY = {"task": {"name": "digits-6-30"}, "seed": 1, "train": {"lr": 0.03}}
OTHER = IDENTITY | {"seed": 2, "train": {"lr": 0.1}}


def test_a_new_folder_is_neither_finished_nor_begun(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, IDENTITY)
    assert not folder.is_finished() and folder.newest() is None


def test_state_is_resumed_with_the_identity_it_was_saved_with(tmp_path: Path) -> None:
    RunFolder(tmp_path, IDENTITY).save(5, {"step": 5})
    found = RunFolder(tmp_path, IDENTITY).newest()
    assert found is not None and found["step"] == 5 and found["run"] == IDENTITY


def test_runs_of_other_parameters_keep_their_own_state(tmp_path: Path) -> None:
    RunFolder(tmp_path, IDENTITY).save(5, {"step": 5})
    assert RunFolder(tmp_path, OTHER).newest() is None
    RunFolder(tmp_path, OTHER).save(9, {"step": 9})
    found = RunFolder(tmp_path, IDENTITY).newest()
    assert found is not None and found["step"] == 5


def test_finishing_writes_the_model_and_drops_the_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path, IDENTITY)
    folder.save(5, {"step": 5})
    folder.finish({"best": 1})
    assert checkpoint.from_file(folder.model) == {"best": 1, "run": IDENTITY}
    assert checkpoint.saved(folder.work) == []
    assert folder.is_finished()
    assert "is finished; nothing to do" in capsys.readouterr().err


def test_a_finished_run_has_nothing_left_of_killed_attempts(tmp_path: Path) -> None:
    mine, other = RunFolder(tmp_path, IDENTITY), RunFolder(tmp_path, OTHER)
    mine.save(5, {"step": 5})
    other.save(5, {"step": 5})
    left = [
        tmp_path / ".model.pt.7.0123abcd.partial",
        mine.work / ".history.csv.7.0123abcd.partial",
    ]
    waiting = other.work / ".last-000000007-0123456789abcdef.pt.7.0123abcd.partial"
    for path in (*left, waiting):
        path.write_bytes(b"half")
    mine.finish({"best": 1})
    assert not any(path.exists() for path in left)
    assert waiting.exists() and checkpoint.saved(other.work), "the other run is not finished"


def test_a_run_that_was_killed_while_tidying_up_is_tidied_when_started_again(
    tmp_path: Path,
) -> None:
    folder = RunFolder(tmp_path, IDENTITY)
    folder.finish({"best": 1})
    folder.save(5, {"step": 5})
    (folder.work / ".history.csv.7.0123abcd.partial").write_bytes(b"half")
    assert folder.is_finished() and list(folder.work.iterdir()) == []


def test_a_finished_model_of_another_run_is_refused(tmp_path: Path) -> None:
    RunFolder(tmp_path, IDENTITY).finish({"best": 1})
    with pytest.raises(UserError, match="belongs to another run") as caught:
        RunFolder(tmp_path, OTHER).is_finished()
    assert "  seed: 1 there, 2 asked for\n  train.lr: 0.03 there, 0.1" in str(caught.value)
    assert "give another --out folder" in str(caught.value)


def test_state_that_was_moved_from_another_run_is_refused(tmp_path: Path) -> None:
    mine, other = RunFolder(tmp_path, IDENTITY), RunFolder(tmp_path, OTHER)
    other.save(5, {"step": 5})
    other.work.rename(mine.work)
    with pytest.raises(UserError, match="belongs to another run"):
        mine.newest()


def test_the_next_step_of_a_refusal_may_be_another() -> None:
    with pytest.raises(UserError, match=r"asked for\nask someone$"):
        refuse_other_run({"run": IDENTITY}, OTHER, Path("model.pt"), "ask someone")
    refuse_other_run({"run": IDENTITY}, dict(IDENTITY), Path("model.pt"))
