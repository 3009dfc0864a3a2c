"""Small copies of the data sets in their official layouts, and parameters that fit them."""

import copy
import errno
import functools
import gzip
import hashlib
import io
import os
import pickle
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pictures import photographs
from PIL import Image

from dac.config import Archive, DownloadSet
from dac.data.picture_sets import IMAGENET30

PARAMS = Path(__file__).parents[2] / "params.yaml"
ARCHIVE = "cifar-100-python.tar.gz"


def cifar_batch(seed: int, labels: list[int], **more: Any) -> bytes:
    """A CIFAR-100 file: 32 x 32 noise, pickled as the official files are (protocol 2, bytes)."""
    noise = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), dtype=np.uint8)
    content = {b"data": noise, b"fine_labels": labels, b"coarse_labels": labels, b"filenames": []}
    return pickle.dumps(content | more, protocol=2)


@functools.cache
def cifar100_files() -> dict[str, bytes]:
    """One dictionary for all callers; combine it with `|`, do not change it."""
    names = {b"fine_label_names": [f"class{i}".encode() for i in range(100)]}
    return {
        "cifar-100-python/train": cifar_batch(1, [i % 100 for i in range(300)]),
        "cifar-100-python/test": cifar_batch(2, [i // 2 for i in range(200)]),
        "cifar-100-python/meta": pickle.dumps(names, protocol=2),
    }


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), 1, mtime=0)  # no time in it: same files, same bytes


def md5s(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(content).hexdigest() for name, content in files.items()}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def unreadable_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Refuse to list a folder, as the kernel does for mode 000 unless one is root."""
    real = os.scandir

    def scandir(path: Path) -> Any:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


def write_params(path: Path, **sections: dict[str, Any]) -> Path:
    """The project's params.yaml with `download_<set>` and `prepare_<set>` changed."""
    content = copy.deepcopy(_params())
    content["download"] |= {"timeout_seconds": 2.0, "retries": 1, "retry_wait_seconds": 0.0}
    for key, changes in sections.items():
        section, _, name = key.partition("_")
        entries = content[section]["sets"] if section == "download" else content[section]
        entries[name] |= changes
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
    return path


@functools.cache
def _params() -> Any:
    return yaml.load(PARAMS.read_text(), yaml.CSafeLoader)


def cifar100_set(
    urls: Sequence[str] = (), files: dict[str, bytes] | None = None, **archive: Any
) -> DownloadSet:
    """What `download` must find: checksums that fit `files` (the tiny CIFAR-100)."""
    files = files or cifar100_files()
    content = tar(files)
    known = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} | archive
    return DownloadSet(
        archives=(Archive(name=ARCHIVE, urls=tuple(urls), **known),), files=md5s(files)
    )


def cifar100_params(path: Path, urls: Sequence[str] = ()) -> Path:
    """Parameters whose checksums fit the tiny CIFAR-100."""
    return write_params(
        path,
        download_cifar100=cifar100_set(urls).model_dump(mode="json"),
        prepare_cifar100={"train_per_class": None, "test_per_class": 2},  # tasks want 100 of 500
    )


def picture(seed: int, size: tuple[int, int] = (40, 30), mode: str = "RGB") -> Image.Image:
    """A piece of a photograph, another one for every seed."""
    photo = photographs()[seed % 5]
    top, left = 7 * seed % (photo.shape[0] - size[1]), 11 * seed % (photo.shape[1] - size[0])
    piece = Image.fromarray(photo[top : top + size[1], left : left + size[0]])
    return piece.convert(mode)


def jpeg(seed: int, size: tuple[int, int] = (40, 30)) -> bytes:
    buffer = io.BytesIO()
    picture(seed, size).save(buffer, "JPEG")
    return buffer.getvalue()


def imagenet30_files(train: int = 2, test: int = 1) -> dict[str, bytes]:
    files = {}
    for label, name in enumerate(IMAGENET30):
        for i in range(train):
            files[f"one_class_train/{name}/n{label:08}_{i}.JPEG"] = jpeg(3 * label + i)
        for i in range(test):
            files[f"one_class_test/{name}/n{label:08}/v{i}.JPEG"] = jpeg(90 + label + i)
    return files


def semi_inat_files(doubled: bool = False) -> dict[str, bytes]:
    """3 species with 2, 1 and 1 labeled images, a pool of 5, a test part of 3."""
    again = (lambda name: f"{name}/{name}") if doubled else str
    labeled = {
        f"{again('l_train')}/{c}/{i}.jpg": jpeg(c + i) for c, i in [(0, 0), (0, 1), (1, 0), (2, 0)]
    }
    pool = {f"{again('u_train')}/{i}.jpg": jpeg(20 + i) for i in range(5)}
    test = {f"{again('test')}/hash{i}.jpg": jpeg(30 + i) for i in range(3)}
    return labeled | pool | test
