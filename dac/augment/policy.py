"""How the images of a data set are augmented."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Set by the section `prepare` of `params.yaml`."""

    size: int
    """Side of every view."""
    pad: int
    """Reflected pixels added on each side before the random crop."""
    flip: bool
    """Whether half of the views are mirrored; off for digits, which become other symbols."""
    random_resized_crop: bool
    """Whether strong views start from a random-resized crop (224 px), not from a plain crop."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    """Normalization of each channel, after scaling to [0, 1]."""
    num_ops: int = 3
    """RandAugment operations per strong view."""
