"""Images of a data set by row, on the device: kept there, or read ahead from a memory map.

Training, passes over the pool and evaluation all read through here.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor


class Images:
    """N x 3 x H x W in uint8. Small sets stay on the device; from a memory map, `workers` threads
    read ahead while the device works."""

    def __init__(self, source: np.ndarray, device: torch.device, workers: int) -> None:
        self.source, self.device = source, device
        self.resident: Tensor | None = None
        if isinstance(source, np.memmap):
            self.threads, self.num_ahead = ThreadPoolExecutor(workers), 2 * workers
        else:
            self.resident = torch.from_numpy(source).to(device)  # on a CPU, the array itself

    def read(self, rows: Tensor) -> Tensor:
        """Read from a memory map, into memory that a GPU can copy from by itself."""
        images = torch.from_numpy(self.source[rows.numpy()])
        return images.pin_memory() if self.device.type == "cuda" else images


class Schedule:
    """Batches of some rows, in order. Asking for one starts reading those after it."""

    def __init__(self, images: Images, rows: Tensor, batch: int) -> None:
        """`rows` are on the host, where memory maps are; the last batch may be short."""
        self.images, self.batch = images, batch
        self.rows = rows if images.resident is None else rows.to(images.device)
        self.reads: dict[int, Future[Tensor]] = {}

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch)

    def at(self, number: int) -> Tensor:
        """Return the images of a batch, on the device."""
        images = self.images
        if images.resident is not None:
            return images.resident.index_select(0, self._rows_of(number))
        for ahead in range(number, min(number + images.num_ahead, len(self))):
            if ahead not in self.reads:
                self.reads[ahead] = images.threads.submit(images.read, self._rows_of(ahead))
        return self.reads.pop(number).result().to(images.device, non_blocking=True)

    def _rows_of(self, number: int) -> Tensor:
        return self.rows[number * self.batch : (number + 1) * self.batch]
