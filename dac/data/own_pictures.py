"""Own pictures: a folder with labeled/<class>/, unlabeled/ and test/<class>/.

Known classes are those in labeled/, numbered alphabetically; test/ may contain further classes,
which count as unknown and get the ids after them.
"""

from pathlib import Path

from dac.config import Data
from dac.data import raw
from dac.data.picture_parts import Row, class_folders, new_set, rows_below
from dac.data.prepared_writer import NewSet
from dac.data.raw import reading, shown
from dac.io.errors import UserError
from dac.io.files import canonical_hash
from dac.io.progress import say

PARTS = ("labeled", "unlabeled", "test")
LAYOUT = (
    "expected labeled/<class>/ (two classes or more), unlabeled/ (any depth) and test/<class>/, "
    "each with pictures"
)


def own_pictures(folder: Path, data: Data) -> NewSet:
    check(folder)
    _say_what_is_left_out(folder)
    known = class_folders(folder / "labeled")
    others = [name for name in class_folders(folder / "test") if name not in known]
    classes = (*known, *others)
    labeled = _class_rows(folder, "labeled", classes)
    pool = rows_below(folder / "unlabeled", "unlabeled")
    test = _class_rows(folder, "test", classes)
    return new_set(classes, labeled + pool, test, data, labeled_count=len(labeled))


def check(folder: Path) -> None:
    """Report every fault of the files, or else of the layout, in one message."""
    with reading(folder):
        if not folder.is_dir():
            raise UserError(f"--pictures {shown(folder)} is not a folder; {LAYOUT}")
    found = {part: raw.listing(folder / part) for part in PARTS}
    if unreadable := [fault for listing in found.values() for fault in listing.faults]:
        raise UserError(f"{raw.first_of(unreadable)}; {raw.REPAIR}")
    faults = [
        f"{part}/ has no pictures" if (folder / part).exists() else f"{part}/ does not exist"
        for part in PARTS
        if not found[part].files
    ]
    for part in ("labeled", "test"):
        faults += _class_faults(folder / part, found[part].files)
    num_labeled = len(class_folders(folder / "labeled"))
    if num_labeled < 2 and not faults:
        faults.append(f"labeled/ has {num_labeled} class folder(s), expected 2 or more")
    if faults:
        raise UserError(f"pictures in {shown(folder)}: {'; '.join(faults)}; {LAYOUT}")


def fingerprint(folder: Path) -> str:
    """Return a hash that changes when a picture is added, removed, renamed or rewritten."""
    names = [f"{part}/{name}" for part in PARTS for name in raw.files_below(folder / part)]
    with reading(folder):
        stats = [(name, (folder / name).stat()) for name in sorted(names)]
    return canonical_hash([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def _say_what_is_left_out(folder: Path) -> None:
    with reading(folder):
        others = sorted({path.name for path in folder.iterdir()} - set(PARTS))
    others += [f"{part}/{name}" for part in PARTS for name in raw.listing(folder / part).hidden]
    if others:
        named = raw.first_of([shown(name) for name in others])
        say(
            f"left out {len(others)} file(s) or folder(s) in {shown(folder)}, which are hidden "
            f"(a leading dot) or not in labeled/, unlabeled/ or test/: {named}"
        )


def _class_faults(folder: Path, files: list[str]) -> list[str]:
    filled = {name.partition("/")[0] for name in files}
    empty = [name for name in class_folders(folder) if name not in filled]
    stray = [name for name in files if "/" not in name]
    return [f"the class folder {folder.name}/{shown(name)}/ is empty" for name in empty] + [
        f"{folder.name}/{shown(name)} is outside a class folder" for name in stray[:3]
    ]


def _class_rows(folder: Path, part: str, classes: tuple[str, ...]) -> list[Row]:
    return [
        row
        for label, name in enumerate(classes)
        if (folder / part / name).is_dir()
        for row in rows_below(folder / part / name, f"{part}/{name}", label)
    ]
