"""The raw folder `<root>/raw/<set>/`: official files as published, and whether they are complete.

Sets with published checksums are verified file by file, the others by the number of files in
each folder. `receipt.json` records where the files came from and their digests.
"""

from pathlib import Path
from typing import Any

from dac.config import DownloadSet
from dac.data.listing import files_below, listing
from dac.io.errors import UserError, reason
from dac.io.files import canonical_hash, digest, read_json

LISTS = "filelist"  # published lists of files and labels, optional
RECEIPT = "receipt.json"


def folder_of(root: Path, name: str) -> Path:
    return root / "raw" / name


def command(root: Path, name: str) -> str:
    return f"python -m dac.download --data {name} --root {root}"


def find(folder: Path, name: str) -> Path | None:
    """Return the folder `name` in or one level below `folder`; `name/name` counts as `name`."""
    places = [folder / name, *sorted(folder.glob(f"*/{name}"))]
    found = next((place for place in places if place.is_dir()), None)
    while found is not None and (found / name).is_dir():
        found = found / name
    return found


def faults(folder: Path, spec: DownloadSet) -> list[str]:
    """Return everything that is missing or wrong in a raw folder; empty for a good one."""
    if not folder.is_dir():
        return ["the folder does not exist"]
    return [*_file_faults(folder, spec.files), *_count_faults(folder, spec.counts)]


def check(root: Path, name: str, spec: DownloadSet) -> Path:
    """Return the raw folder of `name` after verifying it."""
    folder = folder_of(root, name)
    if not (folder / RECEIPT).is_file():
        raise UserError(f"{folder} does not contain {name}; run `{command(root, name)}` first")
    if found := faults(folder, spec):
        raise UserError(
            f"{folder} is not the published {name}: {'; '.join(found)}. "
            f"Run `{command(root, name)}` to repair it"
        )
    return folder


def fingerprint(folder: Path) -> str:
    """Return a hash that changes with the official files or the lists beside them."""
    receipt = read_json(folder / RECEIPT, "receipt")
    lists = {name: digest(folder / LISTS / name, "md5") for name in files_below(folder / LISTS)}
    return canonical_hash([receipt.get("digests"), lists])


def receipt(name: str, source: dict[str, Any], digests: dict[str, Any]) -> dict[str, Any]:
    return {"set": name, "source": source, "digests": digests}


def _file_faults(folder: Path, files: dict[str, str]) -> list[str]:
    found = []
    for name, md5 in files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif fault := _md5_fault(path, md5):
            found.append(f"{name} {fault}")
    return found


def _md5_fault(path: Path, md5: str) -> str | None:
    try:
        seen = digest(path, "md5")
    except OSError as error:
        return f"cannot be read ({reason(error)})"
    return None if seen == md5 else f"has md5 {seen}, expected {md5}"


def _count_faults(folder: Path, counts: dict[str, int]) -> list[str]:
    found = []
    for name, count in counts.items():
        place = find(folder, name)
        if place is None:
            found.append(f"the folder {name}/ is missing")
            continue
        seen = listing(place)
        found += seen.faults[:3]
        if len(seen.files) != count:
            found.append(f"{name}/ holds {len(seen.files)} files, expected {count}")
    return found
