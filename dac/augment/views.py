"""Weak, strong and evaluation views, in batches on the device, with separate draws for each image.

FixMatch's A_w and A_s as the DAC release and USB define them: the weak view is a random crop and a
flip; the strong view adds three RandAugment operations, drawn with replacement and with magnitudes
uniform over their full ranges, and one Cutout. There is no nominal magnitude: the release has such
a parameter but never reads it.
"""

# B batch, H height, W width, S output side; images are B x 3 x H x W uint8
#
# Draws are one B x n block of uniform numbers from a CPU generator, one row per image, in order:
#   crop           top, left, flip
#   resized crop   10 areas, 10 aspect ratios, top, left, flip
#   strong views   then num_ops pairs (operation, magnitude), then Cutout's side, center x, center y
# Group sizes are thus known on the host, and the draws do not depend on the device.

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dac.augment.geometry import (
    NUM_CROP_DRAWS,
    NUM_RESIZED_CROP_DRAWS,
    check,
    crop_and_flip,
    resized_crop_and_flip,
)
from dac.augment.operations import MOTIONS, OPERATIONS, affine, cutout, motion_coefficients
from dac.augment.policy import Policy
from dac.io.device import send

CUTOUT_MAX_SIDE = 0.5  # share of the width
NUM_CUTOUT_DRAWS = 3


def weak(images: Tensor, policy: Policy, generator: torch.Generator) -> Tensor:
    """Random crop and flip; B x 3 x S x S float32. The caller repeats images for more views."""
    return weak_views(images, policy, draw_weak(len(images), generator))


def strong(images: Tensor, policy: Policy, generator: torch.Generator) -> Tensor:
    """Random crop or resized crop, flip, RandAugment and Cutout; B x 3 x S x S float32."""
    return strong_views(images, policy, draw_strong(len(images), policy, generator))


def draw_weak(num_images: int, generator: torch.Generator) -> Tensor:
    return uniform(num_images, NUM_CROP_DRAWS, generator)


def draw_strong(num_images: int, policy: Policy, generator: torch.Generator) -> Tensor:
    num_draws = _num_geometry(policy) + 2 * policy.num_ops + NUM_CUTOUT_DRAWS
    return uniform(num_images, num_draws, generator)


def weak_views(images: Tensor, policy: Policy, draws: Tensor) -> Tensor:
    return normalize(crop_and_flip(images, policy, draws), policy)


def strong_views(images: Tensor, policy: Policy, draws: Tensor) -> Tensor:
    parts = (_num_geometry(policy), 2 * policy.num_ops, NUM_CUTOUT_DRAWS)
    geometry, operations, box = draws.split(parts, dim=1)
    cropped = resized_crop_and_flip if policy.random_resized_crop else crop_and_flip
    views = cropped(images, policy, geometry)
    for pair in operations.reshape(len(images), policy.num_ops, 2).unbind(1):
        views = apply_drawn_operations(views, choice=pair[:, 0], fraction=pair[:, 1])
    side, cx, cy = send(box, images.device).unbind(1)
    views = cutout(views, side * CUTOUT_MAX_SIDE, cx * policy.size, cy * policy.size)
    return normalize(views, policy)


def _num_geometry(policy: Policy) -> int:
    return NUM_RESIZED_CROP_DRAWS if policy.random_resized_crop else NUM_CROP_DRAWS


def together(
    make: Callable[[Tensor, Policy, Tensor], Tensor],
    policy: Policy,
    asked: Sequence[tuple[Tensor, Tensor]],
) -> list[Tensor]:
    """Views of several batches, each with its draws, as one batch: a GPU has less to start."""
    if not asked:
        return []
    images, draws = zip(*asked, strict=True)
    made = make(torch.cat(images), policy, torch.cat(draws))
    return list(made.split([len(each) for each in images]))


def evaluation(images: Tensor, policy: Policy) -> Tensor:
    """The central S x S pixels, without random draws."""
    height, width = check(images, policy, pad=0)
    top, left = round((height - policy.size) / 2), round((width - policy.size) / 2)
    centre = images[:, :, top : top + policy.size, left : left + policy.size]
    return normalize(centre, policy)


def uniform(num_images: int, num_draws: int, generator: torch.Generator) -> Tensor:
    """Draw one row of uniform numbers in [0, 1) per image, on the host."""
    return torch.rand(num_images, num_draws, generator=generator, dtype=torch.float64)


def normalize(views: Tensor, policy: Policy) -> Tensor:
    """Scale to [0, 1], subtract the mean and divide by the standard deviation of each channel."""
    scaled = views.float().div_(255)
    mean, std = send(torch.tensor((policy.mean, policy.std)), views.device)[:, :, None, None]
    return scaled.sub_(mean).div_(std)


def apply_drawn_operations(views: Tensor, choice: Tensor, fraction: Tensor) -> Tensor:
    """One RandAugment round: apply to each image the operation and magnitude drawn for it.

    `choice` and `fraction` are uniform numbers on the host.
    """
    index = (choice * len(OPERATIONS)).long()
    low, high = torch.tensor([(o.low, o.high) for o in OPERATIONS], dtype=torch.float64)[index].T
    magnitude = low + (high - low) * fraction
    functions = [operation.function for operation in OPERATIONS]
    still = [function for function in functions if function not in MOTIONS]
    group = torch.tensor([still.index(f) if f in still else len(still) for f in functions])[index]
    kind = torch.tensor([MOTIONS.index(f) if f in MOTIONS else -1 for f in functions])[index]
    coefficients = motion_coefficients(kind, magnitude, *views.shape[2:])
    values = torch.column_stack((magnitude, coefficients))
    return apply_by_index(views, [*map(_of_magnitude, still), _of_coefficients], group, values)


def _of_magnitude(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x, values: function(x, values[:, 0])


def _of_coefficients(x: Tensor, values: Tensor) -> Tensor:
    return affine(x, values[:, 1:])


def apply_by_index(
    views: Tensor,
    functions: Sequence[Callable[[Tensor, Tensor], Tensor]],
    index: Tensor,
    values: Tensor,
) -> Tensor:
    """Apply to each image the function of its index, with its values; both are on the host.

    Images are sorted by function, each function runs once on its group, and the order is restored.
    """
    order = index.argsort()
    sizes = index.bincount(minlength=len(functions)).tolist()
    groups = views.index_select(0, send(order, views.device)).split(sizes)
    of_groups = send(values[order], views.device).split(sizes)
    done = [
        function(group, v)
        for function, group, v in zip(functions, groups, of_groups, strict=True)
        if len(group)
    ]
    return torch.cat(done).index_select(0, send(order.argsort(), views.device))
