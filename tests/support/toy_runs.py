"""Toy training without files: classes are random patterns, views are noisy copies of them.

Images of classes `NUM_KNOWN` and above are outliers. `Toy.step` is the loop's step without its
logging, so that tests can stop between any two parts of it; `fitted` is the loop itself.
"""

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from policies import DIGITS
from torch import Tensor, nn
from torch.nn import functional as F

from dac import config
from dac.config import DacSettings, Run, Stream
from dac.data.run_data import RunData
from dac.evaluation.inference import evaluating
from dac.io.seeds import generators
from dac.methods.base import Method
from dac.methods.network import build_network
from dac.methods.parts.selection import Selection
from dac.methods.step import Batch, Clock, Drawn, Step
from dac.models.ema import Ema
from dac.training.batches import Batches
from dac.training.loop import MethodState, fit, make_optimizer
from dac.training.state import StopRequest

PARAMS = config.load(Path(__file__).parents[2] / "params.yaml")
SWEPT = {  # points of Figs. 8 to 10: `dac`, or its objective, with another number
    swept
    for figure in ("fig08", "fig09", "fig10")
    for name in PARAMS.file.figures.drawn[figure].methods
    for swept in (name, PARAMS.file.methods[name].settings["objective"])
} - {"dac", "fixmatch"}
METHODS = tuple(name for name in PARAMS.file.methods if name not in SWEPT)
REPEATED = {  # entries that run no line of code which other entries do not run
    "fixmatch-control-released",
    "softmatch-released",
    "uagreg-original",
    *("dac-heads-mi", "dac-heads-mi-kd", "dac-heads-mi-rejection"),
}
DISTINCT = tuple(name for name in METHODS if name not in REPEATED)
PHASES: dict[str, dict[str, Any]] = {  # every phase has begun after the first epoch
    "mtcf": {"warmup_epochs": 1},
    "openmatch": {"start_epoch": 1},
    "safe-student": {"warmup_epochs": 1},
    "osp": {"pruning_epoch": 1},
    "ssb": {"detector_epoch": 1},
}
NUM_KNOWN, NUM_CLASSES, SIDE = 4, 6, 8
BATCH, MU, POOL = 8, 3, 120
STEPS_PER_EPOCH = 10
WEAK, STRONG = 0.1, 0.5  # noise of a view


def toy_run(method: str, seed: int = 1, **differences: Any) -> Run:
    """A method of params.yaml at toy size; `differences` change its settings, or those of DAC's
    objective where DAC has no such setting."""
    run = PARAMS.run("digits-6-30", method, seed)
    differences = PHASES.get(PARAMS.file.methods[method].method, {}) | differences
    own = {k: v for k, v in differences.items() if k in type(run.method).model_fields}
    method = run.method.model_copy(update=own)
    if isinstance(method, DacSettings):
        below = {k: v for k, v in differences.items() if k not in own}
        assert below.keys() <= type(method.target).model_fields.keys(), below
        method = method.around(method.target.model_copy(update=below))
    else:
        assert own == differences, differences.keys() - own.keys()
    small = {"batch": BATCH, "mu": MU, "steps_per_epoch": STEPS_PER_EPOCH}
    train = run.train.model_copy(update=small)
    return dataclasses.replace(run, method=method, train=train)


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
        self.streams = generators(run.seed)
        self.network = build_network(
            run,
            num_known=NUM_KNOWN,
            num_labeled=len(self.labels),
            pool=POOL,
            streams=self.streams,
        ).train()
        self.optimizer = make_optimizer(self.network, run.train)
        self.ema = Ema(self.network, run.train.ema_decay)

    @property
    def method(self) -> Any:
        return self.network.method

    def batch(self, step: int = 0) -> Batch:
        phase = self.method.settings.phase(clock(step).epoch)
        views = phase.drawn
        x_index = torch.randint(len(self.labels), (BATCH,), generator=self.draw)
        u = self.drawn("unlabeled", Stream("unlabeled", views.weak, views.strong))
        x = self.labeled[x_index]
        return Batch(
            x=[self.view(x, WEAK) for _ in range(views.labeled)],
            y=self.labels[x_index],
            x_index=x_index,
            u_weak=u.weak,
            u_strong=u.strong,
            u_index=u.index,
            x_strong=[self.view(x, STRONG) for _ in range(views.labeled_strong)],
            more={name: self.drawn(name, stream) for name, stream in phase.streams.items()},
        )

    def drawn(self, name: str, stream: Stream) -> Drawn:
        images = torch.cat([self.pool, self.labeled]) if stream.with_labeled else self.pool
        chosen = selected(self.method, name)
        places = torch.arange(len(images)) if chosen is None else chosen.nonzero().squeeze(1)
        order = torch.randperm(len(places), generator=self.draw)
        count = BATCH * (MU if stream.batch == "unlabeled" else 1)
        index = places[order.repeat(count)[:count]]
        if not stream.weak and not stream.strong:
            index = index[:0]
        return Drawn(
            index,
            weak=[self.view(images[index], WEAK) for _ in range(stream.weak)],
            strong=[self.view(images[index], STRONG) for _ in range(stream.strong)],
        )

    @torch.no_grad()
    def scan(
        self,
        read: Callable[[Tensor], Tensor],
        *,
        averaged: bool = False,
        weak: bool = True,
        index: Tensor | None = None,
    ) -> Tensor:
        """The pass over the pool that a method may make at the start of an epoch."""
        images = self.pool if index is None else self.pool[index]
        with self.ema.swapped_in() if averaged else nullcontext(), evaluating(self.network):
            return read(self.network.encode(self.view(images, WEAK) if weak else images))

    def view(self, images: Tensor, noise: float) -> Tensor:
        return images + noise * torch.randn(images.shape, generator=self.draw)

    def at(self, step: int, batch: Batch) -> Step:
        """What the method sees in a step."""
        shared = self.method.settings.phase(clock(step).epoch).shared
        return Step(batch, clock(step), self.network.encode, shared=shared, ema=self.ema)

    def terms(self, step: int, batch: Batch | None = None) -> dict[str, Tensor]:
        return self.network.terms(batch or self.batch(step), clock(step), self.ema)

    def step(self, step: int, between: Callable[[], None] = lambda: None) -> dict[str, float]:
        """One training step; `between` runs after the backward pass, before anything is written."""
        if step % STEPS_PER_EPOCH == 0:
            self.method.start_epoch(clock(step), self.scan)
        terms = {name: term.mean() for name, term in self.terms(step).items()}
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack(list(terms.values())).sum().backward()
        between()
        self.optimizer.step()
        phase = self.method.settings.phase(clock(step).epoch)
        self.ema.update() if phase.averages else self.ema.follow()
        self.network.finish_step()
        return {name: term.item() for name, term in terms.items()}


