"""The per-image arrays that `evaluate` leaves for the figures."""

import zipfile
from pathlib import Path

import numpy as np

from dac.errors import UserError


def read_scores(run: Path) -> dict[str, np.ndarray]:
    path = run / "scores.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; run `python -m dac.evaluate --run {run}`"
        ) from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read ({error}); run `python -m dac.evaluate --run {run}` again"
        ) from error
