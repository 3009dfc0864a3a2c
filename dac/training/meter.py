"""Sums of the loss terms between two rows of the history."""

import math
from typing import Any

import torch
from torch import Tensor

from dac.io.errors import RunFailed
from dac.runs.checkpoint import misfit


class Meter:
    """Sums of the loss terms and the first non-finite step of each, kept on the device.

    Nothing is copied to the host until `row` or `check`; a step costs no synchronisation.
    """

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.first_bad: dict[str, Tensor] = {}

    def add(self, step: int, terms: dict[str, Tensor]) -> None:
        for name, term in terms.items():
            term = term.detach()
            if name not in self.first_bad:
                self.first_bad[name] = torch.full_like(term, torch.inf, dtype=torch.float64)
            if name not in self.sums:
                self.sums[name], self.counts[name] = torch.zeros_like(term), 0
            self.sums[name] += term
            self.counts[name] += 1
            bad = torch.where(term.isfinite(), torch.inf, float(step))
            self.first_bad[name] = torch.minimum(self.first_bad[name], bad)

    def check(self) -> None:
        """Raise if any term was not finite, naming the first."""
        steps = {name: float(step) for name, step in self.first_bad.items()}
        name = min(steps, key=lambda name: steps[name], default="")
        if name and math.isfinite(steps[name]):
            raise RunFailed(
                f"the loss term {name!r} is not finite at step {int(steps[name])}; the run stops, "
                "the last good checkpoint stays. Lower the learning rate or that term's weight"
            )

    def row(self) -> dict[str, float]:
        """Means since the last row."""
        means = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        if fault := misfit(state["sums"], dict.fromkeys(state["counts"], torch.zeros(()))):
            raise ValueError(f"meter: {fault}")
        self.sums = {name: total.to(device) for name, total in state["sums"].items()}
        self.counts = dict(state["counts"])
