"""Sources of an archive: the downloads folder, a local mirror folder, then each address.

Whatever the source, bytes go to `<archive>.partial`, which gets its final name only after size and
checksums match.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from dac.config import Archive, Download, DownloadSet
from dac.data.archive_members import is_archive
from dac.data.fetch import FetchError, Patience, fetch
from dac.io.disk import writing
from dac.io.errors import UserError
from dac.io.files import digest, sync_folder
from dac.io.progress import say


@dataclass(frozen=True)
class Sources:
    downloads: Path
    """Folder of verified and partial archives."""
    mirror: Path | None
    patience: Patience


def patience_of(settings: Download) -> Patience:
    return Patience(
        timeout=settings.timeout_seconds,
        slowest=1e3 * settings.slowest_kilobytes_per_second,
        retries=settings.retries,
        wait=settings.retry_wait_seconds,
        longest=3600 * settings.longest_hours,
        largest=int(1e9 * settings.largest_gigabytes),
    )


def obtain(archive: Archive, spec: DownloadSet, sources: Sources) -> tuple[Path, str]:
    """Return the verified archive in the downloads folder, and where it came from."""
    path = sources.downloads / archive.name
    if path.exists():
        fault = wrong(path, archive)
        if fault is None:
            return path, "downloads folder"
        say(f"{path} {fault}; deleted it, getting it again")
        path.unlink()
    reasons = []
    for place in (sources.mirror, *archive.urls):
        if place is None:
            continue
        bounds = "" if isinstance(place, Path) else f" ({_bounds(archive, sources.patience)})"
        say(f"getting {archive.name} from {place}{bounds}")
        fault = _bring(place, archive, path, sources.patience)
        if fault is None:
            return path, str(place)
        say(f"{place}: {fault}")
        reasons.append(f"  {place}: {fault}")
    raise UserError(_nowhere(archive, spec, reasons))


def _bounds(archive: Archive, patience: Patience) -> str:
    """Say how much a download may take."""
    hours = f"within {patience.longest / 3600:g} h (download.longest_hours)"
    if archive.size is not None:
        return f"{archive.size / 1e6:,.1f} MB, {hours}"
    return f"at most {patience.largest / 1e9:g} GB (download.largest_gigabytes), {hours}"


def wrong(path: Path, archive: Archive) -> str | None:
    """Return what is wrong with a file that should be `archive`; None if it is right."""
    size = path.stat().st_size
    if archive.size is not None and size != archive.size:
        return f"has {size} bytes, expected {archive.size}"
    for kind, expected in (("sha256", archive.sha256), ("md5", archive.md5)):
        if expected is not None and (seen := digest(path, kind)) != expected:
            return f"has {kind} {seen}, expected {expected}"
    if not is_archive(path):
        return f"is not an archive ({size} bytes)"
    return None


def _bring(place: Path | str, archive: Archive, path: Path, patience: Patience) -> str | None:
    """Fill `path` from one place; return the reason if that failed."""
    partial = path.with_name(f"{path.name}.partial")
    if isinstance(place, Path):
        return _copied(place / archive.name, partial) or _accepted(partial, path, archive)
    is_continued = partial.exists()
    try:
        fetch(place, partial, patience, archive.size)
        fault = _accepted(partial, path, archive)
        if fault and is_continued:  # the old beginning may be to blame, not this address
            say(f"{archive.name} {fault}; downloading all of it again")
            fetch(place, partial, patience, archive.size)
            fault = _accepted(partial, path, archive)
    except FetchError as error:
        return str(error)
    return fault


def _copied(source: Path, partial: Path) -> str | None:
    if not source.is_file():
        return f"no file {source.name} there"
    try:
        reader = source.open("rb")
    except OSError as error:
        return f"{source.name} cannot be read ({error.strerror})"
    try:
        with reader, writing(partial), partial.open("wb") as file:
            shutil.copyfileobj(reader, file)
    except UserError:
        partial.unlink(missing_ok=True)  # cheap to copy again, and the disk may be full
        raise
    return None


def _accepted(partial: Path, path: Path, archive: Archive) -> str | None:
    """Give the right file its final name; delete a wrong one and return what is wrong."""
    fault = wrong(partial, archive)
    if fault is not None:
        partial.unlink()
        return fault
    with writing(path):
        descriptor = os.open(partial, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(path)
        sync_folder(path.parent)
    return None


def _nowhere(archive: Archive, spec: DownloadSet, reasons: list[str]) -> str:
    lines = [f"{archive.name} could not be downloaded", *reasons]
    if not archive.urls:
        lines[0] += "; no program can download it"
    if spec.manual:
        lines.append(spec.manual)
    else:
        lines.append(
            f"Offline: put {archive.name} into a folder and run this command again with "
            "--mirror FOLDER (or DAC_MIRROR=FOLDER), or give an extracted copy with "
            "--extracted FOLDER"
        )
    return "\n".join(lines)
