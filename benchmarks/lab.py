"""A run as `train` would start it, on generated images, past every warm-up."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Work, medians
from benchmarks.watch import BackboneWatch
from dac.config import Params, Phase, Run, Stream
from dac.data.run_data import RunData, policy
from dac.io.errors import Stopped
from dac.methods.step import Batch, Clock
from dac.training.batches import Batches, ImageStream
from dac.training.loop import MethodState, fit
from dac.training.run import start
from dac.training.state import StopRequest

DAC, FIXMATCH = "dac-released", "fixmatch"  # the released form has two labeled views: 1,024 rows


@dataclass(frozen=True)
class Lab:
    run: Run
    data: RunData
    state: MethodState
    batches: Batches
    batch: Batch  # one batch, kept
    device: torch.device
    shares_outside: list[float] = field(default_factory=list)
    """For every step: time outside the backbone over time inside it."""

    @property
    def clock(self) -> Clock:
        settings = self.run.train
        return Clock(self.state.step, settings.steps_per_epoch, settings.steps)

    @property
    def phase(self) -> Phase:
        return self.run.method.phase(self.clock.epoch)

    @property
    def unlabeled(self) -> ImageStream:
        return self.batches.of_pool("unlabeled", Stream("unlabeled"))

    @cached_property
    def images(self) -> Tensor:
        """All views of the kept batch, as the backbone gets them."""
        return torch.cat([*self.batch.x, *self.batch.u_weak, *self.batch.u_strong])

    def step(self) -> None:
        """One step of the training loop itself: asked to stop, it ends after one step."""
        stop = StopRequest()
        stop.received = "the benchmark"
        state = self.state
        watch = BackboneWatch(state.network.backbone, state.optimizer, self.device)
        with watch, suppress(Stopped):
            fit(
                self.state,
                self.batches,
                self.data,
                self.run.train,
                device=self.device,
                save=lambda state: None,
                stop=stop,
            )
        self.shares_outside.append(watch.outside / watch.inside)

    def floor(self) -> None:
        """Forward and backward of the bare backbone on the same images."""
        forward_and_backward(self.state.network.backbone, self.images)


def forward_and_backward(backbone: torch.nn.Module, images: Tensor) -> None:
    backbone.zero_grad(set_to_none=True)
    features = backbone(images)
    features.backward(torch.ones_like(features))


def build(run: Run, data: RunData, device: torch.device) -> Lab:
    state = start(run, data, device)
    state.network.train()
    # In the last epoch every loss is on; past its first step, so that nothing passes over the pool.
    state.step = run.train.steps - run.train.steps_per_epoch + 1
    batches = Batches(data, run.train, state.network.method, state.streams, device)
    return Lab(run, data, state, batches, batches.at(state.step), device)


def generated(run: Run, pool: int) -> RunData:
    """Random images in the shapes of a task; all of them are in the pool."""
    random = np.random.default_rng(0)
    num_known = run.task.num_known or 1
    num_labeled = num_known * (run.task.labels_per_class or 1)
    images = random.integers(0, 256, (pool, 3, run.data.side, run.data.side), dtype=np.uint8)
    return RunData(
        num_known=num_known,
        train_images=images,
        labeled_index=np.arange(num_labeled),
        labels=np.arange(num_labeled) % num_known,
        pool_index=np.arange(pool),
        pool_labels=np.full(pool, -1),
        test_images=images[:2],
        test_labels=np.array([0, num_known]),
        policy=policy(run.data),
        split_hash="generated",
    )


@dataclass(eq=False)  # hashable: readings are cached by it
class Workbench:
    """What the sections share: the settings, and measurements that more than one of them needs."""

    params: Params
    device: torch.device
    task: str = "cifar-50-500"
    pool: int = 50_000
    rounds: int = 3
    """Repetitions of whole training steps, which take seconds."""
    repetitions: int = 15
    """Repetitions of everything smaller."""
    skip: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def dac(self) -> Lab:
        return self.lab(DAC)

    @cached_property
    def fixmatch(self) -> Lab:
        return self.lab(FIXMATCH)

    def lab(self, method: str) -> Lab:
        return build(self._run(method), self._images, self.device)

    def _run(self, method: str) -> Run:
        return self.params.run(self.task, method, seed=1)

    @cached_property
    def _images(self) -> RunData:
        return generated(self._run(FIXMATCH), self.pool)

    @cached_property
    def step_seconds(self) -> dict[str, float]:
        """Floor and step in turn. The first round warms up; the median passes over it."""
        works: dict[str, Work] = {"floor": self.dac.floor, "dac": self.dac.step}
        return medians(works, self.rounds, self.device, warm_up=False)
