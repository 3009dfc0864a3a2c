"""Stage `pretrain`: a backbone that has seen all training images of a data set and no label.

    python -m dac.pretrain --data semi-inat-2021 --backbone resnet18 \
        --out pretrained/semi-inat-2021/resnet18

Leaves model.pt (the backbone), history.csv and run.json in --out; stopped and started again it
ends with the same bits, as `train` does. Runs with `train.initial: simsiam` start from model.pt.
"""

import sys
from pathlib import Path
from typing import get_args

from dac.io.errors import exit_code_of
from dac.training.stop import StopRequest


def main() -> None:
    stop = StopRequest()
    stop.listen()  # first: a signal may come during the imports, which take seconds
    from dac.config import Backbone, load
    from dac.config.arguments import command
    from dac.data import prepared
    from dac.io.device import choose_device
    from dac.io.files import locked
    from dac.training.pretraining import pretrain

    parser = command("pretrain", __doc__, "--data", "--root", "--params", "--device")
    parser.add_argument("--backbone", required=True, choices=get_args(Backbone), help="a network")
    parser.add_argument("--out", type=Path, required=True, help="folder of the network")
    options = parser.parse_args()

    run = load(options.params).pretrain(options.data, options.backbone)
    device = choose_device(options.device)
    data = prepared.load(options.root, options.data)
    prepared.check_sides(data, run.data)
    with locked(options.out / "work", "run folder"):
        pretrain(run, data.part("train").images, options.out, device, stop)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
