"""Stage `train`: one run of one method on one task.

    python -m dac.train --task cifar-50-500 --method dac --seed 1 --out runs/cifar-50-500/dac/seed1

Leaves model.pt, history.csv and run.json in --out. While it runs its state lies in --out/work;
started again after any kind of death it goes on from there and ends with the same bits.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from dac import checkpoint, split
from dac.batches import Batches, RunData, run_data
from dac.data import prepared
from dac.errors import UserError, exit_code_of
from dac.files import locked, write_bytes, write_json, write_text
from dac.logs import say
from dac.loop import Progression, StopRequest, evaluated_state, fit, make_optimizer
from dac.methods import build_network
from dac.models.ema import Ema
from dac.params import DEFAULT_PATH, Run, load
from dac.provenance import peak_memory_bytes, provenance
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
    options = parser.parse_args()

    run = load(options.params).run(options.task, options.method, options.seed)
    device = choose_device(options.device)
    data = load_data(run, options.root)
    stop = StopRequest()
    stop.listen()
    with locked(options.out / "work", "run folder"):
        train(run, data, options.out, device, stop)


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


def train(run: Run, data: RunData, out: Path, device: torch.device, stop: StopRequest) -> None:
    """Train (or go on training) into `out`; finished runs are left alone."""
    identity = run.identity() | {"split_hash": data.split_hash}
    model_path, work = out / "model.pt", out / "work"
    if model_path.exists():
        checkpoint.refuse_other_run(checkpoint.from_file(model_path), identity, model_path)
        say(f"{model_path} is finished; nothing to do")
        return
    progress = start(run, data, device)
    state = checkpoint.newest(work)
    if state is not None:
        checkpoint.refuse_other_run(state, identity, work)
        progress.load_state_dict(state, device)
        say(f"resuming {out} at step {progress.step} of {run.train.steps}")

    def save(progress: Progression) -> None:
        progress.peak_memory = max(progress.peak_memory, peak_memory_bytes(device))
        checkpoint.save(work, progress.step, progress.state_dict() | {"run": identity})
        write_text(work / "history.csv", history_csv(progress))

    batches = Batches(data, run.train, progress.network.method.views, progress.streams, device)
    label = f"{run.task_name}/{run.method_name}/seed{run.seed}"
    began = time.time()
    fit(progress, batches, data, run.train, device=device, save=save, stop=stop, label=label)
    finish(run, progress, identity, out, device, began)


def start(run: Run, data: RunData, device: torch.device) -> Progression:
    streams = generators(run.seed)
    network = build_network(
        run,
        num_known=data.num_known,
        num_labeled=len(data.labeled_index),
        pool=len(data.pool_index),
        streams=streams,
    ).to(device)
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


def finish(
    run: Run,
    progress: Progression,
    identity: dict[str, Any],
    out: Path,
    device: torch.device,
    began: float,
) -> None:
    """Write the results; model.pt comes last and marks the run as finished."""
    views = progress.network.method.views
    per_step = run.train.batch * (views.labeled + run.train.mu * (views.weak + views.strong))
    write_text(out / "history.csv", history_csv(progress))
    write_json(
        out / "run.json",
        {
            "run": run.as_dict() | {"split_hash": identity["split_hash"]},
            "provenance": provenance(device),
            "finished_unix": time.time(),
            "wall_seconds_of_last_start": time.time() - began,
            "training_seconds": progress.seconds,
            "views_per_second": per_step * run.train.steps / max(progress.seconds, 1e-9),
            "peak_memory_bytes": progress.peak_memory,
        },
    )
    model = {
        "run": identity,
        "best": progress.best,
        "last": {"step": progress.step, "network": evaluated_state(progress)},
        "closed_accuracies": [
            row["closed_accuracy"] for row in progress.history if "closed_accuracy" in row
        ],
    }
    write_bytes(out / "model.pt", checkpoint.to_bytes(model))
    for path in checkpoint.saved(out / "work"):
        path.unlink()


def history_csv(progress: Progression) -> str:
    frame = pd.DataFrame(progress.history)
    if "step" in frame:
        frame["step"] = frame["step"].astype(int)
    return frame.to_csv(index=False)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
