"""The console script `dac`: every command of the project as a subcommand.

`dac train ...` is `python -m dac.train ...`. Only the module of the command that is asked for is
imported, so `dac --help` needs neither torch nor the parameters.
"""

import runpy
import sys

from dac.io.errors import BAD_INPUT
from dac.io.suggestions import hint

COMMANDS = {
    "download": ("dac.download", "fetch and verify the official files of a data set"),
    "prepare": ("dac.prepare", "turn them, or your own pictures, into arrays"),
    "split": ("dac.split", "draw the labeled images and the unlabeled pool of a task"),
    "pretrain": ("dac.pretrain", "pre-train a backbone without labels (SimSiam)"),
    "train": ("dac.train", "train one method on one task; resumes by itself"),
    "evaluate": ("dac.evaluate", "compute every number of a finished run"),
    "outputs": ("dac.outputs", "keep predictions and embeddings of a run for figures"),
    "aggregate": ("dac.aggregate", "make tables from finished runs"),
    "report": ("dac.report", "write one HTML page with everything"),
    "plan": ("dac.plan", "print what a suite costs before anything is submitted"),
    "watch": ("dac.workflow.watch", "build a suite and show how far its runs are"),
    "histogram": ("dac.figures.histogram", "draw scores of inliers and outliers"),
    "heatmap": ("dac.figures.heatmap", "draw the agreement of every pair of heads"),
    "curves": ("dac.figures.curves", "draw metrics along a setting"),
    "models": ("dac.figures.models", "draw the agreement of independent models"),
    "umap": ("dac.figures.umap", "draw the embeddings of test images"),
    "cache-check": ("dac.workflow.cache_check", "compare DVC's cache with its checksums"),
    "on-gpu": ("dac.on_gpu", "run a command with a GPU of its own"),
    "schema": ("dac.config.schema", "print the JSON schema of params.yaml, for editors"),
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: dac COMMAND [options]",
            "",
            "Open-set semi-supervised learning: Diversify and Conquer and its baselines.",
            "",
            *lines,
            "",
            "`dac COMMAND --help` lists the options of a command.",
            "`snakemake --cores all` runs everything that a suite needs.",
        ]
    )


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(usage())
        return 0 if len(sys.argv) > 1 else BAD_INPUT
    name = sys.argv[1]
    if name not in COMMANDS:
        print(f"error: dac has no command {name!r}{hint(name, COMMANDS)}", file=sys.stderr)
        return BAD_INPUT
    module, _ = COMMANDS[name]
    del sys.argv[1]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
