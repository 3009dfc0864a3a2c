"""Check DVC's cache. DVC trusts its read-only objects without reading them again.

    python -m dac.workflow.cache_check

An object is named by the MD5 of its content. A damaged one is checked out, and pushed, as if
nothing had happened, and its copy in the workspace counts as up to date. Nothing is changed here;
the message says how to repair it.
"""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import yaml

from dac.config.arguments import command
from dac.io.errors import RunFailed, UserError, exit_code_of
from dac.io.files import digest
from dac.io.progress import Progress

OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")  # .dir: the list of a folder's files
LOCK = Path("dvc.lock")


def main() -> None:
    parser = command("cache-check", __doc__)
    parser.add_argument("--cache", type=Path, default=Path(".dvc/cache"), help="`dvc cache dir`")
    cache = parser.parse_args().cache
    if not cache.is_dir():
        raise UserError(
            f"there is no cache {cache}; give the folder that `dvc cache dir` prints with --cache, "
            "or fill it with `dvc pull`"
        )
    found = objects(cache)
    faults = damaged(found)
    copies = copies_of(cache) if faults else {}
    for path, fault in faults.items():
        print(f"{path}: {fault}")
        for copy in copies.get(expected(path), []):
            is_intact = digest(copy, "md5") == expected(path)
            print(f"  {copy}: {'intact' if is_intact else 'damaged or changed, too'}")
    if faults:
        raise RunFailed(
            f"{len(faults)} of {len(found)} objects are damaged. Delete them and their damaged "
            "copies, then run `dvc pull`, which fetches them again, or `dvc repro`, which takes "
            "them from intact copies or builds them again"
        )
    print(f"{len(found)} objects intact")


def objects(cache: Path) -> list[Path]:
    """Every object of a cache or of a remote in a folder; other files are none of ours."""
    folder = cache / "files" / "md5"
    return sorted(
        path for path in folder.glob("*/*") if OBJECT.fullmatch(f"{path.parent.name}/{path.name}")
    )


def damaged(paths: list[Path]) -> dict[Path, str]:
    """What is wrong with each object that is not what its name says."""
    progress = Progress("checked objects", len(paths))
    faults = {}
    for done, path in enumerate(paths, start=1):
        if fault := fault_of(path):
            faults[path] = fault
        progress.update(done)
    return faults


def fault_of(path: Path) -> str | None:
    try:
        found = digest(path, "md5")
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if found == expected(path) else f"its content has the MD5 {found}"


def expected(path: Path) -> str:
    return path.parent.name + path.name.removesuffix(".dir")


def copies_of(cache: Path) -> dict[str, list[Path]]:
    """Files of the workspace by the MD5 that dvc.lock records for them."""
    stages = yaml.safe_load(LOCK.read_text())["stages"].values() if LOCK.is_file() else ()
    found: dict[str, list[Path]] = defaultdict(list)
    for name, out in [(out["md5"], Path(out["path"])) for s in stages for out in s.get("outs", ())]:
        listing = cache / "files" / "md5" / name[:2] / name[2:]
        if not name.endswith(".dir"):
            found[name].append(out)
        elif listing.is_file() and not fault_of(listing):
            for entry in json.loads(listing.read_text()):
                found[entry["md5"]].append(out / entry["relpath"])
    return {name: [path for path in paths if path.is_file()] for name, paths in found.items()}


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
