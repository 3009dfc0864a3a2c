"""Stage `prepare`: official files or own pictures -> arrays in the prepared format.

python -m dac.prepare --data cifar100
python -m dac.prepare --data folder --pictures FOLDER
"""

import sys
from pathlib import Path

from dac.config import load
from dac.config.arguments import command
from dac.data.prepare import prepare
from dac.io.errors import UserError, exit_code_of


def main() -> None:
    parser = command("prepare", __doc__, "--data", "--root", "--params")
    parser.add_argument("--pictures", type=Path, help="your own pictures, for --data folder")
    arguments = parser.parse_args()
    file = load(arguments.params).file
    name, pictures = arguments.data, arguments.pictures
    if pictures is not None and name != "folder":
        raise UserError(f"--pictures {pictures} is only for --data folder, not for {name}")
    spec = file.download.sets[name]
    prepare(arguments.root, name, file.prepare[name], spec, pictures)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
