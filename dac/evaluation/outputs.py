"""What a network says about every test image, for the figures."""

import json
from typing import Any

import numpy as np
import torch

from dac.config import Run
from dac.data.images import Images
from dac.data.run_data import RunData
from dac.evaluation.inference import embed
from dac.evaluation.network import load_network


def outputs(
    run: Run, data: RunData, model: dict[str, Any], device: torch.device
) -> dict[str, np.ndarray]:
    """One row per test image, in the order of the data; `run` is the run's identity, as JSON."""
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
