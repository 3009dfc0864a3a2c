"""The section `tasks`: which classes are known, which images are labeled, how large the pool is."""

from typing import Any, Literal

from dac.config.base import Count, DataName, Probability, Section, Seed, Size
from dac.config.data import Below, Md5

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


class Pool(Section):
    """A controlled unlabeled pool instead of the whole training part (Fig. 2, Fig. 11)."""

    size: Count
    outlier_share: Probability
    draw: Seed | None = None
    """None: Fig. 11's pool. A number: the n-th independent subset of Fig. 2."""


class LabeledList(Section):
    """A published list of labeled files, used when the raw folder has it."""

    path: Below
    md5: Md5


class Task(Section):
    data: DataName
    known_rule: Literal["first", "listed", "superclasses", "per-superclass", "all"]
    """How known classes are chosen: the first n ids; `known` itself; whole CIFAR-100 superclasses;
    the first ids of every superclass (correlated outliers); every labeled class."""
    num_known: Size | None = None
    """Number of known classes; None with the rule `all`."""
    known: tuple[int, ...] | None = None
    """Class ids of the rule `listed`."""
    labels_per_class: Count | None = None
    """Labeled images per class; None: the whole labeled part (Semi-iNat, own pictures)."""
    labeled_list: LabeledList | None = None
    pool: Pool | None = None
    test_part: Literal["test", "dev"] = "test"
    """`dev` is for choosing parameters without looking at the test part."""
    train: dict[str, Any] = {}
    """Training settings that differ for this task."""


def pool_counts(pool: Pool, num_known: int, num_unknown: int) -> tuple[int, int]:
    """Return the images per known and per unknown class of a controlled pool (Fig. 2, Fig. 11).

    The release truncates `size * (1 - share)`, which through floating point loses an image per
    class at shares of 0.8 and 0.9; we round.
    """
    per_known = round(pool.size * (1 - pool.outlier_share)) // num_known
    if num_unknown == 0:
        return per_known, 0
    return per_known, (pool.size - per_known * num_known) // num_unknown
