"""Weak, strong and evaluation views, in batches on the device, with separate draws for each image.

FixMatch's A_w and A_s as the DAC release and USB define them: the weak view is a random crop and a
flip; the strong view adds three RandAugment operations, drawn with replacement and with magnitudes
uniform over their full ranges, and one Cutout. There is no nominal magnitude: the release has such
a parameter but never reads it.
"""

# B batch, H height, W width, S output side; images are B x 3 x H x W uint8
#
# Draws are one B x n block of uniform numbers from a CPU generator, a row for each image, in order:
#   crop           top, left, flip
#   resized crop   10 areas, 10 aspect ratios, top, left, flip
#   strong views   then num_ops pairs (operation, magnitude), then Cutout's side, centre x, centre y
# Group sizes are thus known on the host, and the draws do not depend on the device.

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dac.image_ops import OPERATIONS, cutout

NUM_TRIES = 10  # candidates for a resized crop before the central one is taken
AREA_RANGE = (0.08, 1.0)  # share of the image
ASPECT_RANGE = (3 / 4, 4 / 3)  # width / height, drawn log-uniformly
CUTOUT_MAX_SIDE = 0.5  # share of the width
NUM_CROP_DRAWS = 3
NUM_RESIZED_CROP_DRAWS = 2 * NUM_TRIES + 3
NUM_CUTOUT_DRAWS = 3
WEIGHT_BITS = 22  # Pillow's resize keeps its weights in 22-bit fixed point


@dataclass(frozen=True)
class Policy:
    """How the images of a data set are augmented."""

    size: int
    """Side of every view."""
    pad: int
    """Reflected pixels added on each side before the random crop."""
    flip: bool
    """Mirror half of the views; false for digits, where a mirrored sign is another sign."""
    random_resized_crop: bool
    """Strong views start from a random-resized crop (224 px) and not from the weak view's crop."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    """Normalisation of each channel, after scaling to [0, 1]."""
    num_ops: int = 3
    """RandAugment operations for each strong view."""


def weak(images: Tensor, policy: Policy, generator: torch.Generator) -> Tensor:
    """Random crop and flip; B x 3 x S x S float32. The caller repeats images for more views."""
    draws = uniform(len(images), NUM_CROP_DRAWS, generator)
    return normalize(crop_and_flip(images, policy, draws), policy)


def strong(images: Tensor, policy: Policy, generator: torch.Generator) -> Tensor:
    """Random crop or resized crop, flip, RandAugment and Cutout; B x 3 x S x S float32."""
    resized = policy.random_resized_crop
    num_geometry = NUM_RESIZED_CROP_DRAWS if resized else NUM_CROP_DRAWS
    num_draws = num_geometry + 2 * policy.num_ops + NUM_CUTOUT_DRAWS
    draws = uniform(len(images), num_draws, generator)
    geometry, operations, box = draws.split(
        (num_geometry, 2 * policy.num_ops, NUM_CUTOUT_DRAWS), dim=1
    )
    views = (resized_crop_and_flip if resized else crop_and_flip)(images, policy, geometry)
    for pair in operations.reshape(len(images), policy.num_ops, 2).unbind(1):
        views = apply_drawn_operations(views, choice=pair[:, 0], fraction=pair[:, 1])
    side, cx, cy = send(box, images.device).unbind(1)
    views = cutout(views, side * CUTOUT_MAX_SIDE, cx * policy.size, cy * policy.size)
    return normalize(views, policy)


def evaluation(images: Tensor, policy: Policy) -> Tensor:
    """The central S x S pixels, without any draw."""
    height, width = check(images, policy, pad=0)
    top, left = round((height - policy.size) / 2), round((width - policy.size) / 2)
    centre = images[:, :, top : top + policy.size, left : left + policy.size]
    return normalize(centre, policy)


def uniform(num_images: int, num_draws: int, generator: torch.Generator) -> Tensor:
    """One row of uniform numbers in [0, 1) for each image, on the host."""
    return torch.rand(num_images, num_draws, generator=generator, dtype=torch.float64)


def send(host: Tensor, device: torch.device) -> Tensor:
    """Copy to the device without waiting for it; only pinned memory allows that."""
    if device.type == "cuda":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)


def check(images: Tensor, policy: Policy, pad: int) -> tuple[int, int]:
    """Height and width of images that are fit for a crop of the policy's size."""
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
        shape = tuple(images.shape)
        raise ValueError(f"images are {images.dtype} {shape}, expected uint8 (B, 3, H, W)")
    height, width = images.shape[2:]
    if min(height, width) + 2 * pad < policy.size or pad >= min(height, width):
        raise ValueError(
            f"images of {height} x {width} px with {pad} reflected pixels on each side do not give "
            f"crops of {policy.size} px; change `size` or `pad` of the policy"
        )
    return height, width


