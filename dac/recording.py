"""The files of a network that learns: checkpoints on the way, results at the end."""

import time
from typing import Any

import pandas as pd
import torch

from dac.checkpoint import RunFolder
from dac.course import Course
from dac.files import write_json, write_text
from dac.logs import say
from dac.provenance import peak_memory_bytes, provenance


def resume(
    course: Course, state: dict[str, Any], folder: RunFolder, steps: int, device: torch.device
) -> None:
    course.load_state_dict(state, device)
    say(f"resuming {folder.out} at step {course.step} of {steps}")


def keep(course: Course, folder: RunFolder, device: torch.device) -> None:
    course.peak_memory = max(course.peak_memory, peak_memory_bytes(device))
    folder.save(course.step, course.state_dict())
    write_text(folder.work / "history.csv", history_csv(course))


def finish(
    course: Course,
    folder: RunFolder,
    *,
    run: dict[str, Any],
    model: dict[str, Any],
    views: int,
    device: torch.device,
    began: float,
) -> None:
    """Write the results; model.pt comes last and marks the run as finished."""
    write_text(folder.out / "history.csv", history_csv(course))
    write_json(
        folder.out / "run.json",
        {
            "run": run,
            "provenance": provenance(device),
            "finished_unix": time.time(),
            "wall_seconds_of_last_start": time.time() - began,
            "training_seconds": course.seconds,
            "views_per_second": views / max(course.seconds, 1e-9),
            "peak_memory_bytes": course.peak_memory,
        },
    )
    folder.finish(model)


def history_csv(course: Course) -> str:
    frame = pd.DataFrame(course.history)
    if "step" in frame:
        frame["step"] = frame["step"].astype(int)
    return frame.to_csv(index=False)
