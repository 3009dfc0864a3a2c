"""Where an archive comes from: the downloads folder, a local mirror folder, then each address.

Whatever the source, bytes go to `<archive>.partial` and get their final name only after size and
checksums match.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from dac.data.archives import is_archive
from dac.data.disk import writing
from dac.data.fetch import FetchError, Patience, fetch
from dac.errors import UserError
from dac.files import digest, sync_folder
from dac.logs import say
from dac.settings import Archive, Download, DownloadSet


@dataclass(frozen=True)
class Sources:
    downloads: Path
    """Folder of verified archives and of partial ones."""
    mirror: Path | None
    patience: Patience


def patience_of(settings: Download) -> Patience:
    return Patience(settings.timeout_seconds, settings.retries, settings.retry_wait_seconds)


def obtain(archive: Archive, spec: DownloadSet, sources: Sources) -> tuple[Path, str]:
    """The verified archive in the downloads folder, and where it came from."""
    path = sources.downloads / archive.name
    if path.exists():
        fault = wrong(path, archive)
        if fault is None:
            return path, "downloads folder"
        say(f"{path} {fault}; deleted, getting it again")
        path.unlink()
    reasons = []
    for place in (sources.mirror, *archive.urls):
        if place is None:
            continue
        say(f"getting {archive.name} from {place}")
        fault = _bring(place, archive, path, sources.patience)
        if fault is None:
            return path, str(place)
        say(f"{place}: {fault}")
        reasons.append(f"  {place}: {fault}")
    raise UserError(_nowhere(archive, spec, reasons))


def wrong(path: Path, archive: Archive) -> str | None:
    """What is wrong with a file that should be `archive`; None for the right one."""
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
    """Fill `path` from one place; the reason where that failed."""
    partial = path.with_name(f"{path.name}.partial")
    if isinstance(place, Path):
        return _copied(place / archive.name, partial) or _accepted(partial, path, archive)
    is_continued = partial.exists()
    try:
        fetch(place, partial, patience, archive.size)
        fault = _accepted(partial, path, archive)
        if fault and is_continued:  # the old beginning may be to blame, not this address
            say(f"{archive.name} {fault}; fetching all of it again")
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
    """Give the finished name to the right file; delete a wrong one and say what is wrong."""
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
    lines = [f"{archive.name} could not be had", *reasons]
    if not archive.urls:
        lines[0] += "; no program can fetch it"
    if spec.manual:
        lines.append(spec.manual)
    else:
        lines.append(
            f"Offline: put {archive.name} into a folder and run this command again with "
            "--mirror FOLDER (or DAC_MIRROR=FOLDER), or give an extracted copy with "
            "--extracted FOLDER"
        )
    return "\n".join(lines)
