"""Own pictures: a folder with labeled/<class>/, unlabeled/ and test/<class>/.

Known classes are those in labeled/, numbered alphabetically; test/ may contain further classes,
which count as unknown and get the ids after them. Links are followed, but a part that reaches the
same folder twice is refused: its pictures would be used twice, or belong to two classes.
"""

from dataclasses import dataclass
from pathlib import Path

from dac.config import Data
from dac.data.listing import REPAIR, Listing, first_of, listing, reading, shown
from dac.data.picture_parts import UNKNOWN, Row, new_set
from dac.data.prepared_writer import NewSet
from dac.io.errors import UserError
from dac.io.files import canonical_hash
from dac.io.progress import say

PARTS = ("labeled", "unlabeled", "test")
LAYOUT = (
    "expected labeled/<class>/ (two classes or more), unlabeled/ (any depth) and test/<class>/, "
    "each with pictures"
)


@dataclass(frozen=True)
class Pictures:
    """A folder of own pictures, listed once."""

    folder: Path
    parts: dict[str, Listing]

    @property
    def files(self) -> list[str]:
        return [f"{part}/{name}" for part in PARTS for name in self.parts[part].files]

    def classes(self, part: str) -> list[str]:
        return [name for name in self.parts[part].folders if "/" not in name]


def find(folder: Path) -> Pictures:
    """Return the pictures; a UserError names every fault of the files, or else of the layout."""
    with reading(folder):
        if not folder.is_dir():
            raise UserError(f"--pictures {shown(folder)} is not a folder; {LAYOUT}")
    pictures = Pictures(folder, {part: listing(folder / part) for part in PARTS})
    if unreadable := [fault for found in pictures.parts.values() for fault in found.faults]:
        raise UserError(f"{first_of(unreadable)}; {REPAIR}")
    if faults := _layout_faults(pictures):
        raise UserError(f"pictures in {shown(folder)}: {'; '.join(faults)}; {LAYOUT}")
    return pictures


def fingerprint(pictures: Pictures) -> str:
    """Return a hash that changes when a picture is added, removed, renamed or rewritten."""
    with reading(pictures.folder):
        stats = [(name, (pictures.folder / name).stat()) for name in sorted(pictures.files)]
    return canonical_hash([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def own_pictures(pictures: Pictures, data: Data) -> NewSet:
    _say_what_is_left_out(pictures)
    known = pictures.classes("labeled")
    classes = (*known, *(name for name in pictures.classes("test") if name not in known))
    labeled = _class_rows(pictures, "labeled", classes)
    pool = [_row(pictures, "unlabeled", name) for name in pictures.parts["unlabeled"].files]
    test = _class_rows(pictures, "test", classes)
    return new_set(classes, labeled + pool, test, data, labeled_count=len(labeled))


def _class_rows(pictures: Pictures, part: str, classes: tuple[str, ...]) -> list[Row]:
    """Return the rows by class, then by name."""
    ids = {name: label for label, name in enumerate(classes)}
    rows = [
        _row(pictures, part, name, ids[name.partition("/")[0]])
        for name in pictures.parts[part].files
    ]
    return sorted(rows, key=lambda row: row.label)  # a stable sort: names stay in order


def _row(pictures: Pictures, part: str, name: str, label: int = UNKNOWN) -> Row:
    return Row(f"{part}/{name}", pictures.folder / part / name, label)


def _layout_faults(pictures: Pictures) -> list[str]:
    faults = [
        f"{part}/ has no pictures"
        if (pictures.folder / part).exists()
        else f"{part}/ does not exist"
        for part in PARTS
        if not pictures.parts[part].files
    ]
    for part in ("labeled", "test"):
        faults += _class_faults(pictures, part)
    num_labeled = len(pictures.classes("labeled"))
    if num_labeled < 2 and not faults:
        faults.append(f"labeled/ has {num_labeled} class folder(s), expected 2 or more")
    return faults


def _class_faults(pictures: Pictures, part: str) -> list[str]:
    files = pictures.parts[part].files
    filled = {name.partition("/")[0] for name in files}
    empty = [name for name in pictures.classes(part) if name not in filled]
    stray = [name for name in files if "/" not in name]
    return [f"the class folder {part}/{shown(name)}/ is empty" for name in empty] + [
        f"{part}/{shown(name)} is outside a class folder" for name in stray[:3]
    ]


def _say_what_is_left_out(pictures: Pictures) -> None:
    folder = pictures.folder
    with reading(folder):
        others = sorted({path.name for path in folder.iterdir()} - set(PARTS))
    others += [f"{part}/{name}" for part in PARTS for name in pictures.parts[part].hidden]
    if others:
        named = first_of([shown(name) for name in others])
        say(
            f"left out {len(others)} file(s) or folder(s) in {shown(folder)}, which are hidden "
            f"(a leading dot) or not in labeled/, unlabeled/ or test/: {named}"
        )