def selected(method: Method, stream: str) -> Tensor | None:
    """The images that a stream may draw from, or None where it draws from all."""
    selections = [m for m in method.modules() if isinstance(m, Selection)]
    return next((one.mask for one in selections if one.stream == stream), None)


def clock(step: int) -> Clock:
    return Clock(step=step, steps_per_epoch=STEPS_PER_EPOCH, steps=100 * STEPS_PER_EPOCH)


def reach(term: Tensor, *modules: nn.Module) -> float:
    """Sum of the absolute gradient of a term over all parameters of some modules."""
    parameters = [p for module in modules for p in module.parameters()]
    gradients = torch.autograd.grad(term.mean(), parameters, retain_graph=True, allow_unused=True)
    return sum(float(g.abs().sum()) for g in gradients if g is not None)


def fitted(
    toy: Toy, *, save: Callable[[MethodState], None] = lambda _: None, **settings: int
) -> MethodState:
    """The loop's `fit`: two epochs of six steps on noise; `settings` change those of training."""
    draw, test = np.random.default_rng(0), np.arange(20) % NUM_CLASSES
    labels, pool_labels = toy.labels.numpy(), toy.pool_labels.numpy()
    images = draw.integers(0, 256, (POOL + len(labels), 3, 16, 16), dtype=np.uint8)
    pool, labeled = np.split(np.arange(len(images)), [POOL])
    data = RunData(
        NUM_KNOWN, images, labeled, labels, pool, pool_labels, images[:20], test, DIGITS, ""
    )
    small = {"steps_per_epoch": 6, "epochs": 2, "evaluate_every": 12}
    train = toy.run.train.model_copy(update=small | settings)
    state = MethodState(toy.network, toy.optimizer, toy.ema, toy.streams)
    device = torch.device("cpu")
    batches = Batches(data, train, toy.method, toy.streams, device)
    fit(state, batches, data, train, device=device, save=save, stop=StopRequest())
    return state


def every_tensor(part: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A batch with `change` made to every tensor in it."""
    if isinstance(part, Tensor):
        return change(part)
    if isinstance(part, list):
        return [every_tensor(each, change) for each in part]
    if isinstance(part, dict):
        return {name: every_tensor(each, change) for name, each in part.items()}
    fields = {f.name: every_tensor(getattr(part, f.name), change) for f in dataclasses.fields(part)}
    return type(part)(**fields)
