"""scores.npz and outputs.npz: whatever is wrong with them is one message with the command."""

import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from toy import called
from toy_runs import PARAMS

from dac.figures import histogram, umap
from dac.figures.arrays import read_outputs, read_scores
from dac.io.errors import UserError

SCORES = {
    "num_known": np.array(2),
    "test_labels": np.array([0, 1, 2]),
    "test_scores": np.array([0.9, 0.8, 0.3], np.float32),
    "published_threshold": np.array(0.5),
    "agreement": np.ones((2, 4, 4)),
}
OUTPUTS = {
    "run": np.array(json.dumps({"seed": 1})),
    "num_known": np.array(2),
    "test_labels": np.array([0, 1, 2]),
    "test_probabilities": np.full((3, 2), 0.5, np.float32),
    "test_embeddings": np.ones((3, 8), np.float32),
}
KINDS = {
    "scores.npz": (read_scores, SCORES, "dac.evaluate"),
    "outputs.npz": (read_outputs, OUTPUTS, "dac.outputs"),
}


def told(folder: Path, name: str) -> str:
    with pytest.raises(UserError) as caught:
        KINDS[name][0](folder)
    message = str(caught.value)
    assert message.startswith(str(folder / name)) and "\n" not in message
    return message


def refused(folder: Path, name: str) -> str:
    message = told(folder, name)
    assert message.endswith(f"; run `python -m {KINDS[name][2]} --run {folder}` again")
    return message


@pytest.mark.parametrize("name", KINDS)
def test_whole_files_are_read(name, tmp_path):
    read, arrays, _ = KINDS[name]
    np.savez(tmp_path / name, **arrays)
    found = read(tmp_path)
    assert found.keys() == arrays.keys()


def test_a_method_with_one_head_has_no_agreement(tmp_path):
    one_head = {name: array for name, array in SCORES.items() if name != "agreement"}
    np.savez(tmp_path / "scores.npz", **one_head)
    assert "agreement" not in read_scores(tmp_path)


def first_byte_of_content(path: Path) -> int:
    """Where the compressed bytes of the first array begin; nothing checks those of its header."""
    with zipfile.ZipFile(path) as file, path.open("rb") as raw:
        start = file.infolist()[0].header_offset
        raw.seek(start + 26)
        return start + 30 + sum(struct.unpack("<HH", raw.read(4)))  # name and extra field


@pytest.mark.parametrize("name", KINDS)
def test_damaged_bytes_are_one_message(name, tmp_path):
    path = tmp_path / name
    np.savez_compressed(path, **KINDS[name][1])
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[first_byte_of_content(path)] ^= 255
    np.save(tmp_path / "array.npy", np.ones(3))
    single = (tmp_path / "array.npy").read_bytes()
    pickled = b"\x80\x04N."
    for content in (b"", whole[:100], whole[:-30], b"no archive", bytes(flipped), single, pickled):
        path.write_bytes(content)
        assert "cannot be read (" in refused(tmp_path, name)


@pytest.mark.parametrize("name", KINDS)
def test_a_folder_or_a_file_that_may_not_be_read_is_one_message(name, tmp_path, monkeypatch):
    (tmp_path / name).mkdir()
    assert "cannot be read (Is a directory)" in refused(tmp_path, name)
    (tmp_path / name).rmdir()
    np.savez(tmp_path / name, **KINDS[name][1])

    def denied(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(np, "load", denied)
    assert "cannot be read (Permission denied); fix its permissions" in told(tmp_path, name)


@pytest.mark.parametrize("name", KINDS)
def test_a_pipe_is_one_message_and_is_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / name)
    assert "cannot be read (it is a pipe, expected a regular file)" in refused(tmp_path, name)


@pytest.mark.parametrize(
    ("name", "missing"),
    [(name, key) for name in KINDS for key in KINDS[name][1] if key != "agreement"],
)
def test_a_missing_array_is_named(name, missing, tmp_path):
    arrays = {key: array for key, array in KINDS[name][1].items() if key != missing}
    np.savez(tmp_path / name, **arrays)
    assert f"{name} lacks {missing};" in refused(tmp_path, name)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("scores.npz", "test_scores", np.ones(4)),  # not one per image
        ("scores.npz", "test_scores", np.ones((3, 1))),
        ("scores.npz", "test_scores", np.array(["a", "b", "c"])),
        ("scores.npz", "test_labels", np.array([0.0, 1.0, 2.0])),
        ("scores.npz", "num_known", np.array([2])),
        ("scores.npz", "published_threshold", np.ones(2)),
        ("scores.npz", "agreement", np.ones((2, 4, 5))),
        ("scores.npz", "agreement", np.ones((4, 4))),
        ("outputs.npz", "test_probabilities", np.ones((4, 2))),
        ("outputs.npz", "test_embeddings", np.ones(3)),
        ("outputs.npz", "test_embeddings", np.ones((3, 0))),
        ("outputs.npz", "run", np.array(3)),
    ],
)
def test_an_array_of_another_shape_or_kind_is_named(name, key, value, tmp_path):
    np.savez(tmp_path / name, **KINDS[name][1] | {key: value})
    assert f"{name} has {value.dtype} {value.shape} as {key}" in refused(tmp_path, name)


def test_no_images_at_all_do_not_fit(tmp_path):
    none = {"test_labels": np.empty(0, int), "test_scores": np.empty(0)}
    np.savez(tmp_path / "scores.npz", **SCORES | none)
    assert "as test_labels, which does not fit" in refused(tmp_path, "scores.npz")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "3", "[" * 100_000, "[" + "1" * 5000 + "]"])
def test_outputs_that_do_not_say_whose_they_are_are_refused(text, tmp_path):
    np.savez(tmp_path / "outputs.npz", **OUTPUTS | {"run": np.array(text)})
    with pytest.raises(UserError, match=r"does not say whose it is; run `python -m dac\.outputs"):
        read_outputs(tmp_path, {"seed": 1})


@pytest.mark.parametrize(("module", "name"), [(histogram, "scores.npz"), (umap, "outputs.npz")])
def test_an_empty_file_of_ones_own_run_is_exit_code_two(module, name, tmp_path, capsys):
    (tmp_path / name).touch()
    options = ("--run", tmp_path, "--out", tmp_path / "a.png", "--params", PARAMS.path)
    assert called(module.main, *options) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / name} cannot be read")
    assert not (tmp_path / "a.png").exists()
