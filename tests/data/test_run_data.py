"""The data of a run: what counts as known, and which images are in the pool."""

from dataclasses import replace

import numpy as np
import pytest
import toy
from policies import DIGITS

from dac.data import prepared
from dac.data.run_data import RunData, load_data
from dac.io.errors import UserError


def test_images_without_a_label_are_neither_known_nor_unknown() -> None:
    images = np.zeros((4, 3, 8, 8), dtype=np.uint8)
    rows, labels = np.arange(2), np.array([0, 1])
    test_labels = np.array([-1, 0, 1, 2])
    data = RunData(2, images, rows, labels, rows, labels, images, test_labels, DIGITS, "")
    assert data.is_known_test.tolist() == [False, True, True, False]


def test_images_that_were_prepared_for_other_sides_are_refused(root, tmp_path):
    params = toy.toy_params(tmp_path)
    run = params.run(toy.TASK, "dac", 1)
    prepared.check_sides(prepared.load(root, "digits"), run.data)
    for name in ("side", "size"):
        other = replace(run, data=run.data.model_copy(update={name: 20}))
        told = rf"with side 16, size 16, and .* ask for .*{name} 20.*--data digits` again"
        with pytest.raises(UserError, match=told):
            load_data(other, root)
