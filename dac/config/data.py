"""The sections `download` and `prepare`: where data sets come from and what they look like."""

from typing import Annotated

from pydantic import Field

from dac.config.base import Count, DataName, NonNegative, Positive, Section

Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Below = Annotated[str, Field(pattern=r"^\w[^/\\]*(/\w[^/\\]*)*$")]
"""A path below a folder: no leading slash, nothing that starts with a dot."""


class Archive(Section):
    name: Annotated[str, Field(pattern=r"^\w[^/\\]*$")]
    """File name of the archive, also looked for in a local mirror folder."""
    urls: tuple[Url, ...] = ()
    """Mirrors, tried in order."""
    md5: Md5 | None = None
    sha256: Sha256 | None = None
    size: Count | None = None
    """Size in bytes, where published."""


class DownloadSet(Section):
    archives: tuple[Archive, ...] = ()
    files: dict[Below, Md5] = {}
    """Path below the raw folder -> md5 of that file."""
    counts: dict[Below, Count] = {}
    """Folder below the raw folder -> number of files in it, where no checksums are published."""
    manual: str | None = None
    """Manual steps, for sets that no program can download."""


class Download(Section):
    timeout_seconds: Positive
    """A connection that is silent for this long counts as dead."""
    retries: Annotated[int, Field(ge=0)]
    """Further attempts per mirror after the first, each resuming where the last one stopped."""
    retry_wait_seconds: NonNegative
    """Wait before the first retry; it doubles with each further one."""
    sets: dict[DataName, DownloadSet]


class Data(Section):
    """What one data set looks like after `prepare`."""

    num_classes: Count | None
    """Number of classes; None: counted from the folders."""
    train_per_class: Count | None = None
    """Size of the smallest class of the training part, where fixed; bounds labels per class."""
    test_per_class: Count | None = None
    """Size of every class of the test part, where fixed; `prepare` checks it."""
    side: Count
    """Side of the stored square training images."""
    size: Count
    """Side of the images that the network sees."""
    pad: Annotated[int, Field(ge=0)]
    """Reflect padding of the random crop (same-size sets only)."""
    flip: bool
    """Whether to flip horizontally; off for digits, whose mirror images are other symbols."""
    mean: tuple[float, float, float]
    std: tuple[Positive, Positive, Positive]
