"""The section `tasks`: which classes are known and which images are labeled."""

from typing import Any, Literal

from dac.settings.base import Count, DataName, Probability, Section, Seed
from dac.settings.data import Below, Md5


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
    """How known classes are chosen: the first n ids; `known` itself; whole CIFAR-100 super-classes;
    the first ids of every super-class (correlated outliers); every labeled class."""
    num_known: Count | None = None
    """None with the rule `all`."""
    known: tuple[int, ...] | None = None
    """The ids of the rule `listed`."""
    labels_per_class: Count | None = None
    """None: every image of the labeled part (Semi-iNat, own pictures)."""
    labeled_list: LabeledList | None = None
    pool: Pool | None = None
    test_part: Literal["test", "dev"] = "test"
    """`dev` tasks choose parameters without looking at the test part."""
    train: dict[str, Any] = {}
    """Training settings that differ for this task."""
