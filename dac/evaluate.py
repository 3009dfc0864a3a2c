"""Stage `evaluate`: every number of a finished run.

    python -m dac.evaluate --run runs/cifar-50-500/dac/seed1

Reads model.pt, leaves metrics.json (the numbers), scores.npz (one row per image, for the figures)
and, for sets of picture files, predictions.csv (file, class or unknown, score) beside it.
"""

import argparse
import sys
from pathlib import Path

from dac.config import DEFAULT_PATH, load
from dac.data import prepared
from dac.evaluation.measure import evaluate, predictions
from dac.evaluation.network import open_run
from dac.io.device import choose_device
from dac.io.errors import exit_code_of
from dac.io.files import write_arrays, write_json, write_text
from dac.io.progress import say


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.evaluate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of a finished run")
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the data")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    params = load(options.params)
    device = choose_device(options.device)
    run, data, model = open_run(options.run, params, options.root)
    metrics, arrays = evaluate(run, data, model, params.file.evaluate.last_evaluations, device)
    write_arrays(options.run / "scores.npz", arrays)
    files = prepared.load(options.root, run.task.data).files
    listed = predictions(arrays, data.known_names, files(run.task.test_part), files("train"))
    if listed is not None:
        write_text(options.run / "predictions.csv", listed)
    identity = model["run"] | {"evaluate": params.evaluation(run)}
    write_json(options.run / "metrics.json", {"run": identity, "metrics": metrics})
    say(f"wrote {options.run / 'metrics.json'}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
