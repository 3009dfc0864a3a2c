"""Stage `train`: one run of one method on one task.

    python -m dac.train --task cifar-50-500 --method dac --seed 1 --out runs/cifar-50-500/dac/seed1

Leaves model.pt, history.csv and run.json in --out. While it runs its state lies in a folder of its
parameters below --out/work; started again after any kind of death it goes on from there and ends
with the same bits.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dac import split
from dac.batches import Batches, RunData, run_data
from dac.checkpoint import RunFolder
from dac.course import StopRequest
from dac.data import prepared
from dac.errors import UserError, exit_code_of
from dac.files import locked
from dac.loop import Progression, evaluated_state, fit, make_optimizer
from dac.methods import build_network
from dac.models.ema import Ema
from dac.params import DEFAULT_PATH, Run, load
from dac.pretrained import Pretrained, load_backbone, load_pretrained
from dac.recording import finish, keep, resume
from dac.seeds import generators


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.train", description=__doc__.split("\n")[0])
    parser.add_argument("--task", required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the data")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 ...")
    parser.add_argument(
        "--pretrained",
        type=Path,
        default=Path("pretrained"),
        help="folder of pre-trained networks, DATA/BACKBONE/model.pt, where the task starts there",
    )
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
    stop = StopRequest()
    stop.listen()
    with locked(options.out / "work", "run folder"):
        train(run, data, options.out, device, stop, pretrained)


def choose_device(name: str) -> torch.device:
    """The device, set up so that a run gives the same bits whenever it is repeated on it."""
    try:
        device = torch.device(_automatic() if name == "auto" else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {name!r} cannot be used ({reason}); try --device cpu") from None
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory took a third of a step on a CPU; nothing here reads it unwritten.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    return device


def _automatic() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_data(run: Run, root: Path) -> RunData:
    """Prepared images and the split of a run, both verified."""
    data = prepared.load(root, run.task.data)
    path = split.default_path(root, run.task_name, run.seed)
    chosen = split.load(path, run.task_name, run.task, run.seed, split.train_labels(data))
    names = tuple(data.classes[i] for i in chosen.known)
    found = run_data(chosen, data.part("train"), data.part(run.task.test_part), run.data, run.train)
    return replace(found, known_names=names)


def train(
    run: Run,
    data: RunData,
    out: Path,
    device: torch.device,
    stop: StopRequest,
    pretrained: Pretrained | None = None,
) -> None:
    """Train (or go on training) into `out`; finished runs are left alone."""
    assert (pretrained is None) == (run.train.initial == "random"), run.train.initial
    sources = {"split_hash": data.split_hash}
    if pretrained is not None:
        sources["pretrained_hash"] = pretrained.hash
    folder = RunFolder(out, run.identity() | sources)
    if folder.is_finished():
        return
    state = folder.newest()
    progress = start(run, data, device, pretrained if state is None else None)
    if state is not None:
        resume(progress, state, folder, run.train.steps, device)
    batches = Batches(data, run.train, progress.network.method, progress.streams, device)
    label = f"{run.task_name}/{run.method_name}/seed{run.seed}"
    save = partial(keep, folder=folder, device=device)
    began = time.time()
    fit(progress, batches, data, run.train, device=device, save=save, stop=stop, label=label)
    finish(
        progress,
        folder,
        run=run.as_dict() | sources,
        model=results(progress),
        views=batches.num_views(),
        device=device,
        began=began,
    )


def start(
    run: Run, data: RunData, device: torch.device, pretrained: Pretrained | None = None
) -> Progression:
    streams = generators(run.seed)
    network = build_network(
        run,
        num_known=data.num_known,
        num_labeled=len(data.labeled_index),
        pool=len(data.pool_index),
        streams=streams,
    ).to(device)
    if pretrained is not None:
        load_backbone(network.backbone, pretrained)
    if device.type == "cuda":
        network.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if run.train.compile:
        network.backbone.compile()
    return Progression(
        network=network,
        optimizer=make_optimizer(network, run.train),
        ema=Ema(network, run.train.ema_decay),
        streams=streams,
    )


def results(progress: Progression) -> dict[str, Any]:
    return {
        "best": progress.best,
        "last": {"step": progress.step, "network": evaluated_state(progress)},
        "closed_accuracies": [
            row["closed_accuracy"] for row in progress.history if "closed_accuracy" in row
        ],
    }


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
