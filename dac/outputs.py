"""What the best network of a finished run says about every test image.

    python -m dac.outputs --run runs/cifar-50-500-subset-0/fixmatch/seed1

Reads model.pt, leaves outputs.npz for Figs. 2 and 5: labels, probabilities of the target head and
embeddings (the projection of methods that have one, else the pooled feature), both of the eval
transform; and outputs.json, its small receipt.
"""

import sys

from dac.config import load
from dac.config.arguments import command
from dac.evaluation.network import open_run
from dac.evaluation.outputs import outputs
from dac.io.device import choose_device
from dac.io.errors import exit_code_of
from dac.io.files import digest, write_arrays, write_json
from dac.io.progress import say


def main() -> None:
    parser = command("outputs", __doc__, "--run", "--root", "--params", "--device")
    options = parser.parse_args()

    device = choose_device(options.device)
    run, data, model = open_run(options.run, load(options.params), options.root)
    path = options.run / "outputs.npz"
    write_arrays(path, outputs(run, data, model, device))
    write_json(options.run / "outputs.json", {path.name: digest(path)})
    say(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
