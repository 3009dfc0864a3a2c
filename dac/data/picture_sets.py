"""ImageNet-30 and Semi-iNat-2021: from their published folders and lists to labeled rows."""

from pathlib import Path

from dac.config import Data
from dac.data import raw
from dac.data.picture_parts import UNKNOWN, Row, class_folders, new_set, rows_below
from dac.data.prepared_writer import NewSet
from dac.io.errors import UserError

IMAGENET30 = (
    "acorn",
    "airliner",
    "ambulance",
    "american_alligator",
    "banjo",
    "barn",
    "bikini",
    "digital_clock",
    "dragonfly",
    "dumbbell",
    "forklift",
    "goblet",
    "grand_piano",
    "hotdog",
    "hourglass",
    "manhole_cover",
    "mosque",
    "nail",
    "parking_meter",
    "pillow",
    "revolver",
    "rotary_dial_telephone",
    "schooner",
    "snowmobile",
    "soccer_ball",
    "stingray",
    "strawberry",
    "tank",
    "toaster",
    "volcano",
)
AGAIN = "repair the raw folder or run the download stage again"


def _found(folder: Path, name: str) -> Path:
    place = raw.find(folder, name)
    if place is None:
        raise UserError(f"{folder} has no folder {name}/; {AGAIN}")
    return place


# --- ImageNet-30 ------------------------------------------------------------------------------


def imagenet30(folder: Path, data: Data) -> NewSet:
    """Class ids are alphabetical; the test part has one more level of folders (the wnid)."""
    train = _class_rows(folder, "one_class_train", data.train_per_class)
    test = _class_rows(folder, "one_class_test", data.test_per_class)
    return new_set(IMAGENET30, train, test, data)


def _class_rows(folder: Path, name: str, expected: int | None) -> list[Row]:
    place = _found(folder, name)
    odd = sorted(set(class_folders(place)) ^ set(IMAGENET30))
    if odd:
        listed = ", ".join(odd[:5])
        raise UserError(f"{place} should have the 30 classes of ImageNet-30, see {listed}; {AGAIN}")
    rows: list[Row] = []
    for label, class_name in enumerate(IMAGENET30):
        found = rows_below(place / class_name, f"{name}/{class_name}", label)
        if expected is not None and len(found) != expected:
            raise UserError(
                f"{place / class_name} holds {len(found)} pictures, expected {expected}; {AGAIN}"
            )
        rows += found
    return rows


# --- Semi-iNat-2021 ---------------------------------------------------------------------------


def semi_inat(folder: Path, data: Data) -> NewSet:
    """Labeled rows first, then the pool; labels of pool and test come from published lists."""
    assert data.num_classes is not None, "the known species are numbered 0 to num_classes - 1"
    labeled = _labeled_rows(_found(folder, "l_train"), data.num_classes)
    pool = _pool_rows(_found(folder, "u_train"), folder / raw.LISTS, data.num_classes)
    test = _test_rows(_found(folder, "test"), folder / raw.LISTS / "test.txt", data.num_classes)
    classes = tuple(map(str, range(data.num_classes)))
    return new_set(classes, labeled + pool, test, data, labeled_count=len(labeled))


def _labeled_rows(place: Path, num_classes: int) -> list[Row]:
    seen = class_folders(place)
    if sorted(seen) != sorted(map(str, range(num_classes))):
        raise UserError(
            f"{place} holds {len(seen)} class folders, expected 0 to {num_classes - 1}; {AGAIN}"
        )
    return [
        row
        for label in range(num_classes)
        for row in rows_below(place / str(label), f"l_train/{label}", label)
    ]


def _pool_rows(place: Path, lists: Path, num_classes: int) -> list[Row]:
    labels: dict[str, int] = {}
    if (lists / "u_train_out.txt").is_file():
        outside = read_list(lists / "u_train_out.txt")
        # Lists that hide the species say -1 or nothing: these become one unnamed unknown class.
        labels |= {name: max(label, num_classes) for name, label in outside.items()}
    if (lists / "u_train_in.txt").is_file():
        labels |= read_list(lists / "u_train_in.txt", below=num_classes)
    rows = rows_below(place, "u_train")
    if labels and len({row.path.name for row in rows}) < len(rows):
        raise UserError(
            f"{place} has files of the same name, so the lists in {lists} cannot be applied; "
            "remove u_train_in.txt and u_train_out.txt there"
        )
    return [Row(row.name, row.path, labels.get(row.path.name, UNKNOWN)) for row in rows]


def _test_rows(place: Path, path: Path, num_classes: int) -> list[Row]:
    if not path.is_file():
        raise UserError(
            f"{path} does not exist; it contains the labels of the test images. Take "
            "data/semi_inat/test.txt of the repository cvl-umass/ssl-evaluation, put it into a "
            "folder FOLDER/filelist/ and run the download stage again with --mirror FOLDER"
        )
    labels = read_list(path, below=num_classes)
    rows = rows_below(place, "test")
    missing = [row.name for row in rows if row.path.name not in labels]
    if missing:
        raise UserError(
            f"{path} has no label for {missing[0]} ({len(missing)} such files); "
            "replace it with the published list"
        )
    return [Row(row.name, row.path, labels[row.path.name]) for row in rows]


def read_list(path: Path, below: int | None = None) -> dict[str, int]:
    """Read `path label` lines into labels by base name; a line without a label means -1."""
    try:
        lines = path.read_text().split("\n")  # splitlines() would also break inside odd names
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the list {path} cannot be read ({error}); replace it") from error
    labels: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path} line {number}: {line!r}"
        name, _, last = line.strip().rpartition(" ")
        try:
            label = int(last) if name else UNKNOWN
        except ValueError:
            raise UserError(f"{where}, expected `path label`; replace the list") from None
        if below is not None and not 0 <= label < below:
            raise UserError(f"{where}, expected a label from 0 to {below - 1}; replace the list")
        if labels.setdefault(Path(name or last).name, label) != label:
            raise UserError(f"{where} contradicts an earlier line; replace the list")
    return labels
