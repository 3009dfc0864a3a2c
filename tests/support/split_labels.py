"""Generated labels that splits are made from, in a shuffled order like those of the real sets."""

import numpy as np

from dac.data.split_check import TrainLabels


def shuffled_labels(num_classes: int, per_class: int) -> TrainLabels:
    values = np.random.RandomState(99).permutation(np.repeat(np.arange(num_classes), per_class))
    return TrainLabels(values, hash=f"labels of {num_classes}", num_classes=num_classes)
