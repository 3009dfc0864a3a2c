"""Section b: batched views against the usual way, Pillow on one image after the other.

The reference takes the same draws as dac/augment/views.py and gives the same bytes: the work is the
same. It is leaner than torchvision's transforms, which wrap the same calls.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from benchmarks.lab import Workbench
from benchmarks.table import Row
from benchmarks.timing import medians
from dac.augment import Policy, strong, weak
from dac.augment.geometry import NUM_CROP_DRAWS
from dac.augment.operations import CUTOUT_FILL, OPERATIONS
from dac.augment.views import CUTOUT_MAX_SIDE, NUM_CUTOUT_DRAWS, uniform

AT_LEAST = 5.0


def augmentation(bench: Workbench) -> Iterator[Row]:
    """A weak and a strong view of each image of an unlabeled batch."""
    lab, stream = bench.dac, torch.Generator().manual_seed(0)
    images, policy = lab.unlabeled.at(lab.state.step)[1], lab.data.policy
    on_host = images.permute(0, 2, 3, 1).cpu().numpy()  # B x H x W x 3

    def batched() -> None:
        weak(images, policy, stream)
        strong(images, policy, stream)

    def one_by_one() -> None:
        weak_views(on_host, policy, stream)
        strong_views(on_host, policy, stream)

    taken = medians({"batched": batched, "Pillow": one_by_one}, bench.repetitions, bench.device)
    per_second = {name: len(images) / seconds for name, seconds in taken.items()}
    yield Row(
        "b",
        "weak and strong views per second, batched / Pillow",
        per_second["batched"] / per_second["Pillow"],
        at_least=AT_LEAST,
        note=", ".join(f"{name} {value:,.0f} images/s" for name, value in per_second.items()),
    )


def weak_views(images: np.ndarray, policy: Policy, generator: torch.Generator) -> Tensor:
    draws = uniform(len(images), NUM_CROP_DRAWS, generator).tolist()
    views = [crop(image, policy, *row) for image, row in zip(images, draws, strict=True)]
    return torch.stack([normalized(view, policy) for view in views])


def strong_views(images: np.ndarray, policy: Policy, generator: torch.Generator) -> Tensor:
    num_draws = NUM_CROP_DRAWS + 2 * policy.num_ops + NUM_CUTOUT_DRAWS
    draws = uniform(len(images), num_draws, generator).tolist()
    views = []
    for image, row in zip(images, draws, strict=True):
        view = crop(image, policy, *row[:NUM_CROP_DRAWS])
        pairs = row[NUM_CROP_DRAWS:-NUM_CUTOUT_DRAWS]
        for choice, fraction in zip(pairs[::2], pairs[1::2], strict=True):
            index = math.floor(choice * len(OPERATIONS))
            low, high = OPERATIONS[index].low, OPERATIONS[index].high
            view = PILLOW[index](view, low + (high - low) * fraction)
        views.append(normalized(cut_out(view, *row[-NUM_CUTOUT_DRAWS:]), policy))
    return torch.stack(views)


def crop(
    image: np.ndarray, policy: Policy, top_draw: float, left_draw: float, flip_draw: float
) -> Image.Image:
    pad, size = policy.pad, policy.size
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
    top = math.floor(top_draw * (padded.shape[0] - size + 1))
    left = math.floor(left_draw * (padded.shape[1] - size + 1))
    view = Image.fromarray(padded[top : top + size, left : left + size])
    return ImageOps.mirror(view) if policy.flip and flip_draw < 0.5 else view


def cut_out(view: Image.Image, side_draw: float, x_draw: float, y_draw: float) -> Image.Image:
    width, height = view.size
    side = side_draw * CUTOUT_MAX_SIDE * width
    if side > 0:
        left, top = (max(0, int(c - side / 2)) for c in (x_draw * width, y_draw * height))
        box = (left, top, min(width, left + side), min(height, top + side))
        ImageDraw.Draw(view := view.copy()).rectangle(box, CUTOUT_FILL)
    return view


def normalized(view: Image.Image, policy: Policy) -> Tensor:
    scaled = torch.from_numpy(np.array(view)).permute(2, 0, 1).float().div_(255)
    mean, std = (torch.tensor(values)[:, None, None] for values in (policy.mean, policy.std))
    return scaled.sub_(mean).div_(std)


def _moved(view: Image.Image, *matrix: float) -> Image.Image:
    return view.transform(view.size, Image.Transform.AFFINE, matrix)


PILLOW: tuple[Callable[[Image.Image, float], Image.Image], ...] = (  # in the order of OPERATIONS
    lambda view, v: ImageOps.autocontrast(view),
    lambda view, v: ImageEnhance.Brightness(view).enhance(v),
    lambda view, v: ImageEnhance.Color(view).enhance(v),
    lambda view, v: ImageEnhance.Contrast(view).enhance(v),
    lambda view, v: ImageOps.equalize(view),
    lambda view, v: view,
    lambda view, v: ImageOps.posterize(view, int(v)),
    lambda view, v: view.rotate(v),
    lambda view, v: ImageEnhance.Sharpness(view).enhance(v),
    lambda view, v: _moved(view, 1, v, 0, 0, 1, 0),
    lambda view, v: _moved(view, 1, 0, 0, v, 1, 0),
    lambda view, v: ImageOps.solarize(view, math.ceil(v)),
    lambda view, v: _moved(view, 1, 0, v * view.size[0], 0, 1, 0),
    lambda view, v: _moved(view, 1, 0, 0, 0, 1, v * view.size[1]),
)
