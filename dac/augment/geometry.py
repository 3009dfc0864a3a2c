"""Crops of a batch, one per image: random crops, and random-resized crops like Pillow's.

Draws are uniform numbers on the host, one row per image (dac/augment/views.py lists them).
"""

# B batch, H height, W width, S output side; images are B x 3 x H x W uint8

import math

import torch
from torch import Tensor

from dac.augment.policy import Policy
from dac.io.device import send

NUM_TRIES = 10  # candidates for a resized crop before the central one is taken
AREA_RANGE = (0.08, 1.0)  # share of the image
ASPECT_RANGE = (3 / 4, 4 / 3)  # width / height, drawn log-uniformly
NUM_CROP_DRAWS = 3
NUM_RESIZED_CROP_DRAWS = 2 * NUM_TRIES + 3
WEIGHT_BITS = 22  # Pillow's resize keeps its weights in 22-bit fixed point


def check(images: Tensor, policy: Policy, pad: int) -> tuple[int, int]:
    """Return height and width of images that are large enough for a crop of the policy's size."""
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
        shape = tuple(images.shape)
        raise ValueError(f"images are {images.dtype} {shape}, expected uint8 (B, 3, H, W)")
    height, width = images.shape[2:]
    if min(height, width) + 2 * pad < policy.size or pad >= min(height, width):
        raise ValueError(
            f"images of {height} x {width} px with {pad} reflected pixels per side do not allow "
            f"crops of {policy.size} px; change `size` or `pad` of the policy"
        )
    return height, width


def crop_and_flip(images: Tensor, policy: Policy, draws: Tensor) -> Tensor:
    """Random S x S crop of the reflect-padded image, mirrored half of the time, in one gather."""
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
    boxes); there 12 % of the pixels (17 % at most) differ by one gray level.
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
    """Sum over the taps of weight x pixel, rounded to a gray level; fits in 32 bits."""
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
