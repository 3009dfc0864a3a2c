"""Unpack .tar (also compressed) and .zip archives without trusting them.

`tarfile.data_filter` checks every member, of zip files too, before anything is written. Whatever
it would repair, or allow beyond plain files and folders, is refused, as are duplicate names,
more bytes than the disk has free and more members than real archives have. Only names and bytes
come out: no owners, modes or times.
"""

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from dac.data.archive_members import Member, damaged, members_of
from dac.io.disk import free_bytes, write_all, writing
from dac.io.errors import UserError
from dac.io.progress import MEGABYTES, Progress

LONGEST_NAME, LONGEST_PART = 1024, 255  # bytes; the second is the limit of most file systems
MOST_MEMBERS = 2_000_000  # listing them takes 3 GB of memory and a few minutes
HEADERS_PER_BYTE = 2048  # bytes of headers per byte of the file; empty files in .tar.xz reach 415
AGAIN = "nothing was unpacked. Delete the archive and download it from a source you trust"


def extract(archive: Path, folder: Path) -> None:
    """Unpack into `folder`. Damage shows up only while reading, so give a temporary folder."""
    with members_of(archive) as members:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        targets = _checked(members, archive, free_bytes(folder))
        total = sum(member.header.size for member in targets.values())
        progress, done = Progress(f"extract {archive.name}", total, unit=MEGABYTES), 0
        for path, member in targets.items():
            _unpack(member, folder / path, archive)
            done += member.header.size
            progress.update(done)


def _checked(members: Iterable[Member], archive: Path, limit: int) -> dict[PurePosixPath, Member]:
    """Return every member by its path; refuse the whole archive if one is not acceptable."""
    found: dict[PurePosixPath, Member] = {}
    headers = total = 0
    most_headers = HEADERS_PER_BYTE * archive.stat().st_size
    for count, member in enumerate(members, start=1):
        headers += member.header_bytes
        if count > MOST_MEMBERS or headers > most_headers:
            raise UserError(
                f"{archive} has more than {count - 1:,} members, too many for its "
                f"{archive.stat().st_size:,} bytes (a decompression bomb?); {AGAIN}"
            )
        path = _admitted(member.header, archive)
        known = found.get(path)
        if known and not (known.header.isdir() and member.header.isdir()):
            raise _refused(archive, member.header.name, "appears twice")
        found[path] = member
        total += member.header_bytes + member.header.size
        if total > limit:  # checked here, before an endless member is read
            raise UserError(
                f"{archive} unpacks to more than the {limit / 1e6:,.1f} MB of free space; "
                "free some space or give another --root"
            )
    if not found:  # zipfile finds none in a file whose index was overwritten with zeros
        raise damaged(archive, "it has no members")
    for path in found:
        if any(parent in found and found[parent].header.isreg() for parent in path.parents):
            raise _refused(archive, str(path), "is below a file")
    return found


def _admitted(header: tarfile.TarInfo, archive: Path) -> PurePosixPath:
    """Return the path of a member that the filter accepts as it is."""
    if not _is_encodable(header.name):  # the filter would fail on it
        raise _refused(archive, header.name[:LONGEST_NAME], "has a name that no file can have")
    try:
        filtered = tarfile.data_filter(header, "/nowhere")
    except tarfile.FilterError as error:
        raise _refused(archive, header.name, f"is not safe ({error})") from error
    path = PurePosixPath(header.name)  # drops `.` parts and doubled slashes
    if filtered.name != header.name or "\\" in header.name or ".." in path.parts:
        raise _refused(archive, header.name, "is not a plain relative name")
    lengths = [len(os.fsencode(part)) for part in path.parts]
    if sum(lengths) > LONGEST_NAME or max(lengths, default=0) > LONGEST_PART:
        raise _refused(archive, f"{header.name[:LONGEST_PART]}...", "has too long a name")
    if not (header.isreg() or header.isdir()) or header.issparse():
        raise _refused(archive, header.name, "is neither a plain file nor a folder")
    if header.size < 0 or (header.isreg() and not path.parts):
        raise _refused(archive, header.name, f"has no name or a size of {header.size}")
    return path


def _is_encodable(name: str) -> bool:
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def _refused(archive: Path, name: str, why: str) -> UserError:
    return UserError(f"{archive}: member {name!r} {why}; {AGAIN}")


def _unpack(member: Member, target: Path, archive: Path) -> None:
    is_folder = member.header.isdir()
    with writing(target):
        (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
    if is_folder:
        return
    if target.exists():
        raise UserError(
            f"{archive} contains {member.header.name}, as does another archive of this set"
        )
    with writing(target):
        file = target.open("xb", buffering=0)
    with file:
        for chunk in member.chunks():
            write_all(file, chunk, target)
