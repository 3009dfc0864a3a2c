"""Stage `train`: one run of one method on one task.

    python -m dac.train --task cifar-50-500 --method dac --seed 1 --out runs/cifar-50-500/dac/seed1

Leaves model.pt, history.csv and run.json in --out. During training its state is in a folder below
--out/work: started again, however it ended, it continues from there and ends with the same bits.
"""

import sys
from pathlib import Path

from dac.io.errors import exit_code_of
from dac.training.stop import StopRequest


def main() -> None:
    stop = StopRequest()
    stop.listen()  # first: a signal may come during the imports, which take seconds
    from dac.config import load
    from dac.config.arguments import command
    from dac.data.run_data import load_data
    from dac.io.device import choose_device
    from dac.io.files import locked
    from dac.runs.pretrained import load_pretrained
    from dac.training.run import train

    shared = ("--root", "--pretrained", "--params", "--device")
    parser = command("train", __doc__, "--task", "--method", "--seed", *shared)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    options = parser.parse_args()

    params = load(options.params)
    run = params.run(options.task, options.method, options.seed)
    device = choose_device(options.device)
    data = load_data(run, options.root)
    pretrained = None
    if run.train.initial == "simsiam":
        source = params.pretrain(run.task.data, run.train.backbone)
        places = ("--root", options.root, "--params", options.params)
        pretrained = load_pretrained(source, options.pretrained, places)
    with locked(options.out / "work", "run folder"):
        train(run, data, options.out, device, stop, pretrained)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
