"""Stage `prepare`: official files or own pictures -> arrays in the prepared format.

`python -m dac.prepare --data NAME [--root data] [--pictures FOLDER]`
A set that is finished and intact is left alone; a damaged or outdated one is made again.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from PIL import Image

from dac import params as params_file
from dac.data import own_pictures, prepared_writer, raw
from dac.data.cifar_files import cifar
from dac.data.picture_sets import imagenet30, semi_inat
from dac.data.prepared import PartName
from dac.data.prepared_writer import NewPart, NewSet
from dac.errors import UserError, exit_code_of
from dac.logs import say
from dac.settings import Data, DataName, DownloadSet

DIGIT_PARTS: dict[PartName, tuple[int, ...]] = {"train": (0, 2, 4), "test": (1, 3), "dev": (5,)}


@dataclass(frozen=True)
class Plan:
    """What decides the result, and the function that makes it."""

    recipe: dict[str, Any]
    build: Callable[[], NewSet]


def prepare(
    root: Path, name: DataName, data: Data, spec: DownloadSet, pictures: Path | None = None
) -> None:
    with prepared_writer.held(root, name) as folder:
        if _has_lost_its_source(root, name, pictures) and _is_current(root, name, None):
            why = "no --pictures given" if name == "folder" else "its source is gone"
            say(f"{folder} is prepared and intact; {why}, nothing to do")
            return
        plan = _plan(root, name, data, spec, pictures)
        if _is_current(root, name, plan.recipe):
            say(f"{folder} is already prepared and intact; nothing to do")
            return
        prepared_writer.write(folder, name, plan.build(), plan.recipe)
    say(f"prepared {name} in {folder}")


def _plan(root: Path, name: DataName, data: Data, spec: DownloadSet, pictures: Path | None) -> Plan:
    settings = {"side": data.side, "size": data.size}
    if name == "digits":
        return Plan(settings | {"source": "sklearn.datasets.load_digits"}, partial(digits, data))
    if name == "folder":
        if pictures is None:
            raise UserError(f"--data folder needs --pictures FOLDER; {own_pictures.LAYOUT}")
        own_pictures.check(pictures)
        source = own_pictures.fingerprint(pictures)
        build = partial(own_pictures.own_pictures, pictures, data)
        return Plan(settings | {"source": source}, build)
    folder = raw.check(root, name, spec)
    builds: dict[str, Callable[[], NewSet]] = {
        "cifar10": partial(cifar, folder, name, data),
        "cifar100": partial(cifar, folder, name, data),
        "imagenet30": partial(imagenet30, folder, data),
        "semi-inat-2021": partial(semi_inat, folder, data),
    }
    return Plan(settings | {"source": raw.fingerprint(folder)}, builds[name])


def _has_lost_its_source(root: Path, name: DataName, pictures: Path | None) -> bool:
    """Raw files may be deleted to save disk once the set is prepared."""
    if name in ("digits", "folder"):
        return name == "folder" and pictures is None
    return not raw.folder_of(root, name).exists()


def _is_current(root: Path, name: str, recipe: dict[str, Any] | None) -> bool:
    try:
        return prepared_writer.is_finished(root, name, recipe)
    except UserError as error:
        say(f"what is there cannot be used: {error}")
        return False


def digits(data: Data) -> NewSet:
    """The 1,797 digits of scikit-learn, enlarged; image i belongs to a part by i mod 6."""
    from sklearn.datasets import load_digits  # a second of import that the other sets do not need

    bunch = load_digits()
    grey = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # 0..16 -> 0..255
    resized = np.stack([_enlarge(image, data.side) for image in grey])
    images = np.repeat(resized[:, None], 3, axis=1)
    remainder = np.arange(len(images)) % 6
    parts: dict[PartName, NewPart] = {}
    for name, remainders in DIGIT_PARTS.items():
        mask = np.isin(remainder, remainders)
        parts[name] = NewPart(bunch.target[mask], data.side, [images[mask]])
    return NewSet(tuple(map(str, bunch.target_names)), parts)


def _enlarge(image: np.ndarray, side: int) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.prepare", description=__doc__)
    parser.add_argument("--data", required=True, choices=get_args(DataName))
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--params", type=Path, default=params_file.DEFAULT_PATH)
    parser.add_argument("--pictures", type=Path, help="your own pictures, for --data folder")
    arguments = parser.parse_args()
    file = params_file.load(arguments.params).file
    name, pictures = arguments.data, arguments.pictures
    if pictures is not None and name != "folder":
        raise UserError(f"--pictures {pictures} goes with --data folder only, not with {name}")
    spec = file.download.sets.get(name, DownloadSet())
    prepare(arguments.root, name, file.prepare[name], spec, pictures)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
