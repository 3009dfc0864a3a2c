"""The views of SimSiam (Chen & He 2021, Appendix A), in batches on the device.

Random-resized crop, color jitter, grayscale, Gaussian blur, flip, as `facebookresearch/simsiam:
main_simsiam.py` composes them, with separate draws for each image. As in `operations.py`, every
operation gives the bytes of Pillow, which that code uses. The flip, last in its list, is done with
the crop: everything in between treats left and right alike.
"""

# B batch, H height, W width; x is B x 3 x H x W uint8, magnitudes are (B,) on the device of x
#
# Draws are one B x n block of uniform numbers from a CPU generator, one row per image, in order:
#   23 for the resized crop and flip (geometry.py)
#   whether to jitter, 4 numbers whose ranks order the operations, 4 magnitudes
#   whether to turn gray, whether to blur, sigma

import torch
from torch import Tensor

from dac.augment import Policy
from dac.augment.geometry import NUM_RESIZED_CROP_DRAWS, resized_crop_and_flip
from dac.augment.operations import brightness, color, contrast, identity, luma, per_image
from dac.augment.views import apply_by_index, normalize, uniform
from dac.io.device import send

JITTER_SHARE, GREY_SHARE, BLUR_SHARE = 0.8, 0.2, 0.5  # of the views
SIGMA_RANGE = (0.1, 2.0)  # of the blur, in pixels
NUM_JITTER_DRAWS = 9
NUM_DRAWS = NUM_RESIZED_CROP_DRAWS + NUM_JITTER_DRAWS + 3
NUM_BOXES = 3  # Pillow's Gaussian is three box filters
ONE = 1 << 24  # Pillow's box filter counts in 1/2^24


def view(
    images: Tensor, policy: Policy, smallest_area: float, generator: torch.Generator
) -> Tensor:
    """Return one view of each image, B x 3 x S x S float32; callers ask twice for a pair."""
    draws = uniform(len(images), NUM_DRAWS, generator)
    geometry, jitter, rest = draws.split((NUM_RESIZED_CROP_DRAWS, NUM_JITTER_DRAWS, 3), dim=1)
    is_grey, is_blurred = rest[:, 0] < GREY_SHARE, rest[:, 1] < BLUR_SHARE
    sigma = SIGMA_RANGE[0] + (SIGMA_RANGE[1] - SIGMA_RANGE[0]) * rest[:, 2]
    x = resized_crop_and_flip(images, policy, geometry, (smallest_area, 1.0))
    x = color_jitter(x, jitter)
    x = apply_by_index(x, (identity, greyscale), is_grey.long(), sigma)
    x = apply_by_index(x, (identity, gaussian_blur), is_blurred.long(), sigma)
    return normalize(x, policy)


def color_jitter(x: Tensor, draws: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue, each image in an order of its own."""
    functions = (brightness, contrast, color, hue, identity)
    low, high = torch.tensor(((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1))).double().T
    magnitude = low + (high - low) * draws[:, 5:]  # B x 4
    is_jittered, order = draws[:, 0] < JITTER_SHARE, draws[:, 1:5].argsort(dim=1)
    for turn in order.unbind(1):
        index = torch.where(is_jittered, turn, functions.index(identity))
        x = apply_by_index(x, functions, index, magnitude.gather(1, turn[:, None])[:, 0])
    return x


def greyscale(x: Tensor, _: Tensor | None = None) -> Tensor:
    return luma(x.float()).to(torch.uint8).expand_as(x)


def hue(x: Tensor, turn: Tensor) -> Tensor:
    """Rotate the color wheel by a share of a full turn, in Pillow's 8-bit HSV."""
    h, s, v = to_hsv(x)
    steps = (turn.double() * 255).trunc()[:, None, None]
    return from_hsv((h + steps).remainder(256), s, v)


def to_hsv(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return hue, saturation and value as whole numbers 0..255 in float64, each B x H x W.

    Mixes float32 and float64 where Pillow's C code does.
    """
    red, green, blue = x.float().unbind(1)
    value, low = x.amax(dim=1).float(), x.amin(dim=1).float()
    chroma = value - low
    r, g, b = ((value - channel) / chroma.clamp(min=1) for channel in (red, green, blue))
    towards_green, towards_blue = (2 + r.double() - b).float(), (4 + g.double() - r).float()
    sextant = torch.where(green == value, towards_green, towards_blue)
    sextant = torch.where(red == value, b - g, sextant)
    h = (sextant.double() / 6 + 1).fmod(1).float()
    s = chroma / value.clamp(min=1)
    return (h.double() * 255).floor(), (s.double() * 255).floor(), value.double()


# Which of v, p, q, t is red, green and blue in each sextant of the color wheel.
SEXTANTS = ((0, 3, 1), (2, 0, 1), (1, 0, 3), (1, 2, 0), (3, 1, 0), (0, 1, 2))


def from_hsv(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    sextant = (6 * h.int()).div(255, rounding_mode="floor")  # 0..6; whole numbers, hence exact
    f, fs = (h * 6 / 255 - sextant).float(), (s / 255).float()
    p, q, t = (v * (1 - part) for part in (fs.double(), (fs * f).double(), fs * (1 - f.double())))
    levels = torch.stack((v, p, q, t), dim=1).add_(0.5).floor_().to(torch.uint8)  # B x 4 x H x W
    table = send(torch.tensor(SEXTANTS), h.device)
    return levels.gather(1, table[sextant.long() % 6].permute(0, 3, 1, 2))


def gaussian_blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Pillow's GaussianBlur for sigma below 2.4: three box filters along rows, then columns."""
    at, beside, beyond = (per_image(w) for w in box_weights(sigma))
    # Levels are centered at 0, so that 255 x 2^24 fits in 32 bits; weights that sum to less than
    # one need the share of the 128 that they lose.
    offset = ONE // 2 - 128 * (ONE - at - 2 * beside - 2 * beyond)
    levels = x.int() - 128
    for dim in (3, 2):
        length = x.shape[dim]
        position = torch.arange(-2, length + 2, device=x.device).clamp(0, length - 1)
        for _ in range(NUM_BOXES):
            framed = levels.index_select(dim, position)
            a, b, c, d, e = (framed.narrow(dim, start, length) for start in range(5))
            levels = (offset + at * c + beside * (b + d) + beyond * (a + e)) >> 24
    return (levels + 128).to(torch.uint8)


def box_weights(sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Fixed-point weights of the pixels at distance 0, 1 and 2, each (B,) int32.

    The box of the same variance has a whole and a fractional radius (Gwosdek et al. 2011, Eqs. 7,
    11, 14); float32 and float64 as in Pillow's C code.
    """
    variance = sigma.float() ** 2 / NUM_BOXES
    whole = (((12 * variance.double() + 1).sqrt().float().double() - 1) / 2).floor().float()
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance)
    radius = whole + part / (6 * (variance - (whole + 1) * (whole + 1)))
    reach = radius.int()  # 0 or 1
    inside = (ONE / (radius * 2 + 1)).int()
    edge = (ONE - (2 * reach + 1) * inside).div(2, rounding_mode="floor")
    beside = torch.where(reach > 0, inside, edge)
    return inside, beside, torch.where(reach > 0, edge, 0)
