"""The prepare stage for the digits and CIFAR, whose files are pickles and not to be trusted."""

import os
import pickle
import shutil
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tiny_sets import cifar100_files, cifar100_params, cifar_batch, write_files, write_params

from dac import prepare
from dac.data import cifar_files
from dac.data.prepared import load
from dac.errors import UserError, exit_code_of
from dac.files import locked
from dac.settings import Data

Stage = Callable[..., tuple[int, str]]


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stage:
    """Run `python -m dac.prepare`'s main; returns its exit code and messages."""

    def run(data: str, *options: object, params: Path | None = None) -> tuple[int, str]:
        path = params or write_params(tmp_path / "plain.yaml")
        arguments = ["--data", data, "--params", path, "--root", tmp_path, *options]
        monkeypatch.setattr(sys, "argv", ["prepare", *map(str, arguments)])
        code = exit_code_of(prepare.main)
        return code, capsys.readouterr().err

    return run


def settings(**changes: Any) -> Data:
    values = {"num_classes": 100, "side": 32, "size": 32, "pad": 4, "flip": True}
    return Data(**values | {"mean": (0.5,) * 3, "std": (0.5,) * 3} | changes)


# --- digits -----------------------------------------------------------------------------------


def test_digits_are_the_images_of_scikit_learn_split_by_index(tmp_path: Path, stage: Stage) -> None:
    assert stage("digits")[0] == 0
    digits, bunch = load(tmp_path, "digits"), load_digits()
    assert digits.classes == tuple("0123456789")
    assert digits.labeled_count is None
    index = np.arange(1797) % 6
    for part, remainders in {"train": (0, 2, 4), "test": (1, 3), "dev": (5,)}.items():
        mask = np.isin(index, remainders)
        images, labels = digits.part(part).images, digits.part(part).labels
        assert images.shape == (mask.sum(), 3, 16, 16) and images.dtype == np.uint8
        assert labels.dtype == np.int64 and (labels == bunch.target[mask]).all()
        assert (images == images[:, :1]).all(), "three equal channels"
        grey = torch.from_numpy(bunch.images[mask][:, None] * (255 / 16)).round()
        enlarged = torch.nn.functional.interpolate(grey, size=(16, 16), mode="bilinear")
        assert np.abs(enlarged[:, 0].numpy() - images[:, 0]).max() <= 1
    assert [len(digits.part(part).labels) for part in ("train", "test", "dev")] == [899, 599, 299]


def test_preparing_twice_gives_the_same_bytes(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    first = (tmp_path / "prepared/digits/meta.json").read_bytes()
    (tmp_path / "prepared/digits/meta.json").unlink()
    stage("digits")
    assert (tmp_path / "prepared/digits/meta.json").read_bytes() == first


def test_a_finished_set_is_left_alone(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "prepared/digits").glob("*.npy")}
    code, messages = stage("digits")
    assert code == 0
    assert "already prepared and intact" in messages
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_another_side_is_prepared_anew(tmp_path: Path, stage: Stage) -> None:
    stage("digits")
    params = write_params(tmp_path / "p.yaml", prepare_digits={"side": 8, "size": 8})
    assert stage("digits", params=params)[0] == 0
    assert load(tmp_path, "digits").part("train").images.shape == (899, 3, 8, 8)


def test_a_second_process_is_refused(tmp_path: Path, stage: Stage) -> None:
    with locked(tmp_path / "prepared/digits", "test"):
        code, messages = stage("digits")
    assert code == 2
    assert "is in use by process" in messages


# --- CIFAR ------------------------------------------------------------------------------------


def cifar_root(tmp_path: Path, changes: dict[str, bytes] | None = None) -> Path:
    """A raw CIFAR-100 folder, and parameters whose checksums fit it."""
    files = cifar100_files() | (changes or {})
    write_files(tmp_path / "raw/cifar100", files | {"receipt.json": b'{"digests": {}}'})
    return cifar100_params(tmp_path / "p.yaml", files=files)


def test_cifar100_keeps_pixels_labels_and_file_order(tmp_path: Path, stage: Stage) -> None:
    assert stage("cifar100", params=cifar_root(tmp_path))[0] == 0
    found = load(tmp_path, "cifar100")
    for part in ("train", "test"):
        content = pickle.loads(cifar100_files()[f"cifar-100-python/{part}"])
        assert (found.part(part).images.reshape(-1, 3072) == content[b"data"]).all()
        assert found.part(part).labels.tolist() == content[b"fine_labels"]
    assert found.classes[42] == "class42"


def test_cifar10_is_its_five_batches_in_turn(tmp_path: Path) -> None:
    labels = [[(i + batch) % 10 for i in range(20)] for batch in range(6)]
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    files = {
        name: pickle.dumps(pickle.loads(cifar_batch(i, [])) | batch_of(i, labels[i]), protocol=2)
        for i, name in enumerate(names)
    }
    files["batches.meta"] = pickle.dumps({b"label_names": [b"x"] * 10}, protocol=2)
    write_files(tmp_path / "cifar-10-batches-py", files)
    data = settings(num_classes=10, train_per_class=10, test_per_class=2)
    new = cifar_files.cifar(tmp_path, "cifar10", data)
    assert new.parts["train"].labels.tolist() == [*chain(*labels[:5])]
    assert new.parts["test"].labels.tolist() == labels[5]
    images = np.concatenate(list(new.parts["train"].blocks))
    assert (images[40:60].reshape(20, -1) == batch_of(2, labels[2])[b"data"]).all()


