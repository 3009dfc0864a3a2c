"""The 14 RandAugment operations and Cutout, on batches, each image with its own magnitude.

RandAugment (Cubuk et al., 2020) with the ranges of the DAC release and USB. Every operation gives
the bytes that Pillow gives one image at a time: the fixed-point arithmetic of its affine transform
and the truncations of its blend are reproduced here, so that tests need no tolerance.
Nothing here reads a value back from the device, so nothing waits for a GPU.
"""

# B batch, H height, W width; x is B x 3 x H x W uint8, magnitudes are (B,) on the device of x

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from dac.io.device import send

CUTOUT_FILL = (125, 123, 114)  # RGB
FIXED_POINT = 65536  # Pillow's affine transform counts in 1/65536 of a pixel


def per_image(v: Tensor) -> Tensor:
    return v[:, None, None, None]


def look_up(x: Tensor, table: Tensor) -> Tensor:
    """Replace each gray level by its entry in the image's own table (B x 3 x 256)."""
    return table.gather(2, x.flatten(2).long()).view_as(x)


def blend(degenerate: Tensor | int, pixels: Tensor, factor: Tensor) -> Tensor:
    """`degenerate + factor * (pixels - degenerate)` of float32 pixels, truncated as in Pillow."""
    mixed = (pixels - degenerate).mul_(per_image(factor).float()).add_(degenerate)
    # Through int16, five times faster on a CPU; only factors above 1 leave 0..255.
    return mixed.short().clamp_(0, 255).to(torch.uint8)


def luma(pixels: Tensor) -> Tensor:
    """Gray level with Pillow's 16-bit ITU-R 601 weights; exact, as sums stay below 2^24."""
    red, green, blue = pixels.split(1, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000).div_(65536).floor_()


def identity(x: Tensor, _: Tensor | None = None) -> Tensor:
    return x


def auto_contrast(x: Tensor, _: Tensor | None = None) -> Tensor:
    """Stretch each channel to 0..255; a channel with a single gray level stays as it is."""
    low = x.amin(dim=(2, 3)).double()[..., None]
    high = x.amax(dim=(2, 3)).double()[..., None]
    levels = torch.arange(256, device=x.device)
    # A true division: `255 / tensor` multiplies by the reciprocal and can be off by one level.
    scale = torch.full_like(low, 255) / (high - low)
    stretched = (levels * scale - low * scale).clamp(0, 255)
    return look_up(x, torch.where(high > low, stretched, levels).to(torch.uint8))


