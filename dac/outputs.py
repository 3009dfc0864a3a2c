"""Stage `outputs`: what the best network of a finished run says about every test image.

    python -m dac.outputs --run runs/cifar-50-500-subset-0/fixmatch/seed1

Reads model.pt, leaves outputs.npz for Figs. 2 and 5: labels, probabilities of the target head and
embeddings (the projection of methods that have one, else the pooled feature), both of the eval
transform; and outputs.json, its small receipt.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dac.batches import RunData
from dac.errors import exit_code_of
from dac.evaluate import load_network, open_run
from dac.files import digest, write_arrays, write_json
from dac.images import Images
from dac.inference import embed
from dac.logs import say
from dac.params import DEFAULT_PATH, Run, load
from dac.train import choose_device


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


def outputs(
    run: Run, data: RunData, model: dict[str, Any], device: torch.device
) -> dict[str, np.ndarray]:
    """One row per test image, in the order of the data; `run` says whose they are, as JSON."""
    network = load_network(run, data, model["best"]["network"], device)
    images = Images(data.test_images, device, run.train.workers)
    probabilities, embeddings = embed(
        network, images, data.policy, batch=run.train.evaluation_batch
    )
    return {
        "run": np.array(json.dumps(model["run"], sort_keys=True)),
        "num_known": np.array(data.num_known),
        "test_labels": data.test_labels,
        "test_probabilities": probabilities,
        "test_embeddings": embeddings,
    }


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
