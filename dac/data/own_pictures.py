"""Own pictures: a folder with labeled/<class>/, unlabeled/ and test/<class>/.

Known classes are those in labeled/, numbered alphabetically; test/ may contain further classes,
which count as unknown and get the ids after them.
"""

from pathlib import Path

from dac.config import Data
from dac.data import raw
from dac.data.picture_parts import Row, class_folders, new_set, rows_below
from dac.data.prepared_writer import NewSet
from dac.io.errors import UserError
from dac.io.files import canonical_hash

LAYOUT = (
    "expected labeled/<class>/ (two classes or more), unlabeled/ (any depth) and test/<class>/, "
    "each with pictures"
)


def own_pictures(folder: Path, data: Data) -> NewSet:
    check(folder)
    known = class_folders(folder / "labeled")
    others = [name for name in class_folders(folder / "test") if name not in known]
    classes = (*known, *others)
    labeled = _class_rows(folder, "labeled", classes)
    pool = rows_below(folder / "unlabeled", "unlabeled")
    test = _class_rows(folder, "test", classes)
    return new_set(classes, labeled + pool, test, data, labeled_count=len(labeled))


def check(folder: Path) -> None:
    """Report every fault of the layout in one message."""
    if not folder.is_dir():
        raise UserError(f"--pictures {folder} is not a folder; {LAYOUT}")
    faults = [
        f"{name}/ does not exist" if not (folder / name).is_dir() else f"{name}/ has no pictures"
        for name in ("labeled", "unlabeled", "test")
        if not raw.files_below(folder / name)
    ]
    for name in ("labeled", "test"):
        faults += _class_faults(folder / name)
    num_labeled = len(class_folders(folder / "labeled"))
    if num_labeled < 2 and not faults:
        faults.append(f"labeled/ has {num_labeled} class folder(s), expected 2 or more")
    if faults:
        raise UserError(f"pictures in {folder}: {'; '.join(faults)}; {LAYOUT}")


def fingerprint(folder: Path) -> str:
    """Return a hash that changes when a picture is added, removed, renamed or rewritten."""
    stats = [(name, (folder / name).stat()) for name in raw.files_below(folder)]
    return canonical_hash([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def _class_faults(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    empty = [name for name in class_folders(folder) if not raw.files_below(folder / name)]
    stray = [path.name for path in folder.iterdir() if path.is_file() and path.name[0] != "."]
    return [f"the class folder {folder.name}/{name}/ is empty" for name in empty] + [
        f"{folder.name}/{name} is outside a class folder" for name in sorted(stray)[:3]
    ]


def _class_rows(folder: Path, part: str, classes: tuple[str, ...]) -> list[Row]:
    return [
        row
        for label, name in enumerate(classes)
        if (folder / part / name).is_dir()
        for row in rows_below(folder / part / name, f"{part}/{name}", label)
    ]
