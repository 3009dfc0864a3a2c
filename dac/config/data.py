"""The sections `download` and `prepare`: where data sets come from and what they look like."""

from typing import Annotated, get_args

from pydantic import Field, field_validator

from dac.config.base import Count, DataName, NonNegative, Positive, Section, Side, Size, SizeOrZero

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
    timeout_seconds: Annotated[float, Field(gt=0, le=3600)]
    """A connection without an answer, or silent, for this long counts as dead."""
    slowest_kilobytes_per_second: NonNegative
    """A connection that is slower than this over `timeout_seconds` is closed; 0 turns this off."""
    retries: Annotated[int, Field(ge=0, le=100)]
    """Further attempts per mirror after the first, each resuming where the last one stopped."""
    retry_wait_seconds: Annotated[float, Field(ge=0, le=3600)]
    """Wait before the first retry; it doubles with each further one."""
    longest_hours: Positive
    """Time for one archive from one mirror, all attempts and waits included."""
    largest_gigabytes: Positive
    """Size of the largest archive that is downloaded, where no `size` is given."""
    sets: dict[DataName, DownloadSet]
    """A set without an entry has nothing to download, as `{}`."""

    @field_validator("sets")
    @classmethod
    def _with_every_set(cls, given: dict[DataName, DownloadSet]) -> dict[DataName, DownloadSet]:
        return {name: DownloadSet() for name in get_args(DataName)} | given


class Data(Section):
    """What one data set looks like after `prepare`."""

    num_classes: Size | None
    """Number of classes; None: counted from the folders."""
    train_per_class: Count | None = None
    """Size of the smallest class of the training part, where fixed; bounds labels per class."""
    test_per_class: Count | None = None
    """Size of every class of the test part, where fixed; `prepare` checks it."""
    side: Side
    """Side of the stored square training images."""
    size: Side
    """Side of the images that the network sees."""
    pad: SizeOrZero
    """Reflect padding of the random crop (same-size sets only)."""
    flip: bool
    """Whether to flip horizontally; off for digits, whose mirror images are other symbols."""
    mean: tuple[NonNegative, NonNegative, NonNegative]
    std: tuple[Positive, Positive, Positive]
