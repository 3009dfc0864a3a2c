"""Stage `evaluate`: every number of a finished run.

    python -m dac.evaluate --run runs/cifar-50-500/dac/seed1

Reads model.pt, leaves metrics.json (the numbers), scores.npz (one row per image, for the figures)
and, for sets of picture files, predictions.csv beside it: part, file, accepted (yes or no), class
(`unknown` where not accepted), score. A name that a spreadsheet would take for a formula has an
apostrophe in front; bytes of a name that are not UTF-8 are written as they are
(docs/own-pictures.md).
"""

import sys

from dac.config import load
from dac.config.arguments import command
from dac.data import prepared
from dac.evaluation.measure import evaluate, predictions, summary
from dac.evaluation.network import open_run
from dac.io.device import choose_device
from dac.io.errors import exit_code_of
from dac.io.files import write_arrays, write_bytes, write_json
from dac.io.progress import say


def main() -> None:
    parser = command("evaluate", __doc__, "--run", "--root", "--params", "--device")
    options = parser.parse_args()

    params = load(options.params)
    device = choose_device(options.device)
    run, data, model = open_run(options.run, params, options.root)
    metrics, arrays = evaluate(run, data, model, params.file.evaluate.last_evaluations, device)
    write_arrays(options.run / "scores.npz", arrays)
    files = prepared.load(options.root, run.task.data).files
    listed = predictions(arrays, data.known_names, files(run.task.test_part), files("train"))
    if listed is not None:
        write_bytes(options.run / "predictions.csv", listed.encode(errors="surrogateescape"))
    identity = model["run"] | {"evaluate": params.evaluation(run)}
    write_json(options.run / "metrics.json", {"run": identity, "metrics": metrics})
    say(f"wrote {options.run / 'metrics.json'}")
    print(summary(metrics))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
