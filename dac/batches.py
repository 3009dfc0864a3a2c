"""From a prepared data set and a split to batches on the device.

Small sets live on the device as uint8; large ones are memory maps read ahead by threads. The order
of indices is a function of the step alone, so resuming needs no sampler state.
"""

# B labeled batch, U unlabeled batch, N pool items

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dac.augment import Policy, strong, weak
from dac.data.prepared import Part
from dac.errors import UserError
from dac.methods.base import Batch, ViewCounts
from dac.settings import Data, Train
from dac.split import Split
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
        self,
        images: np.ndarray,
        index: np.ndarray,
        *,
        batch: int,
        steps_per_epoch: int,
        device: torch.device,
        workers: int = 4,
    ) -> None:
        self.size, self.batch, self.steps_per_epoch = len(index), batch, steps_per_epoch
        self.device, self.workers = device, workers
        self.epoch = -1
        self.reads: dict[int, Future[Tensor]] = {}
        self.source: np.memmap | None = None
        if isinstance(images, np.memmap):
            self.source, self.index = images, index
            self.pool = ThreadPoolExecutor(workers)
        else:
            self.resident = torch.from_numpy(images[index]).to(device)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Positions (batch) and uint8 images (batch x 3 x H x W) of one step, on the device."""
        epoch, offset = divmod(step, self.steps_per_epoch)
        if epoch != self.epoch:
            self._start(epoch)
        positions = self.order[offset]
        if self.source is None:
            return positions, self.resident.index_select(0, positions)
        return positions, self._read_ahead(offset).to(self.device, non_blocking=True)

    def _start(self, epoch: int) -> None:
        count = self.steps_per_epoch * self.batch
        self.host_order = epoch_order(self.size, count, epoch).view(-1, self.batch)
        self.order = self.host_order.to(self.device)
        self.epoch, self.reads = epoch, {}

    def _read_ahead(self, offset: int) -> Tensor:
        """This step's images; the next steps' are being read meanwhile."""
        for ahead in range(offset, min(offset + 2 * self.workers, self.steps_per_epoch)):
            if ahead not in self.reads:
                self.reads[ahead] = self.pool.submit(self._read, self.host_order[ahead].numpy())
        return self.reads.pop(offset).result()

    def _read(self, positions: np.ndarray) -> Tensor:
        assert self.source is not None
        images = torch.from_numpy(self.source[self.index[positions]])
        return images.pin_memory() if self.device.type == "cuda" else images


class Batches:
    """The batch of a step: draws, views and labels. All randomness comes from `streams`."""

    def __init__(
        self,
        data: RunData,
        settings: Train,
        views: ViewCounts,
        streams: dict[str, torch.Generator],
        device: torch.device,
    ) -> None:
        self.views, self.policy, self.streams = views, data.policy, streams
        self.labels = torch.from_numpy(data.labels).to(device)
        self.labeled = self._stream(data, data.labeled_index, settings.batch, settings, device)
        self.unlabeled = None
        if views.weak or views.strong:
            size = settings.batch * settings.mu
            self.unlabeled = self._stream(data, data.pool_index, size, settings, device)

    @staticmethod
    def _stream(
        data: RunData, index: np.ndarray, batch: int, settings: Train, device: torch.device
    ) -> Stream:
        return Stream(
            data.train_images,
            index,
            batch=batch,
            steps_per_epoch=settings.steps_per_epoch,
            device=device,
            workers=settings.workers,
        )

    def at(self, step: int) -> Batch:
        x_index, x = self.labeled.at(step)
        of_labeled, of_unlabeled = self.streams["labeled_views"], self.streams["unlabeled_views"]
        u_index, u_weak, u_strong = x_index[:0], [], []
        if self.unlabeled is not None:
            u_index, u = self.unlabeled.at(step)
            u_weak = [weak(u, self.policy, of_unlabeled) for _ in range(self.views.weak)]
            u_strong = [strong(u, self.policy, of_unlabeled) for _ in range(self.views.strong)]
        return Batch(
            x=[weak(x, self.policy, of_labeled) for _ in range(self.views.labeled)],
            y=self.labels[x_index],
            x_index=x_index,
            u_weak=u_weak,
            u_strong=u_strong,
            u_index=u_index,
        )
