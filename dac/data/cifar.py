"""Read the official CIFAR-10 and CIFAR-100 files, which are Python pickles.

A pickle can run any program, so these are opened only by a reader that accepts nothing but NumPy
arrays and plain containers, and only after their md5 matched. Index order is file order.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core.multiarray import _reconstruct  # what NumPy's own pickles call

from dac.config import Data
from dac.data.prepared_writer import NewPart, NewSet
from dac.io.errors import UserError

SIDE = 32


@dataclass(frozen=True)
class Layout:
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: bytes
    names: bytes


LAYOUTS = {
    "cifar10": Layout(
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test=("test_batch",),
        meta="batches.meta",
        labels=b"labels",
        names=b"label_names",
    ),
    "cifar100": Layout(
        folder="cifar-100-python",
        train=("train",),
        test=("test",),
        meta="meta",
        labels=b"fine_labels",
        names=b"fine_label_names",
    ),
}


def cifar(folder: Path, name: str, data: Data) -> NewSet:
    """Return the train and test parts of a verified raw folder."""
    layout = LAYOUTS[name]
    if data.side != SIDE:
        raise UserError(f"prepare.{name}.side is {data.side}, expected {SIDE}, CIFAR's size")
    below = folder / layout.folder
    names = _names(below / layout.meta, layout.names, data.num_classes)
    train = _part([below / file for file in layout.train], layout.labels, len(names))
    test = _part([below / file for file in layout.test], layout.labels, len(names))
    _check_classes(train.labels, data.train_per_class, f"{name} train", len(names))
    _check_classes(test.labels, data.test_per_class, f"{name} test", len(names))
    return NewSet(names, {"train": train, "test": test})


def _part(paths: list[Path], key: bytes, num_classes: int) -> NewPart:
    blocks, labels = [], []
    for path in paths:
        content = read(path)
        images, ids = content.get(b"data"), content.get(key)
        if not isinstance(images, np.ndarray) or not isinstance(ids, list):
            raise UserError(f"{path} has no `data` array or no `{key.decode()}` list; {AGAIN}")
        if images.dtype != np.uint8 or images.shape != (len(ids), 3 * SIDE * SIDE):
            expected = f"uint8 ({len(ids)}, {3 * SIDE * SIDE})"
            raise UserError(
                f"{path} holds {images.dtype} {images.shape}, expected {expected}; {AGAIN}"
            )
        if not all(type(label) is int and 0 <= label < num_classes for label in ids):
            raise UserError(f"{path} has labels outside 0..{num_classes - 1}; {AGAIN}")
        blocks.append(images.reshape(-1, 3, SIDE, SIDE))
        labels += ids
    return NewPart(np.array(labels, dtype=np.int64), SIDE, blocks)


def _names(path: Path, key: bytes, num_classes: int | None) -> tuple[str, ...]:
    names = read(path).get(key)
    if not isinstance(names, list) or len(names) != num_classes:
        raise UserError(f"{path} does not name {num_classes} classes; {AGAIN}")
    return tuple(name.decode() for name in names)


def _check_classes(labels: np.ndarray, expected: int | None, what: str, num_classes: int) -> None:
    counts = np.bincount(labels, minlength=num_classes)
    if expected is not None and (counts != expected).any():
        worst = int((counts != expected).argmax())
        raise UserError(
            f"{what} has {counts[worst]} images of class {worst}, expected {expected}; {AGAIN}"
        )


# --- the restricted pickle reader -------------------------------------------------------------

AGAIN = "delete the file and run the download stage again"


def read(path: Path) -> dict[bytes, Any]:
    """Return the dictionary in one CIFAR file; a UserError for anything that is not one."""
    try:
        with path.open("rb") as file:
            content = _ArraysOnly(file, path).load()
    except UserError:
        raise
    except Exception as error:  # a broken pickle can raise anything
        raise UserError(f"{path} cannot be read as a CIFAR file ({error!r}); {AGAIN}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, expected a dictionary; {AGAIN}")
    return content


def _encode(text: str, encoding: str) -> bytes:
    """Replacement for `_codecs.encode`, which Python 3 writes into old-style pickles of bytes."""
    if encoding != "latin1":
        raise ValueError(f"encoding {encoding!r}")
    return text.encode(encoding)


ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="bytes")
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise UserError(
                f"{self.path} asks for {module}.{name}, which no CIFAR file needs: it is not the "
                f"official file and may be an attack; none of it was run. {AGAIN.capitalize()}"
            )
        return ADMITTED[module, name]
