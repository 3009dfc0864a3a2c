"""The command line of every command: its name, its first sentence, and the options it shares."""

import argparse
from pathlib import Path
from typing import Any, get_args

from dac.config.base import DataName
from dac.config.params import DEFAULT_PATH

DEFAULT = "(default: %(default)s)"
SHARED: dict[str, dict[str, Any]] = {
    "--data": {"required": True, "choices": get_args(DataName), "help": "a data set"},
    "--task": {"required": True, "help": "a name under tasks: in the parameter file"},
    "--method": {"required": True, "help": "a name under methods: in the parameter file"},
    "--seed": {"required": True, "type": int, "help": "seed of the split and of the run"},
    "--suite": {"help": "a name under suites: (default: the suite of the parameter file)"},
    "--run": {"required": True, "type": Path, "help": "folder of a finished run"},
    "--runs": {"type": Path, "default": Path("runs"), "help": f"folder of all runs {DEFAULT}"},
    "--root": {"type": Path, "default": Path("data"), "help": f"folder of all data {DEFAULT}"},
    "--pretrained": {
        "type": Path,
        "default": Path("pretrained"),
        "help": f"folder of pre-trained networks, DATA/BACKBONE/model.pt {DEFAULT}",
    },
    "--params": {"type": Path, "default": DEFAULT_PATH, "help": f"parameter file {DEFAULT}"},
    "--device": {"default": "auto", "help": f"auto, cpu, cuda, cuda:1 ... {DEFAULT}"},
}


def command(name: str, doc: str | None, *shared: str) -> argparse.ArgumentParser:
    """The parser of `dac NAME`, described by the first line of its module."""
    parser = argparse.ArgumentParser(prog=f"dac {name}", description=(doc or "").split("\n")[0])
    parser.register("type", Path, _path)
    for option in shared:
        parser.add_argument(option, **SHARED[option])
    return parser


def _path(text: str) -> Path:
    """An unset variable of a shell must not mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)