def crop_and_flip(images: Tensor, policy: Policy, draws: Tensor) -> Tensor:
    """Random S x S crop of the reflect-padded image, mirrored half of the time, as one gather."""
    height, width = check(images, policy, policy.pad)
    num_starts = torch.tensor((height, width)) + 2 * policy.pad - policy.size + 1
    starts = (draws[:, :2] * num_starts).floor().long() - policy.pad
    mirrored = (draws[:, 2] < 0.5) & policy.flip
    top, left, mirror = send(torch.column_stack((starts, mirrored)), images.device).unbind(1)

    offset = torch.arange(policy.size, device=images.device)
    rows = reflect(top[:, None] + offset, height)  # B x S
    turned = torch.where(mirror[:, None] > 0, policy.size - 1 - offset, offset)
    columns = reflect(left[:, None] + turned, width)
    source = (rows[:, :, None] * width + columns[:, None]).flatten(1)  # B x SS
    views = images.flatten(2).gather(2, source[:, None].expand(-1, 3, -1))
    return views.view(len(images), 3, policy.size, policy.size)


def reflect(position: Tensor, length: int) -> Tensor:
    """Mirror positions outside 0..length-1 back in; the edge pixel itself is not repeated."""
    last = length - 1
    return last - (last - position.abs()).abs()


def apply_drawn_operations(views: Tensor, choice: Tensor, fraction: Tensor) -> Tensor:
    """One RandAugment round: each image gets the operation and the magnitude drawn for it.

    `choice` and `fraction` are uniform numbers on the host.
    """
    index = (choice * len(OPERATIONS)).long()
    low, high = torch.tensor([(o.low, o.high) for o in OPERATIONS], dtype=torch.float64)[index].T
    functions = [operation.function for operation in OPERATIONS]
    return apply_by_index(views, functions, index, low + (high - low) * fraction)


def apply_by_index(
    views: Tensor,
    functions: Sequence[Callable[[Tensor, Tensor], Tensor]],
    index: Tensor,
    magnitude: Tensor,
) -> Tensor:
    """Each image through the function of its index, with its magnitude; both are on the host.

    Images are sorted by function, each function runs once on its run of images, and the order is
    restored.
    """
    order = index.argsort()
    sizes = index.bincount(minlength=len(functions)).tolist()
    groups = views.index_select(0, send(order, views.device)).split(sizes)
    magnitudes = send(magnitude[order], views.device).split(sizes)
    done = [
        function(group, v)
        for function, group, v in zip(functions, groups, magnitudes, strict=True)
        if len(group)
    ]
    return torch.cat(done).index_select(0, send(order.argsort(), views.device))


def resized_crop_and_flip(
    images: Tensor,
    policy: Policy,
    draws: Tensor,
    area_range: tuple[float, float] = AREA_RANGE,
) -> Tensor:
    """Random-resized crop to S x S (bilinear), mirrored half of the time."""
    height, width = check(images, policy, pad=0)
    boxes = crop_boxes(draws[:, :-1], height, width, area_range)
    mirrored = (draws[:, -1] < 0.5) & policy.flip
    block = send(torch.column_stack((boxes, mirrored)), images.device)
    views = resize(images, block[:, :4], policy.size)
    return torch.where(block[:, 4, None, None, None] > 0, views.flip(3), views)


