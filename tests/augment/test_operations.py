"""Every operation against Pillow, one image at a time; the bytes are equal, with no tolerance."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import from_pil, tiles, to_pil
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from torch import Tensor

from dac.augment import operations as image_ops
from dac.augment.operations import CUTOUT_FILL, OPERATIONS, Operation, cutout


def moved(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "auto_contrast": lambda image, v: ImageOps.autocontrast(image),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, v: ImageOps.equalize(image),
    "identity": lambda image, v: image,
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": lambda image, v: moved(image, 1, v, 0, 0, 1, 0),
    "shear_y": lambda image, v: moved(image, 1, 0, 0, v, 1, 0),
    "solarize": lambda image, v: ImageOps.solarize(image, v),
    "translate_x": lambda image, v: moved(image, 1, 0, v * image.size[0], 0, 1, 0),
    "translate_y": lambda image, v: moved(image, 1, 0, 0, 0, 1, v * image.size[1]),
}
RANGES = {
    **dict.fromkeys(("auto_contrast", "equalize", "identity"), (0, 1)),
    **dict.fromkeys(("brightness", "color", "contrast", "sharpness"), (0.05, 0.95)),
    **dict.fromkeys(("shear_x", "shear_y", "translate_x", "translate_y"), (-0.3, 0.3)),
    "posterize": (4, 8),
    "rotate": (-30, 30),
    "solarize": (0, 256),
}


def name_of(operation: Operation) -> str:
    return operation.function.__name__


def assert_equals_pillow(operation: Operation, x: Tensor, magnitudes: Tensor) -> None:
    oracle = PILLOW[name_of(operation)]
    before = x.clone()
    found = operation.function(x, magnitudes)
    pairs = zip(x, magnitudes.tolist(), strict=True)
    expected = from_pil([oracle(to_pil(image), v) for image, v in pairs])
    assert found.dtype == torch.uint8
    wrong = (found != expected).flatten(1).any(dim=1)
    assert not wrong.any(), f"magnitudes {magnitudes[wrong].tolist()}"
    assert torch.equal(x, before), "the input was changed in place"


def spread(operation: Operation, count: int) -> Tensor:
    """Both ends of the range, the middle (often a special case) and even steps between."""
    ends = torch.tensor((operation.low, (operation.low + operation.high) / 2, operation.high))
    steps = torch.linspace(operation.low, operation.high, count - 3, dtype=torch.float64)
    return torch.cat((ends.double(), steps))


every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)


def test_table_holds_the_fourteen_operations_with_the_ranges_of_the_release() -> None:
    assert {name_of(o): (o.low, o.high) for o in OPERATIONS} == RANGES
    assert len(OPERATIONS) == 14


@every_operation
def test_operation_equals_pillow_on_32_px_pictures(operation: Operation) -> None:
    assert_equals_pillow(operation, tiles(300, 32), spread(operation, 300))


@every_operation
def test_operation_equals_pillow_on_224_px_pictures(operation: Operation) -> None:
    assert_equals_pillow(operation, tiles(8, 224), spread(operation, 8))


@every_operation
def test_operation_equals_pillow_on_images_that_are_not_square(operation: Operation) -> None:
    x = tiles(40, 32)[:, :, :21, 3:]
    assert_equals_pillow(operation, x, spread(operation, 40))


@every_operation
def test_operation_equals_pillow_on_a_batch_of_one(operation: Operation) -> None:
    magnitude = torch.tensor([operation.low + 0.7 * (operation.high - operation.low)]).double()
    assert_equals_pillow(operation, tiles(5, 32)[2:3], magnitude)


@every_operation
def test_operation_equals_pillow_on_images_with_few_grey_levels(operation: Operation) -> None:
    """Constant images, two levels, one odd pixel: where histograms have a special case."""
    levels = torch.tensor((0, 1, 127, 128, 254, 255), dtype=torch.uint8)
    constant = levels[:, None, None, None].expand(-1, 3, 32, 32).clone()
    one_pixel = constant.clone()
    one_pixel[:, 1, 3, 4] = 90
    halves = constant.clone()
    halves[:, :, :, 16:] = levels.flip(0)[:, None, None, None]
    x = torch.cat((constant, one_pixel, halves))
    assert_equals_pillow(operation, x, spread(operation, len(x)))


@every_operation
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_operation_equals_pillow_on_noise_of_any_size(
    operation: Operation, data: st.DataObject
) -> None:
    height, width = data.draw(st.integers(3, 40)), data.draw(st.integers(3, 40))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    top = data.draw(st.integers(1, 256))
    x = torch.randint(top, (3, 3, height, width), generator=generator).to(torch.uint8)
    magnitude = st.floats(operation.low, operation.high)
    assert_equals_pillow(
        operation, x, torch.tensor(data.draw(st.tuples(*3 * [magnitude]))).double()
    )


@every_operation
def test_each_image_gets_its_own_magnitude(operation: Operation) -> None:
    x = tiles(6, 32)
    magnitudes = spread(operation, 6)
    alone = [operation.function(x[i : i + 1], magnitudes[i : i + 1]) for i in range(6)]
    assert torch.equal(operation.function(x, magnitudes), torch.cat(alone))


@pytest.mark.parametrize("level", [0, 77, 255])
@pytest.mark.parametrize("function", [image_ops.auto_contrast, image_ops.equalize])
def test_constant_image_is_kept(level: int, function: Callable[[Tensor], Tensor]) -> None:
    x = torch.full((2, 3, 32, 32), level, dtype=torch.uint8)
    assert torch.equal(function(x), x)


def test_posterize_cuts_the_number_of_bits_off() -> None:
    x = torch.full((4, 3, 2, 2), 255, dtype=torch.uint8)
    kept = image_ops.posterize(x, torch.tensor((4.0, 4.999, 7.999, 8.0)))
    assert kept[:, 0, 0, 0].tolist() == [0b11110000, 0b11110000, 0b11111110, 0b11111111]


def test_solarize_inverts_from_the_threshold_upwards() -> None:
    x = torch.tensor((99, 100, 101), dtype=torch.uint8).expand(4, 3, 1, 3)
    inverted = image_ops.solarize(x, torch.tensor((100.0, 100.5, 0.0, 256.0)))
    expected = [[99, 155, 154], [99, 100, 154], [156, 155, 154], [99, 100, 101]]
    assert inverted[:, 0, 0].tolist() == expected


def test_translate_moves_by_whole_pixels_and_fills_with_black() -> None:
    x = torch.arange(1, 11, dtype=torch.uint8).expand(2, 3, 1, 10)
    shifted = image_ops.translate_x(x, torch.tensor((0.2, -0.3)))
    assert shifted[:, 0, 0].tolist() == [
        [3, 4, 5, 6, 7, 8, 9, 10, 0, 0],
        [0, 0, 0, 1, 2, 3, 4, 5, 6, 7],
    ]


def plain_box(side: float, centre: float, length: int) -> range:
    """The rows or columns that the release's Cutout paints, in plain Python."""
    start = int(max(0, centre - side / 2))
    end = min(length, start + side)
    return range(start, min(int(end), length - 1) + 1)


