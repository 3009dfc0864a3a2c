"""Official files or own pictures -> arrays in the prepared format.

A set that is finished and intact is left alone; a damaged or outdated one is made again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dac.config import Data, DataName, DownloadSet
from dac.data import own_pictures, prepared, prepared_writer, raw
from dac.data.cifar import cifar
from dac.data.digits import digits
from dac.data.picture_sets import imagenet30, semi_inat
from dac.data.prepared_writer import NewSet
from dac.io.errors import UserError
from dac.io.progress import say


@dataclass(frozen=True)
class Recipe:
    """What determines the result, and the function that makes it."""

    inputs: dict[str, Any]
    build: Callable[[], NewSet]


def prepare(
    root: Path, name: DataName, data: Data, spec: DownloadSet, pictures: Path | None = None
) -> None:
    with prepared_writer.held(root, name) as folder:
        if _has_lost_its_source(root, name, pictures) and _is_current(root, name, None):
            prepared.check_sides(prepared.load(root, name), data)
            why = "no --pictures given" if name == "folder" else "its source is gone"
            say(f"{folder} is prepared and intact; {why}, nothing to do")
            return
        recipe = _recipe(root, name, data, spec, pictures)
        if _is_current(root, name, recipe.inputs):
            say(f"{folder} is already prepared and intact; nothing to do")
            return
        prepared_writer.write(folder, name, recipe.build(), recipe.inputs)
    say(f"prepared {name} in {folder}")


def _recipe(
    root: Path, name: DataName, data: Data, spec: DownloadSet, pictures: Path | None
) -> Recipe:
    settings = {"side": data.side, "size": data.size}
    if name == "digits":
        return Recipe(settings | {"source": "sklearn.datasets.load_digits"}, partial(digits, data))
    if name == "folder":
        if pictures is None:
            raise UserError(f"--data folder needs --pictures FOLDER; {own_pictures.LAYOUT}")
        found = own_pictures.find(pictures)
        source = own_pictures.fingerprint(found)
        build = partial(own_pictures.own_pictures, found, data)
        return Recipe(settings | {"source": source}, build)
    folder = raw.check(root, name, spec)
    builds: dict[str, Callable[[], NewSet]] = {
        "cifar10": partial(cifar, folder, name, data),
        "cifar100": partial(cifar, folder, name, data),
        "imagenet30": partial(imagenet30, folder, data),
        "semi-inat-2021": partial(semi_inat, folder, data),
    }
    return Recipe(settings | {"source": raw.fingerprint(folder)}, builds[name])


def _has_lost_its_source(root: Path, name: DataName, pictures: Path | None) -> bool:
    """Raw files may be deleted to save disk once the set is prepared."""
    if name in ("digits", "folder"):
        return name == "folder" and pictures is None
    return not raw.folder_of(root, name).exists()


def _is_current(root: Path, name: str, recipe: dict[str, Any] | None) -> bool:
    try:
        return prepared_writer.is_finished(root, name, recipe)
    except UserError as error:
        say(f"the existing data cannot be used: {error}")
        return False
