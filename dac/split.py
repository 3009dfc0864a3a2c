"""Stage `split`: which training images are labeled and which form the unlabeled pool.

    python -m dac.split --task cifar-50-500 --seed 1

A split is made once and checked completely whenever it is read (dac/data/split_file.py).
"""

import sys
from pathlib import Path

from dac.config import check_seed, load
from dac.config.arguments import command
from dac.data import prepared
from dac.data.split_file import default_path, save_or_keep, train_labels
from dac.data.splits import describe, make, read_published
from dac.io.errors import exit_code_of
from dac.io.progress import say


def main() -> None:
    parser = command("split", __doc__, "--task", "--seed", "--root", "--params")
    parser.add_argument("--out", type=Path, help="file (default: ROOT/splits/TASK/seedSEED.json)")
    given = parser.parse_args()

    task = load(given.params).task(given.task)
    check_seed(given.seed)
    data = prepared.load(given.root, task.data)
    labels = train_labels(data)
    published = None
    if task.labeled_list is not None:
        raw = given.root / "raw" / task.data
        published = read_published(raw, task.labeled_list, data, labels)
    split = make(given.task, task, given.seed, labels, published)
    path = given.out or default_path(given.root, given.task, given.seed)
    say(f"wrote {path}" if save_or_keep(split, path) else f"{path} is up to date")
    print(describe(split, labels.values))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
