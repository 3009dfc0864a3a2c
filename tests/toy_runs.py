"""Toy training without files: classes are random patterns, views are noisy copies of them.

Images of classes `NUM_KNOWN` and above are outliers. `Toy.step` is the loop's step without its
logging, so that tests can stop between any two parts of it.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dac import params
from dac.loop import make_optimizer
from dac.methods import build_network
from dac.methods.base import Batch, Clock
from dac.models.ema import Ema
from dac.params import Run

PARAMS = params.load(Path(__file__).parents[1] / "params.yaml")
SWEPT = {  # points of Figs. 8 to 10: `dac` with another number
    name
    for figure in ("fig08", "fig09", "fig10")
    for name in PARAMS.file.figures.drawn[figure].methods
}
METHODS = tuple(name for name in PARAMS.file.methods if name == "dac" or name not in SWEPT)
NUM_KNOWN, NUM_CLASSES, SIDE = 4, 6, 8
BATCH, MU, POOL = 8, 3, 120
STEPS_PER_EPOCH = 10


def toy_run(method: str, seed: int = 1, **differences: Any) -> Run:
    """A method of params.yaml at toy size; `differences` change its settings."""
    run = PARAMS.run("digits-6-30", method, seed)
    changed = run.method.model_copy(update=differences)
    small = {"batch": BATCH, "mu": MU, "steps_per_epoch": STEPS_PER_EPOCH}
    return dataclasses.replace(run, method=changed, train=run.train.model_copy(update=small))


class Toy:
    """Images, network and optimizer of one toy run."""

    def __init__(self, run: Run) -> None:
        draw = torch.Generator().manual_seed(99)  # the same images for every run seed
        patterns = F.interpolate(
            torch.randn(NUM_CLASSES, 3, 4, 4, generator=draw), size=SIDE, mode="nearest"
        )
        self.run, self.draw = run, torch.Generator().manual_seed(run.seed)
        self.pool_labels = torch.arange(POOL) % NUM_CLASSES
        noise = 0.3 * torch.randn(POOL, 3, SIDE, SIDE, generator=draw)
        self.pool = patterns[self.pool_labels] + noise
        self.labels = torch.arange(2 * NUM_KNOWN) % NUM_KNOWN
        self.labeled = patterns[self.labels]
        self.network = build_network(
            run, num_known=NUM_KNOWN, num_labeled=len(self.labels), pool=POOL
        ).train()
        self.optimizer = make_optimizer(self.network, run.train)
        self.ema = Ema(self.network, run.train.ema_decay)

    @property
    def method(self) -> Any:
        return self.network.method

    def batch(self) -> Batch:
        views = self.method.views
        x_index = torch.randint(len(self.labels), (BATCH,), generator=self.draw)
        u_index = torch.randperm(POOL, generator=self.draw)[: BATCH * MU]
        if not views.weak and not views.strong:
            u_index = u_index[:0]
        return Batch(
            x=[self.view(self.labeled[x_index], 0.1) for _ in range(views.labeled)],
            y=self.labels[x_index],
            x_index=x_index,
            u_weak=[self.view(self.pool[u_index], 0.1) for _ in range(views.weak)],
            u_strong=[self.view(self.pool[u_index], 0.5) for _ in range(views.strong)],
            u_index=u_index,
        )

    def view(self, images: Tensor, noise: float) -> Tensor:
        return images + noise * torch.randn(images.shape, generator=self.draw)

    def terms(self, step: int, batch: Batch | None = None) -> dict[str, Tensor]:
        return self.network.terms(batch or self.batch(), clock(step))

    def step(self, step: int, between: Callable[[], None] = lambda: None) -> dict[str, float]:
        """One training step; `between` runs after the backward pass, before anything is written."""
        terms = {name: term.mean() for name, term in self.terms(step).items()}
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()
        between()
        self.optimizer.step()
        self.ema.update()
        self.method.finish_step()
        return {name: term.item() for name, term in terms.items()}


def clock(step: int) -> Clock:
    return Clock(step=step, steps_per_epoch=STEPS_PER_EPOCH, steps=100 * STEPS_PER_EPOCH)
