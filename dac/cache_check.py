"""Is DVC's cache intact? DVC believes its read-only objects without reading them again.

    python -m dac.cache_check

An object is named by the MD5 of its content. A damaged one would be checked out, and pushed, as if
nothing had happened. Nothing is changed here; the message says how to mend it.
"""

import argparse
import re
import sys
from pathlib import Path

from dac.errors import RunFailed, UserError, exit_code_of
from dac.files import digest
from dac.logs import Progress

OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")  # .dir: the list of a folder's files


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.cache_check", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--cache", type=Path, default=Path(".dvc/cache"), help="`dvc cache dir`")
    cache = parser.parse_args().cache
    if not cache.is_dir():
        raise UserError(
            f"there is no cache {cache}; give the folder that `dvc cache dir` prints with --cache, "
            "or fill it with `dvc pull`"
        )
    found = objects(cache)
    faults = damaged(found)
    for path, fault in faults.items():
        print(f"{path}: {fault}")
    if faults:
        raise RunFailed(
            f"{len(faults)} of {len(found)} objects are damaged. Delete those files, then run "
            "`dvc pull`, which fetches them again, or `dvc repro`, which takes them from the "
            "workspace or builds them again"
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
    expected = path.parent.name + path.name.removesuffix(".dir")
    try:
        found = digest(path, "md5")
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if found == expected else f"its content has the MD5 {found}"


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
