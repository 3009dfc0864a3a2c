"""The digits of scikit-learn: their pixels, and which part each belongs to."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from dac import config
from dac.data.digits import digits

DATA = config.load(Path(__file__).parents[2] / "params.yaml").file.prepare["digits"]


def test_digits_are_the_images_of_scikit_learn_split_by_index() -> None:
    new, bunch = digits(DATA), load_digits()
    assert new.classes == tuple("0123456789")
    assert new.labeled_count is None
    index = np.arange(1797) % 6
    for part, remainders in {"train": (0, 2, 4), "test": (1, 3), "dev": (5,)}.items():
        mask = np.isin(index, remainders)
        images, labels = np.concatenate(list(new.parts[part].blocks)), new.parts[part].labels
        assert images.shape == (mask.sum(), 3, 16, 16) and images.dtype == np.uint8
        assert labels.dtype == np.int64 and (labels == bunch.target[mask]).all()
        assert (images == images[:, :1]).all(), "three equal channels"
        grey = torch.from_numpy(bunch.images[mask][:, None] * (255 / 16)).round()
        enlarged = torch.nn.functional.interpolate(grey, size=(16, 16), mode="bilinear")
        assert np.abs(enlarged[:, 0].numpy() - images[:, 0]).max() <= 1
    assert [len(new.parts[part].labels) for part in ("train", "test", "dev")] == [899, 599, 299]
