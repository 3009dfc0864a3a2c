"""Which classes of a task are known and how they are numbered (Sec. IV-A of the paper).

Class lists as in the release (semilearn/datasets/utils.py); the numbers of every task are in
`params.yaml`, CIFAR-100's superclasses in dac/config/tasks.py.
"""

from collections.abc import Sequence

import numpy as np

from dac.config.tasks import CLASSES_PER_SUPERCLASS, SUPERCLASSES, Task
from dac.io.errors import UserError

NO_LABEL = -1  # a pool image whose class is not published


def known_classes(task: Task, num_classes: int) -> tuple[int, ...]:
    """Return the original ids of the known classes, ascending. `num_classes` counts all classes."""
    num_known = num_classes if task.num_known is None else task.num_known
    match task.known_rule:
        case "first" | "all":
            known: Sequence[int] = range(num_known)
        case "listed":
            known = task.known or ()
        case "superclasses":  # outliers from other superclasses
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
    """Map known classes to 0..C-1 and unknown ones to C.., in the order of original ids; keep -1.

    An unknown id moves up by the number of known ids above it, so the result depends neither on
    the part nor on the number of classes: train, dev and test always agree.
    """
    known_ids = np.sort(np.asarray(known, dtype=np.int64))
    labels = np.asarray(labels, dtype=np.int64)
    num_below = np.searchsorted(known_ids, labels)  # known ids smaller than each label
    result = np.where(np.isin(labels, known_ids), num_below, labels + len(known_ids) - num_below)
    return np.where(labels == NO_LABEL, NO_LABEL, result)
