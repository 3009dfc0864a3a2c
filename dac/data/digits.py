"""The 1,797 handwritten digits that ship inside scikit-learn."""

import numpy as np
from PIL import Image

from dac.config import Data
from dac.data.prepared import PartName
from dac.data.prepared_writer import NewPart, NewSet

DIGIT_PARTS: dict[PartName, tuple[int, ...]] = {"train": (0, 2, 4), "test": (1, 3), "dev": (5,)}


def digits(data: Data) -> NewSet:
    """The 1,797 digits of scikit-learn, enlarged; image i belongs to a part by i mod 6."""
    from sklearn.datasets import load_digits  # takes a second; only this set needs it

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
