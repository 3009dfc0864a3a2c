"""The views of SimSiam against Pillow and torchvision, one image at a time; equal bytes."""

import itertools

import pytest
import torch
from pictures import from_pil, tiles, to_pil
from PIL import Image, ImageFilter
from policies import CIFAR, DIGITS, LARGE, seeded, to_bytes
from torch import Tensor

from dac.augment import Policy
from dac.augment import operations as image_ops
from dac.augment import simsiam as simsiam_views
from dac.augment.geometry import crop_boxes
from dac.augment.simsiam import NUM_DRAWS, color_jitter, gaussian_blur, greyscale, hue, view
from dac.augment.views import uniform
from dac.models.torchvision_schemas import torchvision

F = torchvision.transforms.functional
BILINEAR = Image.Resampling.BILINEAR
OPERATIONS = {
    "brightness": (image_ops.brightness, F.adjust_brightness, (0.6, 1.4)),
    "contrast": (image_ops.contrast, F.adjust_contrast, (0.6, 1.4)),
    "saturation": (image_ops.color, F.adjust_saturation, (0.6, 1.4)),
    "hue": (hue, F.adjust_hue, (-0.1, 0.1)),
    "greyscale": (greyscale, lambda image, _: F.to_grayscale(image, 3), (0, 1)),
    "blur": (
        gaussian_blur,
        lambda image, sigma: image.filter(ImageFilter.GaussianBlur(sigma)),
        (0.1, 2.0),
    ),
}
every_operation = pytest.mark.parametrize("name", OPERATIONS)


def assert_equals_oracle(name: str, x: Tensor) -> None:
    function, oracle, (low, high) = OPERATIONS[name]
    magnitudes = torch.linspace(low, high, len(x), dtype=torch.float64)
    before = x.clone()
    found = function(x, magnitudes)
    pairs = zip(x, magnitudes.tolist(), strict=True)
    expected = from_pil([oracle(to_pil(image), v) for image, v in pairs])
    wrong = (found != expected).flatten(1).any(dim=1)
    assert not wrong.any(), f"magnitudes {magnitudes[wrong].tolist()}"
    assert found.dtype == torch.uint8 and torch.equal(x, before)


@every_operation
@pytest.mark.parametrize(("count", "side"), [(300, 32), (6, 224), (1, 16)])
def test_operation_equals_its_oracle_on_pictures(name: str, count: int, side: int) -> None:
    assert_equals_oracle(name, tiles(5, 224)[:1, :, :16, :16] if count == 1 else tiles(count, side))


@every_operation
@pytest.mark.parametrize("shape", [(21, 13), (3, 40), (1, 2)])
def test_operation_equals_its_oracle_on_noise_of_any_shape(
    name: str, shape: tuple[int, int]
) -> None:
    x = torch.randint(256, (60, 3, *shape), generator=seeded(1)).to(torch.uint8)
    x[:4] = torch.tensor((0, 1, 254, 255)).to(torch.uint8)[:, None, None, None]
    assert_equals_oracle(name, x)


def test_hue_equals_pillow_on_all_corners_and_edges_of_the_colour_cube() -> None:
    """Where two channels are equal, the largest or the smallest: the borders of the sextants."""
    levels = (0, 1, 2, 84, 85, 86, 127, 128, 169, 170, 171, 253, 254, 255)
    colours = torch.tensor(list(itertools.product(levels, repeat=3)), dtype=torch.uint8)
    x = colours.T.reshape(1, 3, 14, 196).expand(53, -1, -1, -1)
    turns = torch.arange(-26, 27).double() / 255
    expected = [F.adjust_hue(to_pil(x[0]), turn) for turn in turns.tolist()]
    assert torch.equal(hue(x, turns), from_pil(expected))


def jittered_by_hand(picture: Image.Image, draws: list[float]) -> Image.Image:
    is_jittered, *keys_and_magnitudes = draws
    if is_jittered >= 0.8:
        return picture
    keys, fractions = keys_and_magnitudes[:4], keys_and_magnitudes[4:]
    for place in sorted(range(4), key=lambda place: keys[place]):
        name = ("brightness", "contrast", "saturation", "hue")[place]
        _, oracle, (low, high) = OPERATIONS[name]
        picture = oracle(picture, low + (high - low) * fractions[place])
    return picture


def test_colour_jitter_orders_its_operations_for_each_image() -> None:
    x, draws = tiles(300, 32), uniform(300, 9, seeded(2))
    expected = [
        jittered_by_hand(to_pil(image), row) for image, row in zip(x, draws.tolist(), strict=True)
    ]
    assert len({tuple(row.argsort().tolist()) for row in draws[:, 1:5]}) == 24, "all orders"
    assert torch.equal(color_jitter(x, draws), from_pil(expected))


def view_by_hand(image: Tensor, policy: Policy, smallest: float, draws: Tensor) -> Image.Image:
    """Pillow and torchvision in the order of the official code: the flip comes last."""
    top, left, height, width = crop_boxes(draws[None, :22], *image.shape[1:], (smallest, 1.0))[
        0
    ].tolist()
    picture = to_pil(image).crop((left, top, left + width, top + height))
    picture = picture.resize((policy.size, height), BILINEAR).resize(2 * [policy.size], BILINEAR)
    values = draws.tolist()
    picture = jittered_by_hand(picture, values[23:32])
    if values[32] < 0.2:
        picture = F.to_grayscale(picture, 3)
    if values[33] < 0.5:
        picture = picture.filter(ImageFilter.GaussianBlur(0.1 + 1.9 * values[34]))
    return F.hflip(picture) if policy.flip and values[22] < 0.5 else picture


@pytest.mark.parametrize(
    ("policy", "side", "count"), [(CIFAR, 32, 200), (DIGITS, 16, 200), (LARGE, 256, 8)]
)
def test_view_equals_the_official_composition_fed_the_same_draws(
    policy: Policy, side: int, count: int
) -> None:
    images, draws = tiles(count, side), uniform(count, NUM_DRAWS, seeded(3))
    expected = [
        view_by_hand(image, policy, 0.2, row) for image, row in zip(images, draws, strict=True)
    ]
    found = to_bytes(view(images, policy, 0.2, seeded(3)), policy)
    assert torch.equal(found, from_pil(expected))


def test_crops_are_no_smaller_than_asked_for() -> None:
    _, _, height, width = crop_boxes(uniform(5000, 22, seeded(4)), 256, 256, (0.5, 1.0)).unbind(1)
    area = height * width / 256**2
    assert 0.49 < area.min() < 0.51 and area.max() > 0.97


def test_two_views_of_the_same_images_differ_and_repeat_with_the_generator() -> None:
    images, generator = tiles(5, 32)[:1].repeat(32, 1, 1, 1), seeded(5)
    state = generator.get_state()
    first, second = (view(images, CIFAR, 0.2, generator) for _ in range(2))
    assert len(torch.cat((first, second)).flatten(1).unique(dim=0)) == 64
    generator.set_state(state)
    assert torch.equal(view(images, CIFAR, 0.2, generator), first)


def test_no_view_reads_a_value_back_from_the_device() -> None:
    """Tensors on the meta device have no values: reading one, as in `.item()`, is an error."""
    images = tiles(64, 32).to("meta")
    assert view(images, CIFAR, 0.2, seeded()).device.type == "meta"


def test_shares_of_the_operations_are_those_of_the_paper() -> None:
    found = simsiam_views.JITTER_SHARE, simsiam_views.GREY_SHARE, simsiam_views.BLUR_SHARE
    assert found == (0.8, 0.2, 0.5)