def equalize(x: Tensor, _: Tensor | None = None) -> Tensor:
    """Flatten the histogram of each channel; Pillow leaves the brightest level out of the step."""
    pixels = x.flatten(2).long()  # B x 3 x HW
    counts = torch.zeros(*pixels.shape[:2], 256, dtype=torch.int64, device=x.device)
    counts.scatter_add_(2, pixels, torch.ones_like(pixels))
    of_brightest = counts.gather(2, pixels.amax(dim=2, keepdim=True))
    step = (pixels.shape[2] - of_brightest) // 255
    darker = counts.cumsum(dim=2) - counts
    # Below 2^24 pixels, the integer part of a float32 quotient is exact; integer division is slow.
    table = (step // 2 + darker).float().div_(step.clamp(min=1)).clamp_(max=255)
    levels = torch.arange(256, device=x.device)
    table = torch.where(step > 0, table, levels).to(torch.uint8)
    return table.gather(2, pixels).view_as(x)


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    return blend(0, x.float(), factor)


def color(x: Tensor, factor: Tensor) -> Tensor:
    pixels = x.float()
    return blend(luma(pixels), pixels, factor)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean gray, rounded to a whole level."""
    pixels = x.float()
    num_pixels = x.shape[2] * x.shape[3]
    total = luma(pixels).sum(dim=(1, 2, 3), dtype=torch.float64).long()  # B
    mean = (2 * total + num_pixels) // (2 * num_pixels)  # integers: ties round the same everywhere
    return blend(per_image(mean.float()), pixels, factor)


def sharpness(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with the 3x3 smoothing [1 1 1; 1 5 1; 1 1 1] / 13, which keeps the border pixels."""
    pixels = x.float()
    rows = pixels[:, :, :-2] + pixels[:, :, 1:-1] + pixels[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * pixels[:, :, 1:-1, 1:-1]
    smooth = pixels.clone()
    smooth[:, :, 1:-1, 1:-1] = total.div_(13).add_(0.5).floor_()  # thirteenths: never near a tie
    return blend(smooth, pixels, factor)


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest int(bits) bits."""
    dropped = 8 - bits.long().clamp(min=1)
    return x & per_image((255 << dropped) & 255).to(torch.uint8)


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels at or above the threshold."""
    inverted = x.short() >= per_image(threshold.ceil()).short()
    return x ^ (inverted.to(torch.uint8) * 255)


def rotate(x: Tensor, degrees: Tensor) -> Tensor:
    """Rotate counterclockwise about the center of the image."""
    return _move(x, rotate, degrees)


def shear_x(x: Tensor, slope: Tensor) -> Tensor:
    return _move(x, shear_x, slope)


def shear_y(x: Tensor, slope: Tensor) -> Tensor:
    return _move(x, shear_y, slope)


def translate_x(x: Tensor, fraction: Tensor) -> Tensor:
    """Shift left by a fraction of the width."""
    return _move(x, translate_x, fraction)


def translate_y(x: Tensor, fraction: Tensor) -> Tensor:
    """Shift up by a fraction of the height."""
    return _move(x, translate_y, fraction)


MOTIONS = (rotate, shear_x, shear_y, translate_x, translate_y)


def _move(x: Tensor, motion: Callable[[Tensor, Tensor], Tensor], magnitude: Tensor) -> Tensor:
    kinds = torch.full((len(x),), MOTIONS.index(motion))
    coefficients = motion_coefficients(kinds, magnitude.cpu(), x.shape[2], x.shape[3])
    return affine(x, send(coefficients, x.device))


def motion_coefficients(kind: Tensor, magnitude: Tensor, height: int, width: int) -> Tensor:
    """Pillow's fixed-point coefficients of each image's motion, B x 6 int32, on the host.

    `kind` is a position in MOTIONS, where a motion of magnitude 0 leaves the image as it is: all
    are one matrix from output to input, so that a GPU has one operation to start for the five.
    """
    degrees, slope_x, slope_y, shift_x, shift_y = torch.where(
        kind == torch.arange(len(MOTIONS))[:, None], magnitude.double(), 0.0
    )
    angle = degrees.deg2rad()
    cos, sin = angle.cos(), angle.sin()
    middle_x, middle_y = width / 2, height / 2
    b, d = slope_x - sin, slope_y + sin
    # Pillow rounds pure shifts in float64.
    c = middle_x - cos * middle_x + sin * middle_y + (shift_x * width + 0.5).floor()
    f = middle_y - sin * middle_x - cos * middle_y + (shift_y * height + 0.5).floor()
    # Sampled at pixel centers.
    centred = (cos, b, c + cos * 0.5 + b * 0.5, d, cos, f + d * 0.5 + cos * 0.5)
    return (torch.stack(centred, dim=1) * FIXED_POINT + 0.5).floor().int()


def affine(x: Tensor, fixed: Tensor) -> Tensor:
    """Nearest-neighbor affine map with black fill, by the coefficients of `motion_coefficients`."""
    height, width = x.shape[2:]
    a, b, c, d, e, f = fixed.int()[:, :, None, None].unbind(1)  # each B x 1 x 1
    column = torch.arange(width, dtype=torch.int32, device=x.device)
    row = torch.arange(height, dtype=torch.int32, device=x.device)[:, None]
    from_column = (a * column + (b * row + c)) >> 16  # B x H x W
    from_row = (d * column + (e * row + f)) >> 16
    # A black border of one pixel catches everything that comes from outside.
    framed = pad(x, (1, 1, 1, 1)).flatten(2)
    source = (from_row.clamp(-1, height) + 1) * (width + 2) + from_column.clamp(-1, width) + 1
    return framed.gather(2, source.flatten(1).long()[:, None].expand(-1, 3, -1)).view_as(x)


def cutout(x: Tensor, side_fraction: Tensor, cx: Tensor, cy: Tensor) -> Tensor:
    """Paint a gray square of side `side_fraction * W` centered on the pixel position (cx, cy).

    A square that would start left of or above the image is moved in, not clipped, and Pillow's
    rectangle includes its end pixel. A side of zero paints nothing.
    """
    side = side_fraction.double() * x.shape[3]

    def covered(centre: Tensor, length: int) -> Tensor:
        start = (centre.double() - side / 2).clamp(min=0).floor()
        end = (start + side).clamp(max=length).floor()
        position = torch.arange(length, device=x.device)
        return ((position >= start[:, None]) & (position <= end[:, None])).to(torch.uint8)

    rows, columns = covered(cy, x.shape[2]), covered(cx, x.shape[3])
    rows = rows * (side > 0)[:, None].to(torch.uint8)
    square = rows[:, :, None] * columns[:, None]  # B x H x W, one inside
    painted = x * (1 - square)[:, None]  # arithmetic on bytes is far faster than masks on a CPU
    for channel, level in enumerate(CUTOUT_FILL):
        painted[:, channel] += square * level
    return painted


@dataclass(frozen=True)
class Operation:
    """One entry of RandAugment; its magnitude is uniform between `low` and `high`."""

    function: Callable[[Tensor, Tensor], Tensor]
    low: float
    high: float


OPERATIONS = (
    Operation(auto_contrast, 0, 1),  # magnitude unused, as for equalize and identity
    Operation(brightness, 0.05, 0.95),  # factor: 1 is the original, 0 black
    Operation(color, 0.05, 0.95),  # factor: 0 is gray
    Operation(contrast, 0.05, 0.95),  # factor: 0 is the mean gray
    Operation(equalize, 0, 1),
    Operation(identity, 0, 1),
    Operation(posterize, 4, 8),  # bits kept, truncated to an integer: 4..7
    Operation(rotate, -30, 30),  # degrees
    Operation(sharpness, 0.05, 0.95),  # factor: 0 is smoothed
    Operation(shear_x, -0.3, 0.3),  # pixels per row
    Operation(shear_y, -0.3, 0.3),  # pixels per column
    Operation(solarize, 0, 256),  # lowest gray level to invert
    Operation(translate_x, -0.3, 0.3),  # fraction of the width
    Operation(translate_y, -0.3, 0.3),  # fraction of the height
)
