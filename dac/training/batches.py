"""Batches of a run on the device: which images a step sees, and their views.

The order of indices is a function of the step alone, so resuming needs no sampler state.
"""

# B labeled batch, U unlabeled batch, N pool items

from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from dac.augment.views import draw_strong, draw_weak, strong_views, together, weak_views
from dac.config import Phase, Stream, Train
from dac.data.images import Images, Schedule
from dac.data.run_data import RunData
from dac.methods.base import Method
from dac.methods.parts.selection import Selection
from dac.methods.step import Batch, Drawn


def epoch_order(size: int, count: int, epoch: int) -> Tensor:
    """The first `count` of concatenated random permutations of `size` items.

    Seeded with the epoch only, as all released code does: the order is the same for every run
    (docs/protocol/training.md, "Sampling").
    """
    generator = torch.Generator().manual_seed(epoch)
    permutations = -(-count // size)
    return torch.cat([torch.randperm(size, generator=generator) for _ in range(permutations)])[
        :count
    ]


def batch_sizes(settings: Train) -> dict[str, int]:
    return {"labeled": settings.batch, "unlabeled": settings.mu * settings.batch}


def views_of_step(settings: Train, phase: Phase) -> int:
    """Images that a step augments, which are all in memory when it begins."""
    drawn, sizes = phase.drawn, batch_sizes(settings)
    views = sizes["labeled"] * (drawn.labeled + drawn.labeled_strong)
    views += sizes["unlabeled"] * (drawn.weak + drawn.strong)
    return views + sum(sizes[s.batch] * (s.weak + s.strong) for s in phase.streams.values())


class ImageStream:
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


@dataclass(frozen=True)
class Source:
    """Images of one step, and the views that are wanted of them."""

    index: Tensor
    images: Tensor
    wanted: Stream
    draws: torch.Generator


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
        self.sizes = batch_sizes(settings)
        self.labeled = self._stream(data.labeled_index, settings.batch)
        self.pool_streams: dict[tuple[str, str, bool], ImageStream] = {}
        self.selections = {m.stream: m for m in method.modules() if isinstance(m, Selection)}

    def at(self, step: int) -> Batch:
        phase = self.method.settings.phase(step // self.settings.steps_per_epoch)
        counts = Stream("labeled", phase.drawn.labeled, phase.drawn.labeled_strong)
        x = Source(*self.labeled.at(step), counts, self.streams["labeled_views"])
        main = Stream("unlabeled", phase.drawn.weak, phase.drawn.strong)
        wanted = {"unlabeled": main, **phase.streams}
        of_pool = {name: self._of_pool(name, one, step) for name, one in wanted.items()}
        labeled, unlabeled, *more = self._drawn([x, *of_pool.values()])
        return Batch(
            x=labeled.weak,
            y=self.labels[labeled.index],
            x_index=labeled.index,
            u_weak=unlabeled.weak,
            u_strong=unlabeled.strong,
            u_index=unlabeled.index,
            x_strong=labeled.strong,
            more=dict(zip(phase.streams, more, strict=True)),
        )

    def _drawn(self, sources: list[Source]) -> list[Drawn]:
        """The views of all sources: drawn one by one, made together."""
        policy = self.data.policy
        weak, strong = [], []
        for source in sources:
            images, count = source.images, len(source.images)
            weak += [(images, draw_weak(count, source.draws)) for _ in range(source.wanted.weak)]
            strong += [
                (images, draw_strong(count, policy, source.draws))
                for _ in range(source.wanted.strong)
            ]
        weak_made = iter(together(weak_views, policy, weak))
        strong_made = iter(together(strong_views, policy, strong))
        return [
            Drawn(
                source.index,
                weak=list(islice(weak_made, source.wanted.weak)),
                strong=list(islice(strong_made, source.wanted.strong)),
            )
            for source in sources
        ]

    def num_views(self) -> int:
        """Views drawn in the whole training."""
        return sum(map(self._views_of_epoch, range(self.settings.epochs)))

    def _views_of_epoch(self, epoch: int) -> int:
        views = views_of_step(self.settings, self.method.settings.phase(epoch))
        return self.settings.steps_per_epoch * views

    def _of_pool(self, name: str, wanted: Stream, step: int) -> Source:
        draws = self.streams["unlabeled_views"]
        if not wanted.weak and not wanted.strong:
            nothing = torch.empty(0, dtype=torch.long, device=self.device)
            return Source(nothing, nothing, wanted, draws)
        selection = self.selections.get(name)
        mask = None if selection is None else selection.mask
        return Source(*self.of_pool(name, wanted).at(step, mask), wanted, draws)

    def of_pool(self, name: str, wanted: Stream) -> ImageStream:
        """The stream of a name; phases may differ in its batch and in what it draws from."""
        key = (name, wanted.batch, wanted.with_labeled)
        if key not in self.pool_streams:
            labeled = [self.data.labeled_index] if wanted.with_labeled else []
            rows = np.concatenate([self.data.pool_index, *labeled])
            self.pool_streams[key] = self._stream(rows, self.sizes[wanted.batch])
        return self.pool_streams[key]

    def _stream(self, index: np.ndarray, batch: int) -> ImageStream:
        steps = self.settings.steps_per_epoch
        return ImageStream(self.images, index, batch=batch, steps_per_epoch=steps)
