"""Folders of pictures: any name, broken pictures, links, pipes. None is mixed up or left out.

Some of the accepted ones go on to evaluate: predictions.csv must give every picture its own score.
"""

import csv
import os
import random
import shutil
from pathlib import Path

import damage
import numpy as np
import yaml
from tiny_sets import PARAMS, jpeg
from verdicts import ACCEPTED, Wrong, judged

from dac import evaluate, prepare, split, train
from dac.data.decode import decode
from dac.data.prepared import load

SIDE = 32
CLASSES = ("labeled/cat", "labeled/dog", "test/cat", "test/bird", "unlabeled", "unlabeled/deep")
TRAIN = {
    "backbone": "small-cnn",
    "epochs": 2,
    "steps_per_epoch": 1,
    "evaluate_every": 2,
    "batch": 2,
    "mu": 1,
}
CHANGES = ("name",) * 6 + (
    "class",
    "broken",
    "text",
    "pipe",
    "dangling",
    "loop",
    "linked folder",
    "gone",
)


class Pictures:
    """A sound set is prepared first; after every refusal it must still be there, whole."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.sound = folder, folder / "sound"
        self.seed = 0
        self.params = folder / "params.yaml"
        raw = yaml.load(PARAMS.read_text(), yaml.CSafeLoader)
        raw["train"]["by_data"]["folder"] = TRAIN
        self.params.write_text(yaml.dump(raw, Dumper=yaml.CSafeDumper))
        for place in CLASSES:
            self._add(self.sound / place, "picture.jpg")

    def case(self, draw: random.Random) -> str:
        mine, root = self.folder / "mine", self.folder / "data"
        try:
            assert self._prepare(self.sound, root) == ACCEPTED
            before = _content(root)
            shutil.copytree(self.sound, mine)
            for _ in range(draw.randint(1, 4)):
                self._change(mine, draw)
            verdict = self._prepare(mine, root)
            if verdict == ACCEPTED:
                _check(mine, root)
                if draw.random() < 0.1:
                    verdict = self._predict(mine, root)
            elif _content(root) != before:
                raise Wrong("a refused folder has changed the set that was there")
            return verdict
        finally:
            for place in (mine, root, self.folder / "run"):
                shutil.rmtree(place, ignore_errors=True)

    def _prepare(self, pictures: Path, root: Path) -> str:
        options = ("--data", "folder", "--root", root, "--params", PARAMS, "--pictures", pictures)
        return judged(prepare.main, *options)

    def _predict(self, mine: Path, root: Path) -> str:
        run, places = self.folder / "run", ("--root", root, "--params", self.params)
        what = ("--task", "folder", "--seed", 1)
        for command in (
            (split.main, *what, *places),
            (train.main, *what, *places, "--method", "dac", "--out", run, "--device", "cpu"),
            (evaluate.main, "--run", run, *places, "--device", "cpu"),
        ):
            if (verdict := judged(*command)) != ACCEPTED:
                return verdict
        _check_predictions(mine, root, run)
        return ACCEPTED

    def _add(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.seed += 1
        (folder / name).write_bytes(jpeg(self.seed))

    def _change(self, mine: Path, draw: random.Random) -> None:
        folder = mine / draw.choice(CLASSES)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (damage.name(draw) + draw.choice((".jpg", ".png", "", ".JPG")))
        if os.path.lexists(path):
            return
        match draw.choice(CHANGES):
            case "name":
                self._add(folder, path.name)
            case "class":
                self._add(mine / draw.choice(("labeled", "test")) / path.name, "1.jpg")
            case "broken":
                path.write_bytes(damage.bytes_of(jpeg(1), draw))
            case "text":
                path.write_bytes(b"hello")
            case "pipe":
                os.mkfifo(path)
            case "dangling":
                path.symlink_to("nowhere")
            case "loop":
                path.symlink_to(draw.choice((path.name, ".", "..")))
            case "linked folder":
                path.symlink_to(self.sound / "unlabeled")
            case "gone":
                shutil.rmtree(folder)


def _content(root: Path) -> dict[str, bytes]:
    """Every file of the prepared set that a reader looks at."""
    folder = root / "prepared" / "folder"
    found = load(root, "folder")
    found.verify()
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ""}


def _check(mine: Path, root: Path) -> None:
    """Every row has the pixels of the file that it names, and no picture is missing."""
    found = load(root, "folder")
    for part in ("train", "test"):
        images, names = found.part(part).images, found.files(part)
        if len(images) != len(names) or len(set(names)) != len(names):
            raise Wrong(f"{len(names)} names for {len(images)} images")
        for image, name in zip(images, names, strict=True):
            if not np.array_equal(image, decode(mine / name, SIDE)):
                raise Wrong(f"the row of {name!r} shows another picture")
    listed = {*found.files("train"), *found.files("test")}
    if left_out := {path.relative_to(mine).as_posix() for path in _pictures(mine)} - listed:
        raise Wrong(f"left out: {sorted(left_out)}")


def _check_predictions(mine: Path, root: Path, run: Path) -> None:
    """Every row has the score of the picture that it names, found by its pixels and not by a list
    of names; and every picture has one row."""
    with (run / "predictions.csv").open(
        newline="", encoding="utf-8", errors="surrogateescape"
    ) as f:
        rows = [(row["part"], row["file"].removeprefix("'"), row) for row in csv.DictReader(f)]
    found = load(root, "folder")
    names = {*found.files("test"), *(n for n in found.files("train") if n[:2] == "un")}
    if {name for _, name, _ in rows} != names or len(rows) != len(names):
        raise Wrong(f"predictions.csv names {[name for _, name, _ in rows]}, not {sorted(names)}")
    with np.load(run / "scores.npz", allow_pickle=False) as scores:
        train_images, index = found.part("train").images, scores["pool_index"]
        known = {
            "test": (found.part("test").images, scores["test_scores"], scores["test_accepted"]),
            "pool": (train_images[index], scores["pool_scores"], scores["pool_accepted"]),
        }
    for part, name, row in rows:
        images, values, accepted = known[part]
        same = [np.array_equal(image, decode(mine / name, SIDE)) for image in images]
        told = (np.float32(row["score"]), row["accepted"] == "yes")
        if told not in set(zip(values[same], accepted[same], strict=True)):
            raise Wrong(f"the row of {name!r} has the score of another picture")


def _pictures(mine: Path) -> list[Path]:
    """Plain files with the name of a picture; hidden ones and links to folders aside."""
    return [
        path
        for path in mine.rglob("*.[jJ][pP][gG]")
        if path.is_file() and not any(part[0] == "." for part in path.relative_to(mine).parts)
    ]
