"""The data of a run: prepared images and a split, verified and combined."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dac.augment import Policy
from dac.config import Data, Run, Train
from dac.data import prepared, split_file
from dac.data.classes import relabel
from dac.data.prepared import Part
from dac.data.split_check import Split
from dac.io.errors import UserError


@dataclass(frozen=True)
class RunData:
    """The images of one run. Labels of the pool are for measuring, never for training."""

    num_known: int
    train_images: np.ndarray  # of the whole training part, N x 3 x H x W uint8
    labeled_index: np.ndarray  # rows of train_images
    labels: np.ndarray  # of the labeled images, 0 .. num_known - 1
    pool_index: np.ndarray  # rows of train_images
    pool_labels: np.ndarray  # unknown classes num_known and above, -1 where not published
    test_images: np.ndarray
    test_labels: np.ndarray
    policy: Policy
    split_hash: str
    known_names: tuple[str, ...] = ()

    @property
    def is_known_test(self) -> np.ndarray:
        return (self.test_labels >= 0) & (self.test_labels < self.num_known)


def run_data(split: Split, train: Part, test: Part, data: Data, settings: Train) -> RunData:
    """Combine a split with its images; `pool_includes_labeled` is applied here."""
    labels = relabel(train.labels, split.known)
    test_labels = relabel(test.labels, split.known)
    if not np.any((test_labels >= 0) & (test_labels < split.num_known)):
        raise UserError(
            f"the test images of {split.task} show none of its {split.num_known} known classes; "
            "add some to the test part and prepare the data again"
        )
    pool = split.unlabeled
    if settings.pool_includes_labeled:
        pool = np.union1d(pool, split.labeled)
    return RunData(
        num_known=split.num_known,
        train_images=train.images,
        labeled_index=split.labeled,
        labels=labels[split.labeled],
        pool_index=pool,
        pool_labels=labels[pool],
        test_images=test.images,
        test_labels=test_labels,
        policy=policy(data),
        split_hash=split.hash,
    )


def policy(data: Data) -> Policy:
    return Policy(
        size=data.size,
        pad=data.pad,
        flip=data.flip,
        random_resized_crop=data.side > data.size,
        mean=data.mean,
        std=data.std,
    )


def load_data(run: Run, root: Path) -> RunData:
    """Return the prepared images and the split of a run, both verified."""
    data = prepared.load(root, run.task.data)
    prepared.check_sides(data, run.data)
    path = split_file.default_path(root, run.task_name, run.seed)
    chosen = split_file.load(path, run.task_name, run.task, run.seed, split_file.train_labels(data))
    names = tuple(data.classes[i] for i in chosen.known)
    found = run_data(chosen, data.part("train"), data.part(run.task.test_part), run.data, run.train)
    return replace(found, known_names=names)