def batch_of(seed: int, labels: list[int]) -> dict[bytes, Any]:
    content = pickle.loads(cifar_batch(seed, labels))
    return {b"data": content[b"data"], b"labels": labels}


TRAIN = "cifar-100-python/train"
LABELS = [i % 100 for i in range(300)]
WRONG_FILES = {
    "labels out of range": (cifar_batch(1, [*LABELS[:-1], 100]), "labels outside 0..99"),
    "negative labels": (cifar_batch(1, [*LABELS[:-1], -1]), "labels outside 0..99"),
    "labels that are no numbers": (cifar_batch(1, [*LABELS[:-1], 1.5]), "labels outside 0..99"),  # type: ignore[list-item]
    "no data": (pickle.dumps({b"fine_labels": LABELS}, 2), "no `data` array"),
    "a list": (pickle.dumps([1, 2], 2), "holds a list, expected a dictionary"),
    "cut short": (cifar_batch(1, LABELS)[:5000], "cannot be read as a CIFAR file"),
    "empty": (b"", "cannot be read as a CIFAR file"),
    "not a pickle": (b"<html>log in</html>", "cannot be read as a CIFAR file"),
}


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_wrong_cifar_file_is_one_message(tmp_path: Path, stage: Stage, what: str) -> None:
    content, message = WRONG_FILES[what]
    code, messages = stage("cifar100", params=cifar_root(tmp_path, {TRAIN: content}))
    assert code == 2
    assert f"{TRAIN} " in messages and message in messages
    assert not (tmp_path / "prepared/cifar100/meta.json").exists()


def test_images_and_labels_of_different_number_are_refused(tmp_path: Path) -> None:
    content = pickle.loads(cifar_batch(1, LABELS)) | {b"fine_labels": LABELS[:-1]}
    write_files(tmp_path, cifar100_files() | {TRAIN: pickle.dumps(content, 2)})
    with pytest.raises(UserError, match=r"uint8 \(300, 3072\), expected uint8 \(299, 3072\)"):
        cifar_files.cifar(tmp_path, "cifar100", settings())


def test_a_class_with_an_image_too_few_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, cifar100_files() | {TRAIN: cifar_batch(1, [*LABELS[:-1], 0])})
    with pytest.raises(UserError, match="train has 4 images of class 0, expected 3"):
        cifar_files.cifar(tmp_path, "cifar100", settings(train_per_class=3, test_per_class=2))


def test_checksums_are_verified_before_a_file_is_parsed(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = cifar_root(tmp_path)
    (tmp_path / "raw/cifar100" / TRAIN).write_bytes(b"wrong")
    monkeypatch.setattr(cifar_files, "read", lambda path: pytest.fail("parsed"))
    code, messages = stage("cifar100", params=params)
    assert code == 2
    assert f"{TRAIN} has md5" in messages and "python -m dac.download --data cifar100" in messages


def test_without_a_download_the_command_is_named(tmp_path: Path, stage: Stage) -> None:
    code, messages = stage("cifar100", params=cifar100_params(tmp_path / "p.yaml"))
    assert code == 2
    assert f"run `python -m dac.download --data cifar100 --root {tmp_path}` first" in messages


def test_raw_files_may_be_deleted_once_prepared(tmp_path: Path, stage: Stage) -> None:
    params = cifar_root(tmp_path)
    stage("cifar100", params=params)
    shutil.rmtree(tmp_path / "raw")
    code, messages = stage("cifar100", params=params)
    assert code == 0
    assert "its source is gone, nothing to do" in messages


class Attack:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("function", "name"),
    [(os.system, "posix.system"), (eval, "eval"), (getattr, "getattr"), (np.load, "numpy")],
)
def test_a_malicious_pickle_runs_nothing(
    tmp_path: Path, stage: Stage, function: Callable[..., object], name: str, protocol: int
) -> None:
    mark = tmp_path / "was-run"
    command = f"touch {mark}" if function is os.system else f"open({str(mark)!r}, 'w')"
    content = pickle.dumps({b"data": Attack(function, command)}, protocol)
    code, messages = stage("cifar100", params=cifar_root(tmp_path, {TRAIN: content}))
    assert code == 2
    assert f"{name}" in messages and "may be an attack; nothing of it was run" in messages
    assert not mark.exists()


def test_the_encode_call_of_old_pickles_cannot_reach_other_codecs(tmp_path: Path) -> None:
    attack = b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR."
    with pytest.raises(UserError, match="encoding 'rot13'"):
        cifar_files.read(write_files(tmp_path, {"file": attack}) / "file")


def test_python_2_pickles_are_read(tmp_path: Path) -> None:
    array = (  # what Python 2 wrote for numpy.array([[7, 8]], dtype=uint8)
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        b"(K\x01K\x01K\x02\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x07\x08tb"
    )
    content = b"\x80\x02}q\x01(U\x04dataq\x02" + array + b"U\x01xq\x03U\x01yu."
    found = cifar_files.read(write_files(tmp_path, {"file": content}) / "file")
    assert found[b"x"] == b"y"
    assert found[b"data"].tolist() == [[7, 8]] and found[b"data"].dtype == np.uint8