def crop_boxes(
    draws: Tensor, height: int, width: int, area_range: tuple[float, float] = AREA_RANGE
) -> Tensor:
    """B x 4 (top, left, height, width) of random-resized crops, from 22 uniform numbers each.

    The first of ten candidates that fits the image is taken; if none does, the largest central box
    with an aspect ratio in range.
    """
    low, high = area_range
    area = (low + (high - low) * draws[:, :NUM_TRIES]) * (height * width)
    low, high = (math.log(ratio) for ratio in ASPECT_RANGE)
    aspect = (low + (high - low) * draws[:, NUM_TRIES : 2 * NUM_TRIES]).exp()
    widths, heights = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()  # B x tries
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first = fits.int().argmax(dim=1, keepdim=True)  # argmax takes the first of equals
    sides = torch.cat((heights.gather(1, first), widths.gather(1, first)), dim=1)
    room = torch.tensor((height, width)) - sides + 1
    corners = (draws[:, 2 * NUM_TRIES :] * room).floor()
    boxes = torch.cat((corners, sides), dim=1).long()
    return torch.where(fits.any(dim=1, keepdim=True), boxes, central_box(height, width))


def central_box(height: int, width: int) -> Tensor:
    narrowest, widest = ASPECT_RANGE
    box_width = min(width, round(height * widest))
    box_height = min(height, round(width / narrowest))
    return torch.tensor(
        ((height - box_height) // 2, (width - box_width) // 2, box_height, box_width)
    )


def resize(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Bilinear resize of one box of each image to `size`, antialiased when it shrinks.

    Columns first, then rows, with Pillow's fixed-point weights and its rounding in between.
    Pillow 13 takes rows first for most boxes that are taller than wide and lose height (9 % of the
    boxes); there 12 % of the pixels, at most 17 % seen, differ by one grey level.
    """
    height, width = images.shape[2:]
    num_taps = math.ceil(2 * max(height, width, size) / size)
    columns, weights = bilinear_taps(boxes[:, 1], boxes[:, 3], size, num_taps)
    index = columns[:, :, None, None].expand(-1, -1, 3, height, -1)  # B x taps x 3 x H x S
    wide = weigh(images, 3, index, weights[:, :, None, None])
    rows, weights = bilinear_taps(boxes[:, 0], boxes[:, 2], size, num_taps)
    index = rows[:, :, None, :, None].expand(-1, -1, 3, -1, size)
    return weigh(wide, 2, index, weights[:, :, None, :, None])


def weigh(images: Tensor, dim: int, index: Tensor, weights: Tensor) -> Tensor:
    """Sum over the taps of weight x pixel, rounded to a grey level; fits in 32 bits."""
    half = 1 << (WEIGHT_BITS - 1)
    total = torch.full(index[:, 0].shape, half, dtype=torch.int32, device=images.device)
    for tap_index, tap_weight in zip(index.unbind(1), weights.unbind(1), strict=True):
        total += images.gather(dim, tap_index).int().mul_(tap_weight)
    return (total >> WEIGHT_BITS).to(torch.uint8)  # weights are positive and sum to 1: no clipping


def bilinear_taps(start: Tensor, length: Tensor, size: int, num_taps: int) -> tuple[Tensor, Tensor]:
    """For each output pixel, the input positions and fixed-point weights (each B x taps x S)."""
    scale = length.double()[:, None, None] / size
    support = scale.clamp(min=1)
    centre = (torch.arange(size, device=start.device) + 0.5) * scale  # B x 1 x S
    low = (centre - support + 0.5).clamp(min=0).floor()
    position = low + torch.arange(num_taps, device=start.device)[:, None]  # B x taps x S
    last = length[:, None, None] - 1
    weight = (1 - ((position - centre + 0.5) / support).abs()).clamp(min=0) * (position <= last)
    weight = weight / weight.sum(dim=1, keepdim=True)
    fixed = (weight * (1 << WEIGHT_BITS) + 0.5).floor().int()
    return start[:, None, None] + position.long().minimum(last), fixed


def normalize(views: Tensor, policy: Policy) -> Tensor:
    """Scale to [0, 1], subtract the mean and divide by the standard deviation of each channel."""
    scaled = views.float().div_(255)
    for channel, (mean, std) in enumerate(zip(policy.mean, policy.std, strict=True)):
        scaled[:, channel].sub_(mean).div_(std)
    return scaled