def plain_cutout(image: Tensor, fraction: float, cx: float, cy: float) -> Tensor:
    painted = image.clone()
    height, width = image.shape[1:]
    for row in plain_box(fraction * width, cy, height):
        for column in plain_box(fraction * width, cx, width):
            painted[:, row, column] = torch.tensor(CUTOUT_FILL, dtype=torch.uint8)
    return painted


def pillow_cutout(image: Tensor, fraction: float, cx: float, cy: float) -> Tensor:
    picture, side = to_pil(image).copy(), fraction * image.shape[2]
    x0, y0 = int(max(0, cx - side / 2)), int(max(0, cy - side / 2))
    x1, y1 = min(picture.size[0], x0 + side), min(picture.size[1], y0 + side)
    ImageDraw.Draw(picture).rectangle((x0, y0, x1, y1), CUTOUT_FILL)
    return from_pil([picture])[0]


@pytest.mark.parametrize("oracle", [plain_cutout, pillow_cutout])
@pytest.mark.parametrize("shape", [(32, 32), (21, 29)])
def test_cutout_equals_its_oracles_at_edges_and_inside(
    oracle: Callable[[Tensor, float, float, float], Tensor], shape: tuple[int, int]
) -> None:
    height, width = shape
    fractions = (1e-9, 0.03, 0.25, 1 / 3, 0.4999999, 0.5)
    places = (0.0, 0.5, 0.1, 0.24, 0.97, 1 - 1e-12)
    grid = [(f, a * width, b * height) for f in fractions for a in places for b in places]
    x = tiles(len(grid), 32)[:, :, :height, :width]
    painted = cutout(x, *torch.tensor(grid, dtype=torch.float64).unbind(1))
    expected = torch.stack([oracle(image, *box) for image, box in zip(x, grid, strict=True)])
    assert torch.equal(painted, expected)


def test_cutout_near_the_top_left_is_moved_in_and_near_the_bottom_right_is_clipped() -> None:
    x = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    ends = torch.tensor((0.0, 31.9))
    painted = cutout(x, torch.tensor((0.5, 0.5)), ends, ends)[:, 0] == CUTOUT_FILL[0]
    assert painted.sum(dim=(1, 2)).tolist() == [17 * 17, 9 * 9]  # 0..16 with its end; 23..31


def test_cutout_with_side_zero_paints_nothing() -> None:
    x = tiles(3, 32)
    assert torch.equal(cutout(x, torch.zeros(3), torch.full((3,), 9.0), torch.full((3,), 9.0)), x)


def test_cutout_leaves_its_input_alone() -> None:
    x = tiles(3, 32)
    before = x.clone()
    cutout(x, torch.full((3,), 0.5), torch.full((3,), 9.0), torch.full((3,), 9.0))
    assert torch.equal(x, before)


@settings(max_examples=50, deadline=None)
@given(
    fraction=st.floats(1e-6, 0.5),
    cx=st.floats(0, 32, exclude_max=True),
    cy=st.floats(0, 32, exclude_max=True),
)
def test_cutout_always_paints_at_least_one_pixel(fraction: float, cx: float, cy: float) -> None:
    x = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    box = torch.tensor((fraction, cx, cy), dtype=torch.float64)[:, None]
    painted = cutout(x, *box.unbind(0))
    assert torch.equal(painted[0], plain_cutout(x[0], fraction, cx, cy))
    num_painted = int((painted[0, 0] == CUTOUT_FILL[0]).sum())
    assert 1 <= num_painted <= math.ceil(fraction * 32 + 1) ** 2
