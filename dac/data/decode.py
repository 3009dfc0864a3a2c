"""Picture files -> uint8 arrays of one size, in order, on several threads.

Resizing follows torchvision on PIL images (bilinear, antialiased): training images to exactly
side x side; test images by their short side, then cropped to the central square.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from dac.data.listing import shown
from dac.io.errors import reason

Faults = list[str]


def decode(path: Path, side: int, crop: int | None = None) -> np.ndarray:
    """3 x side x side, aspect ratio not kept; with `crop`, the central 3 x crop x crop."""
    with Image.open(path) as picture:
        rgb = _to_rgb(picture)
    if crop is None:
        resized = rgb.resize((side, side), Image.Resampling.BILINEAR)
    else:
        resized = _centre(_short_side(rgb, side), crop)
    return np.ascontiguousarray(np.asarray(resized).transpose(2, 0, 1))


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I;16"):  # convert() would clip at 255: all white
        picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return picture.convert("RGB")


def _short_side(picture: Image.Image, side: int) -> Image.Image:
    width, height = picture.size
    if width <= height:
        size = (side, int(side * height / width))
    else:
        size = (int(side * width / height), side)
    return picture.resize(size, Image.Resampling.BILINEAR)


def _centre(picture: Image.Image, crop: int) -> Image.Image:
    left, top = round((picture.width - crop) / 2), round((picture.height - crop) / 2)
    return picture.crop((left, top, left + crop, top + crop))


def decoded(
    paths: Iterable[Path], side: int, crop: int | None, faults: Faults
) -> Iterator[np.ndarray]:
    """Yield one 1 x 3 x H x W block per path, in order. An unreadable picture is noted and left
    black, so that one pass finds them all; the caller must check `faults` at the end."""
    workers = len(os.sched_getaffinity(0))
    waiting: deque[tuple[Path, Future[np.ndarray]]] = deque()
    with ThreadPoolExecutor(workers) as pool:  # PIL releases the interpreter lock while decoding
        for path in paths:
            waiting.append((path, pool.submit(decode, path, side, crop)))
            if len(waiting) > 8 * workers:  # bounded: the writer may be slower than we are
                yield _result(*waiting.popleft(), crop or side, faults)
        while waiting:
            yield _result(*waiting.popleft(), crop or side, faults)


def _result(path: Path, future: Future[np.ndarray], side: int, faults: Faults) -> np.ndarray:
    try:
        return future.result()[None]
    except Exception as error:  # PIL's readers raise many types for broken files
        faults.append(f"{shown(path)}: {_reason(error)}")
        return np.zeros((1, 3, side, side), dtype=np.uint8)


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "not a picture"
    return reason(error)
