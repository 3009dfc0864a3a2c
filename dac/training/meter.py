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
        self.names: tuple[str, ...] = ()
        """Terms of the last step, whose sums and first bad steps are `stacked`."""

    def add(self, step: int, terms: dict[str, Tensor]) -> None:
        values = torch.stack([term.detach() for term in terms.values()])
        if tuple(terms) != self.names:
            self._stack(tuple(terms), values)
        sums, first_bad = self.stacked
        sums += values
        first_bad.copy_(torch.where(values.isfinite(), first_bad, first_bad.clamp(max=step)))
        for name in self.names:
            self.counts[name] += 1

    def _stack(self, names: tuple[str, ...], values: Tensor) -> None:
        """Continue in tensors of all terms, of which the entries by name are views."""
        none, never = (
            torch.zeros_like(values[0]),
            values.new_full((), torch.inf, dtype=torch.float64),
        )
        sums = torch.stack([self.sums.get(name, none) for name in names])
        first_bad = torch.stack([self.first_bad.get(name, never) for name in names])
        self.sums |= dict(zip(names, sums.unbind(), strict=True))
        self.first_bad |= dict(zip(names, first_bad.unbind(), strict=True))
        self.counts |= {name: self.counts.get(name, 0) for name in names}
        self.names, self.stacked = names, (sums, first_bad)

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
        self.sums, self.counts, self.names = {}, {}, ()
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": {k: v.clone() for k, v in self.sums.items()}, "counts": self.counts}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        if fault := misfit(state["sums"], dict.fromkeys(state["counts"], torch.zeros(()))):
            raise ValueError(f"meter: {fault}")
        self.sums = {name: total.to(device) for name, total in state["sums"].items()}
        self.counts, self.names = dict(state["counts"]), ()
