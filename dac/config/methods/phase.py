"""What a training step draws and costs, as stated by the settings of a method.

Drawing batches, planning GPU hours and selecting networks all rely on this one statement. No torch:
the workflow reads it in every job.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

GRADIENT = 3  # cost of a forward and a backward pass, in forward passes


@dataclass(frozen=True)
class ViewCounts:
    """Number of views of every image in the labeled and in the unlabeled batch."""

    labeled: int = 0
    weak: int = 0
    strong: int = 0
    labeled_strong: int = 0

    def __or__(self, other: "ViewCounts") -> "ViewCounts":
        """Return counts that are enough for both."""
        return ViewCounts(
            max(self.labeled, other.labeled),
            max(self.weak, other.weak),
            max(self.strong, other.strong),
            max(self.labeled_strong, other.labeled_strong),
        )


@dataclass(frozen=True)
class Stream:
    """An additional stream of pool images: as many as a batch has, and the views of each."""

    batch: Literal["labeled", "unlabeled"]
    weak: int = 0
    strong: int = 0
    with_labeled: bool = False
    """Whether to draw labeled images too; their positions follow those of the pool."""


@dataclass(frozen=True)
class Forwards:
    """Forward passes of a step, per labeled and per unlabeled image in its batches."""

    labeled: float = 0
    unlabeled: float = 0

    def __add__(self, other: "Forwards") -> "Forwards":
        return Forwards(self.labeled + other.labeled, self.unlabeled + other.unlabeled)


@dataclass(frozen=True)
class Phase:
    """What all steps of an epoch have in common."""

    shared: ViewCounts = ViewCounts()
    """Views that are encoded in the single forward pass of `Step.views`."""
    apart: ViewCounts = ViewCounts()
    """Views that the method encodes itself: mixed, or in a forward pass of its own."""
    streams: Mapping[str, Stream] = field(default_factory=dict)
    """Additional images, `Batch.more` by name. A `Selection` of the same name restricts a stream;
    one named "unlabeled" restricts the unlabeled batch."""
    averages: bool = True
    """Whether the averaged weights lag behind the live ones; otherwise they are kept equal."""
    selectable: bool = True
    """Whether a network of this phase may become the best one."""
    pool_passes: int = 0
    """Passes over the whole pool before the first step of the epoch."""
    extra: Forwards = Forwards()
    """Cost beyond a forward and a backward pass of every view: guesses, teachers, rotations."""

    @property
    def drawn(self) -> ViewCounts:
        return self.shared | self.apart

    def __or__(self, other: "Phase") -> "Phase":
        """Return the phase of a step that does the work of both."""
        return Phase(
            shared=self.shared | other.shared,
            apart=self.apart | other.apart,
            streams={**self.streams, **other.streams},
            averages=self.averages and other.averages,
            selectable=self.selectable and other.selectable,
            pool_passes=self.pool_passes + other.pool_passes,
            extra=self.extra + other.extra,
        )

    def forwards(self) -> Forwards:
        """Forward passes of a step; a backward pass counts as two."""
        total = self.extra
        for views in (self.shared, self.apart):
            labeled, unlabeled = views.labeled + views.labeled_strong, views.weak + views.strong
            total += Forwards(GRADIENT * labeled, GRADIENT * unlabeled)
        for stream in self.streams.values():
            passes = GRADIENT * (stream.weak + stream.strong)
            is_small = stream.batch == "labeled"
            total += Forwards(passes, 0) if is_small else Forwards(0, passes)
        return total
