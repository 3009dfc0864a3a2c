"""From a prepared data set and a split to batches on the device.

The order of indices is a function of the step alone, so resuming needs no sampler state.
"""

# B labeled batch, U unlabeled batch, N pool items

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dac.augment import Policy, strong, weak
from dac.data.prepared import Part
from dac.errors import UserError
from dac.images import Images, Schedule
from dac.methods.base import Method
from dac.settings import Data, Train
from dac.split import Split
from dac.step import Batch, Clock, Draw, Drawn, ViewCounts
from dac.tasks import relabel


@dataclass(frozen=True)
class RunData:
    """The images of one run. Labels of the pool are for measuring, never for training."""

    num_known: int
    train_images: np.ndarray  # of the whole training part, N x 3 x H x W uint8
    labeled_index: np.ndarray  # rows of train_images
    labels: np.ndarray  # of the labeled images, 0 .. num_known - 1
    pool_index: np.ndarray  # rows of train_images
    pool_labels: np.ndarray  # unknown classes num_known and above, -1 where nobody knows
    test_images: np.ndarray
    test_labels: np.ndarray
    policy: Policy
    split_hash: str
    known_names: tuple[str, ...] = ()

    @property
    def is_known_test(self) -> np.ndarray:
        return (self.test_labels >= 0) & (self.test_labels < self.num_known)


def run_data(split: Split, train: Part, test: Part, data: Data, settings: Train) -> RunData:
    """Put a split and its images together; `pool_includes_labeled` is decided here."""
    labels = relabel(train.labels, split.known)
    test_labels = relabel(test.labels, split.known)
    if not np.any((test_labels >= 0) & (test_labels < split.num_known)):
        raise UserError(
            f"the test images of {split.task} show none of its {split.num_known} known classes; "
            "add some to the test part and prepare the data again"
        )
    pool = split.unlabeled
    if settings.pool_includes_labeled:
        pool = np.union1d(pool, split.labeled)
    return RunData(
        num_known=split.num_known,
        train_images=train.images,
        labeled_index=split.labeled,
        labels=labels[split.labeled],
        pool_index=pool,
        pool_labels=labels[pool],
        test_images=test.images,
        test_labels=test_labels,
        policy=policy(data),
        split_hash=split.hash,
    )


def policy(data: Data) -> Policy:
    return Policy(
        size=data.size,
        pad=data.pad,
        flip=data.flip,
        random_resized_crop=data.side > data.size,
        mean=data.mean,
        std=data.std,
    )


def epoch_order(size: int, count: int, epoch: int) -> Tensor:
    """The first `count` of concatenated random permutations of `size` items.

    Seeded with the epoch only, as all released code does: the order is the same for every run
    (docs/protocol.md, "Sampling").
    """
    generator = torch.Generator().manual_seed(epoch)
    permutations = -(-count // size)
    return torch.cat([torch.randperm(size, generator=generator) for _ in range(permutations)])[
        :count
    ]


class Stream:
    """Batch after batch of one index set: positions in the set, and the images themselves."""

    def __init__(
        self, images: Images, index: np.ndarray, *, batch: int, steps_per_epoch: int
    ) -> None:
        self.images, self.index = images, torch.from_numpy(index)
        self.batch, self.steps_per_epoch = batch, steps_per_epoch
        self.epoch = -1

    def at(self, step: int, selected: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Positions (batch) and uint8 images (batch x 3 x H x W) of one step, on the device.

        `selected`: a mask of the images to draw from. It must stay the same during an epoch.
        """
        epoch, offset = divmod(step, self.steps_per_epoch)
        if epoch != self.epoch:
            self._start(epoch, selected)
        return self.order[offset], self.schedule.at(offset)

    def _start(self, epoch: int, selected: Tensor | None) -> None:
        count = self.steps_per_epoch * self.batch
        if selected is None:
            order = epoch_order(len(self.index), count, epoch)
        else:
            chosen = selected.cpu().nonzero().squeeze(1)
            order = chosen[epoch_order(len(chosen), count, epoch)]
        self.order = order.view(-1, self.batch).to(self.images.device)
        self.schedule = Schedule(self.images, self.index[order], self.batch)
        self.epoch = epoch


class Batches:
    """The batch of a step: draws, views and labels. All randomness comes from `streams`."""

    def __init__(
        self,
        data: RunData,
        settings: Train,
        method: Method,
        streams: dict[str, torch.Generator],
        device: torch.device,
    ) -> None:
        self.data, self.settings, self.method = data, settings, method
        self.streams, self.device = streams, device
        self.images = Images(data.train_images, device, settings.workers)
        self.labels = torch.from_numpy(data.labels).to(device)
        self.labeled = self._stream(data.labeled_index, settings.batch)
        self.of_pool: dict[str, Stream] = {}

    def at(self, step: int) -> Batch:
        clock = self._clock(step)
        views = self.method.views_at(clock)
        x_index, x = self.labeled.at(step)
        policy, of_labeled = self.data.policy, self.streams["labeled_views"]
        u = self._drawn("unlabeled", self._main(views), step)
        return Batch(
            x=[weak(x, policy, of_labeled) for _ in range(views.labeled)],
            y=self.labels[x_index],
            x_index=x_index,
            u_weak=u.weak,
            u_strong=u.strong,
            u_index=u.index,
            x_strong=[strong(x, policy, of_labeled) for _ in range(views.labeled_strong)],
            more={
                name: self._drawn(name, draw, step)
                for name, draw in self.method.draws_at(clock).items()
            },
        )

    def num_views(self) -> int:
        """Views drawn in the whole training."""
        epochs = range(self.settings.epochs)
        return sum(
            self._views_of_epoch(self._clock(e * self.settings.steps_per_epoch)) for e in epochs
        )

    def _views_of_epoch(self, clock: Clock) -> int:
        views = self.method.views_at(clock)
        draws = [self._main(views), *self.method.draws_at(clock).values()]
        of_labeled = self.settings.batch * (views.labeled + views.labeled_strong)
        of_pool = sum(draw.images * (draw.weak + draw.strong) for draw in draws)
        return self.settings.steps_per_epoch * (of_labeled + of_pool)

    def _main(self, views: ViewCounts) -> Draw:
        return Draw(self.settings.batch * self.settings.mu, views.weak, views.strong)

    def _clock(self, step: int) -> Clock:
        return Clock(step, self.settings.steps_per_epoch, self.settings.steps)

    def _drawn(self, name: str, draw: Draw, step: int) -> Drawn:
        if not draw.weak and not draw.strong:
            return Drawn(torch.empty(0, dtype=torch.long, device=self.device), [], [])
        if name not in self.of_pool:
            rows = self.data.pool_index
            if draw.with_labeled:
                rows = np.concatenate([rows, self.data.labeled_index])
            self.of_pool[name] = self._stream(rows, draw.images)
        index, images = self.of_pool[name].at(step, self.method.selected(name))
        policy, stream = self.data.policy, self.streams["unlabeled_views"]
        return Drawn(
            index,
            weak=[weak(images, policy, stream) for _ in range(draw.weak)],
            strong=[strong(images, policy, stream) for _ in range(draw.strong)],
        )

    def _stream(self, index: np.ndarray, batch: int) -> Stream:
        steps = self.settings.steps_per_epoch
        return Stream(self.images, index, batch=batch, steps_per_epoch=steps)
