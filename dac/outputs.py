"""Stage `outputs`: what the best network of a finished run says about every test image.

    python -m dac.outputs --run runs/cifar-50-500-subset-0/fixmatch/seed1

Reads model.pt, leaves outputs.npz for Figs. 2 and 5: labels, probabilities of the target head and
embeddings (the projection of methods that have one, else the pooled feature), both of the eval
transform; and outputs.json, its small receipt.
"""

import argparse
import sys
from pathlib import Path

from dac.config import DEFAULT_PATH, load
from dac.evaluation.network import open_run
from dac.evaluation.outputs import outputs
from dac.io.device import choose_device
from dac.io.errors import exit_code_of
from dac.io.files import digest, write_arrays, write_json
from dac.io.progress import say


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.outputs", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of a finished run")
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the data")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    device = choose_device(options.device)
    run, data, model = open_run(options.run, load(options.params), options.root)
    path = options.run / "outputs.npz"
    write_arrays(path, outputs(run, data, model, device))
    write_json(options.run / "outputs.json", {path.name: digest(path)})
    say(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
