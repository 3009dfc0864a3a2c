"""The data of a run: what counts as known, and which images are in the pool."""

import numpy as np
from policies import DIGITS

from dac.data.run_data import RunData


def test_images_without_a_label_are_neither_known_nor_unknown() -> None:
    images = np.zeros((4, 3, 8, 8), dtype=np.uint8)
    rows, labels = np.arange(2), np.array([0, 1])
    test_labels = np.array([-1, 0, 1, 2])
    data = RunData(2, images, rows, labels, rows, labels, images, test_labels, DIGITS, "")
    assert data.is_known_test.tolist() == [False, True, True, False]
