"""Open a finished run and print the class and the score of its test images.

    python examples/scores_of_a_run.py runs/digits-6-30/dac/seed1

Run it from the folder of the project, after `make demo`.
"""

import sys
from itertools import islice
from pathlib import Path

import torch

from dac.config import load
from dac.data.images import Images
from dac.evaluation.inference import predict
from dac.evaluation.network import load_network, open_run
from dac.io.device import choose_device
from dac.otsu import otsu_threshold

device = choose_device("auto")
run, data, model = open_run(Path(sys.argv[1]), load(), root=Path("data"))
network = load_network(run, data, model["best"]["network"], device)
images = Images(data.test_images, device, workers=1)
test = predict(network, images, data.policy, batch=run.train.evaluation_batch)

is_inlier = test.scores >= float(otsu_threshold(torch.from_numpy(test.scores)))
rows = zip(test.predictions, test.scores, is_inlier, data.test_labels, strict=True)
for predicted, score, inlier, label in islice(rows, 20):
    truth = data.known_names[label] if label < data.num_known else "unknown"
    called = data.known_names[predicted] if inlier else "unknown"
    print(f"called {called:8} score {score:.3f}  is {truth}")
