"""The official files of a data set -> `<root>/raw/<set>/`, verified.

Sources: an extracted copy if one is given; else an archive already downloaded, a mirror folder, the
addresses in `params.yaml`. Everything is unpacked beside its target and renamed when complete.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dac.config import DownloadSet
from dac.data import raw
from dac.data.archives import extract
from dac.data.listing import files_below
from dac.data.sources import Sources, obtain
from dac.io.disk import writing
from dac.io.errors import UserError
from dac.io.files import canonical_hash, digest, locked, write_bytes, write_json
from dac.io.progress import Progress, say


@dataclass(frozen=True)
class Job:
    name: str
    spec: DownloadSet
    root: Path
    sources: Sources
    extracted: Path | None = None

    @property
    def raw(self) -> Path:
        return raw.folder_of(self.root, self.name)


def download(job: Job) -> None:
    """Leave a verified raw folder behind, or raise and leave it as it was."""
    with writing(job.sources.downloads):
        job.sources.downloads.mkdir(parents=True, exist_ok=True)
    with locked(job.sources.downloads, f"download of {job.name} in"):
        _after_a_kill(job.raw)
        found = raw.faults(job.raw, job.spec)
        if not found and (job.raw / raw.RECEIPT).exists():
            say(f"{job.raw} already exists and is intact; nothing to download")
        elif not found:
            _adopt(job)
        else:
            _check_replaceable(job, found)
            _fill(job)
        _copy_lists(job)


def _adopt(job: Job) -> None:
    """The right files were put in place by hand: only the receipt is missing."""
    digests = {"files": job.spec.files, "trees": _trees(job.raw, job.spec)}
    write_json(job.raw / raw.RECEIPT, raw.receipt(job.name, {"placed by hand": "yes"}, digests))
    say(f"{job.raw} contains the right files; wrote its receipt")


def _check_replaceable(job: Job, found: list[str]) -> None:
    """Never delete what this stage did not write."""
    if not job.raw.exists() or (job.raw / raw.RECEIPT).exists():
        return
    others = [entry.name for entry in job.raw.iterdir() if entry.name != raw.LISTS]
    if others:
        raise UserError(
            f"{job.raw} contains {others[0]}, which this stage did not write, and is not the "
            f"published {job.name}: {'; '.join(found)}. Move it away and run the same command again"
        )


def _fill(job: Job) -> None:
    beside = job.raw.with_name(f".{job.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with writing(beside):
            beside.mkdir(parents=True)
        receipt = _from_copy(job, beside) if job.extracted else _from_archives(job, beside)
        if found := raw.faults(beside, job.spec):
            raise UserError(
                f"the files are not the published {job.name}: {'; '.join(found)}. Nothing was "
                f"kept in {job.raw}; delete the archives in {job.sources.downloads} and try "
                "another source (--mirror, --extracted)"
            )
        write_json(beside / raw.RECEIPT, receipt)
        _put_in_place(beside, job.raw)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    say(f"{job.name} is in {job.raw}")


def _put_in_place(beside: Path, target: Path) -> None:
    with writing(target):
        if (target / raw.LISTS).is_dir():  # lists may have been put there by hand
            shutil.copytree(target / raw.LISTS, beside / raw.LISTS)
        if target.exists():
            target.rename(_replaced(target))
        beside.rename(target)
        shutil.rmtree(_replaced(target), ignore_errors=True)


def _after_a_kill(target: Path) -> None:
    """If a command ended between the two renames, restore the old folder."""
    replaced = _replaced(target)
    if replaced.exists() and target.exists():
        shutil.rmtree(replaced)
    elif replaced.exists():
        replaced.rename(target)


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def _from_archives(job: Job, beside: Path) -> dict[str, Any]:
    places: dict[str, Any] = {}
    digests: dict[str, Any] = {}
    for archive in job.spec.archives:
        path, places[archive.name] = obtain(archive, job.spec, job.sources)
        extract(path, beside)
        sha256 = archive.sha256 or digest(path)  # recorded where none is published
        digests[archive.name] = {"sha256": sha256, "bytes": path.stat().st_size}
    return raw.receipt(job.name, places, {"archives": digests, "files": job.spec.files})


def _from_copy(job: Job, beside: Path) -> dict[str, Any]:
    """Copy the named files or the counted folders of an extracted copy, nothing else."""
    assert job.extracted is not None
    if not job.extracted.is_dir():
        raise UserError(
            f"--extracted {job.extracted} is not a folder; give the one that holds the files"
        )
    pairs = [(_place(job.extracted, name), Path(name)) for name in job.spec.files]
    for name in job.spec.counts:
        if place := raw.find(job.extracted, name):
            pairs += [(place / file, Path(name) / file) for file in files_below(place)]
    progress = Progress(f"copy {job.name}", len(pairs))
    for done, (source, target) in enumerate(pairs, 1):
        _copy(source, beside / target)
        progress.update(done)
    digests = {"files": job.spec.files, "trees": _trees(beside, job.spec)}
    return raw.receipt(job.name, {"extracted copy": str(job.extracted)}, digests)


def _place(extracted: Path, name: str) -> Path:
    """Find `name` below the copy, even if the copy is the archive's top folder itself."""
    inner = extracted / Path(*Path(name).parts[1:])
    return inner if inner.is_file() and not (extracted / name).is_file() else extracted / name


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        return  # the check after copying lists everything that is missing
    try:
        reader = source.open("rb")
    except OSError as error:
        raise UserError(
            f"{source} cannot be read ({error.strerror}); fix that and try again"
        ) from error
    with reader, writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            shutil.copyfileobj(reader, file)


def _trees(folder: Path, spec: DownloadSet) -> dict[str, str]:
    """One digest per counted folder: over the names and contents of its files."""
    found = {}
    for name in spec.counts:
        place = raw.find(folder, name)
        assert place is not None, f"{name} was counted before"
        files = files_below(place)
        found[name] = canonical_hash([(file, digest(place / file, "md5")) for file in files])
    return found


def _copy_lists(job: Job) -> None:
    for place in (job.sources.downloads, job.sources.mirror, job.extracted):
        if place is None:
            continue
        for path in sorted((place / raw.LISTS).glob("*.txt")):
            target = job.raw / raw.LISTS / path.name
            if not target.exists() or target.read_bytes() != path.read_bytes():
                write_bytes(target, path.read_bytes())
                say(f"copied the list {path} to {target}")
