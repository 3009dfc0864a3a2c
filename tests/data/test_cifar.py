"""CIFAR's files are pickles and not to be trusted: what is read, and what is refused."""

import os
import pickle
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_sets import cifar100_files, cifar_batch, write_files

from dac.config import Data
from dac.data import cifar
from dac.io.errors import UserError

TRAIN = "cifar-100-python/train"
LABELS = [i % 100 for i in range(300)]


def settings(**changes: Any) -> Data:
    values = {"num_classes": 100, "side": 32, "size": 32, "pad": 4, "flip": True}
    return Data(**values | {"mean": (0.5,) * 3, "std": (0.5,) * 3} | changes)


def read_with(folder: Path, train: bytes) -> None:
    """Read CIFAR-100 with another file of the train part."""
    write_files(folder, cifar100_files() | {TRAIN: train})
    cifar.cifar(folder, "cifar100", settings())


def test_cifar100_keeps_pixels_labels_and_file_order(tmp_path: Path) -> None:
    new = cifar.cifar(write_files(tmp_path, cifar100_files()), "cifar100", settings())
    for part in ("train", "test"):
        content = pickle.loads(cifar100_files()[f"cifar-100-python/{part}"])
        images = np.concatenate(list(new.parts[part].blocks))
        assert (images.reshape(-1, 3072) == content[b"data"]).all()
        assert new.parts[part].labels.tolist() == content[b"fine_labels"]
    assert new.classes[42] == "class42"


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
    new = cifar.cifar(tmp_path, "cifar10", data)
    assert new.parts["train"].labels.tolist() == [*chain(*labels[:5])]
    assert new.parts["test"].labels.tolist() == labels[5]
    images = np.concatenate(list(new.parts["train"].blocks))
    assert (images[40:60].reshape(20, -1) == batch_of(2, labels[2])[b"data"]).all()


def batch_of(seed: int, labels: list[int]) -> dict[bytes, Any]:
    content = pickle.loads(cifar_batch(seed, labels))
    return {b"data": content[b"data"], b"labels": labels}


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
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, what: str) -> None:
    content, message = WRONG_FILES[what]
    with pytest.raises(UserError, match=f"{TRAIN} .*{message}"):
        read_with(tmp_path, content)


def test_images_and_labels_of_different_number_are_refused(tmp_path: Path) -> None:
    content = pickle.loads(cifar_batch(1, LABELS)) | {b"fine_labels": LABELS[:-1]}
    with pytest.raises(UserError, match=r"uint8 \(300, 3072\), expected uint8 \(299, 3072\)"):
        read_with(tmp_path, pickle.dumps(content, 2))


def test_a_class_with_an_image_too_few_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, cifar100_files() | {TRAIN: cifar_batch(1, [*LABELS[:-1], 0])})
    with pytest.raises(UserError, match="train has 4 images of class 0, expected 3"):
        cifar.cifar(tmp_path, "cifar100", settings(train_per_class=3, test_per_class=2))


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
    tmp_path: Path, function: Callable[..., object], name: str, protocol: int
) -> None:
    mark = tmp_path / "was-run"
    command = f"touch {mark}" if function is os.system else f"open({str(mark)!r}, 'w')"
    content = pickle.dumps({b"data": Attack(function, command)}, protocol)
    with pytest.raises(UserError, match=f"{name}.*may be an attack; none of it was run"):
        read_with(tmp_path, content)
    assert not mark.exists()


def test_the_encode_call_of_old_pickles_cannot_reach_other_codecs(tmp_path: Path) -> None:
    attack = b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR."
    with pytest.raises(UserError, match="encoding 'rot13'"):
        cifar.read(write_files(tmp_path, {"file": attack}) / "file")


def test_python_2_pickles_are_read(tmp_path: Path) -> None:
    array = (  # what Python 2 wrote for numpy.array([[7, 8]], dtype=uint8)
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
        b"(K\x01K\x01K\x02\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x07\x08tb"
    )
    content = b"\x80\x02}q\x01(U\x04dataq\x02" + array + b"U\x01xq\x03U\x01yu."
    found = cifar.read(write_files(tmp_path, {"file": content}) / "file")
    assert found[b"x"] == b"y"
    assert found[b"data"].tolist() == [[7, 8]] and found[b"data"].dtype == np.uint8
