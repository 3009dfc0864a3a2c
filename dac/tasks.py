"""Which classes a task knows, how they are numbered, and how large a controlled pool is.

Sec. IV-A of the paper; class lists and pools as in the release (semilearn/datasets/utils.py). Pure
functions: every task's numbers are in `params.yaml`, only CIFAR-100's super-classes are here.
"""

from collections.abc import Sequence

import numpy as np

from dac.errors import UserError
from dac.settings import Pool, Task

# CIFAR-100: row = coarse label, ids = fine labels; IOMatch encodes the same partition.
SUPERCLASSES: tuple[tuple[int, ...], ...] = (
    (4, 30, 55, 72, 95),
    (1, 32, 67, 73, 91),
    (54, 62, 70, 82, 92),
    (9, 10, 16, 28, 61),
    (0, 51, 53, 57, 83),
    (22, 39, 40, 86, 87),
    (5, 20, 25, 84, 94),
    (6, 7, 14, 18, 24),
    (3, 42, 43, 88, 97),
    (12, 17, 37, 68, 76),
    (23, 33, 49, 60, 71),
    (15, 19, 21, 31, 38),
    (34, 63, 64, 66, 75),
    (26, 45, 77, 79, 99),
    (2, 11, 35, 46, 98),
    (27, 29, 44, 78, 93),
    (36, 50, 65, 74, 80),
    (47, 52, 56, 59, 96),
    (8, 13, 48, 58, 90),
    (41, 69, 81, 85, 89),
)
CLASSES_PER_SUPERCLASS = len(SUPERCLASSES[0])
NO_LABEL = -1  # an image of the pool whose class nobody published


def known_classes(task: Task, num_classes: int) -> tuple[int, ...]:
    """Original ids of the known classes, ascending. `num_classes` counts known and unknown."""
    num_known = num_classes if task.num_known is None else task.num_known
    match task.known_rule:
        case "first" | "all":
            known: Sequence[int] = range(num_known)
        case "listed":
            known = task.known or ()
        case "superclasses":  # outliers from other super-classes
            rows = SUPERCLASSES[: num_known // CLASSES_PER_SUPERCLASS]
            known = [fine for row in rows for fine in row]
        case "per-superclass":  # correlated: outliers are siblings of the known classes
            per_row = num_known // len(SUPERCLASSES)
            known = [fine for row in SUPERCLASSES for fine in row[:per_row]]
    if len(set(known)) != num_known or not set(known) <= set(range(num_classes)):
        raise UserError(
            f"the rule `{task.known_rule}` with num_known {task.num_known} gives the known classes "
            f"{sorted(known)}, but {task.data} has the classes 0..{num_classes - 1}; "
            "correct the task in params.yaml"
        )
    return tuple(sorted(known))


def relabel(labels: np.ndarray, known: Sequence[int]) -> np.ndarray:
    """Known classes to 0..C-1, unknown ones to C.. , both in ascending original id; -1 stays -1.

    An unknown id moves up by the number of known ids above it, so the result depends on neither
    the part nor the number of classes: train, dev and test always agree.
    """
    known_ids = np.sort(np.asarray(known, dtype=np.int64))
    labels = np.asarray(labels, dtype=np.int64)
    num_below = np.searchsorted(known_ids, labels)  # known ids smaller than each label
    result = np.where(np.isin(labels, known_ids), num_below, labels + len(known_ids) - num_below)
    return np.where(labels == NO_LABEL, NO_LABEL, result)


def pool_counts(pool: Pool, num_known: int, num_unknown: int) -> tuple[int, int]:
    """Images per known and per unknown class of a controlled pool (Fig. 2, Fig. 11).

    The release truncates `size * (1 - share)`, which loses an image per class at shares of 0.8 and
    0.9 to floating point; we round.
    """
    per_known = round(pool.size * (1 - pool.outlier_share)) // num_known
    if num_unknown == 0:
        return per_known, 0
    return per_known, (pool.size - per_known * num_known) // num_unknown
