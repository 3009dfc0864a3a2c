"""Weak and evaluation views against numpy and Pillow, and what holds for every kind of view."""

import dataclasses
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import tiles
from policies import CIFAR, DIGITS, LARGE, numpy_crop, seeded, to_bytes
from torch import Tensor

from dac.augment import Policy, evaluation, strong, weak
from dac.augment.geometry import crop_and_flip
from dac.augment.views import uniform


def positions(height: int, width: int) -> Tensor:
    """An image that says in each pixel where it came from: red is the row, green the column."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack((rows, columns, rows * 0)).to(torch.uint8)


@pytest.mark.parametrize(
    ("policy", "side", "count"),
    [(CIFAR, 32, 300), (DIGITS, 16, 300), (dataclasses.replace(CIFAR, pad=0), 40, 60)],
    ids=["cifar", "digits", "larger images"],
)
def test_weak_view_equals_the_numpy_oracle_fed_the_same_draws(
    policy: Policy, side: int, count: int
) -> None:
    images = tiles(count, side)
    draws = uniform(count, 3, seeded(1))
    expected = [numpy_crop(image, policy, row) for image, row in zip(images, draws, strict=True)]
    found = to_bytes(weak(images, policy, seeded(1)), policy)
    assert torch.equal(found, torch.stack(expected))


def test_224_px_weak_view_is_a_plain_crop_of_the_256_px_image() -> None:
    images = tiles(6, 256)
    draws = uniform(6, 3, seeded(2))
    expected = [numpy_crop(image, LARGE, row) for image, row in zip(images, draws, strict=True)]
    assert torch.equal(to_bytes(weak(images, LARGE, seeded(2)), LARGE), torch.stack(expected))


@settings(max_examples=40, deadline=None)
@given(height=st.integers(5, 20), width=st.integers(5, 20), pad=st.integers(0, 4), data=st.data())
def test_reflected_crops_equal_numpy_for_any_shape(
    height: int, width: int, pad: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, min(height, width) + 2 * pad))
    policy = dataclasses.replace(CIFAR, size=size, pad=pad)
    draws = uniform(4, 3, seeded(data.draw(st.integers(0, 1000))))
    images = positions(height, width).expand(4, -1, -1, -1)
    expected = [numpy_crop(image, policy, row) for image, row in zip(images, draws, strict=True)]
    assert torch.equal(crop_and_flip(images, policy, draws), torch.stack(expected))


def crop_starts(policy: Policy, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and flip of many weak views, read off images that show their positions."""
    side = policy.size
    views = to_bytes(
        weak(positions(side, side).expand(count, -1, -1, -1), policy, seeded(3)), policy
    )
    inner = views[:, :, policy.pad :, policy.pad : side - policy.pad].int()
    mirrored = inner[:, 1, 0, -1] < inner[:, 1, 0, 0]
    middle = torch.where(mirrored, side - 1 - side // 2, side // 2)  # where column side//2 went
    top = views[:, 0, side // 2, 0].int() - side // 2
    left = views[torch.arange(count), 1, 0, middle].int() - side // 2
    return top, left, mirrored


def test_every_crop_offset_occurs_equally_often_and_half_of_the_views_are_mirrored() -> None:
    top, left, mirrored = crop_starts(CIFAR, 9000)
    for offset in (top, left):
        counts = Counter(offset.tolist())
        assert sorted(counts) == list(range(-4, 5))
        assert all(850 <= n <= 1150 for n in counts.values()), counts  # 1000 +- 5 deviations
    assert 4260 <= int(mirrored.sum()) <= 4740
    pairs = set(zip(top.tolist(), left.tolist(), strict=True))
    assert len(pairs) == 81, "rows and columns are drawn apart"


def test_digits_are_never_mirrored() -> None:
    top, _, mirrored = crop_starts(DIGITS, 2000)
    assert not mirrored.any()
    assert sorted(set(top.tolist())) == [-2, -1, 0, 1, 2]


def test_identical_images_get_different_views() -> None:
    images = tiles(5, 32)[2:3].repeat(64, 1, 1, 1)
    assert len(strong(images, CIFAR, seeded()).flatten(1).unique(dim=0)) == 64
    assert len(weak(images, CIFAR, seeded()).flatten(1).unique(dim=0)) > 40  # of 162 possible


@pytest.mark.parametrize(
    ("policy", "side", "count"), [(CIFAR, 32, 64), (DIGITS, 16, 64), (LARGE, 256, 6)]
)
@pytest.mark.parametrize("view", [weak, strong])
def test_same_generator_state_gives_the_same_views_and_the_next_draw_others(
    view: object, policy: Policy, side: int, count: int
) -> None:
    assert callable(view)
    images = tiles(count, side)
    generator = seeded(7)
    state = generator.get_state()
    first, second = view(images, policy, generator), view(images, policy, generator)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(view(images, policy, generator), first)


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize(("policy", "side"), [(CIFAR, 32), (DIGITS, 16), (LARGE, 256)])
def test_views_are_finite_float32_of_the_policy_size(policy: Policy, side: int, count: int) -> None:
    images = tiles(5, side)[:count]
    before = images.clone()
    views = (
        weak(images, policy, seeded()),
        strong(images, policy, seeded()),
        evaluation(images, policy),
    )
    for view in views:
        assert view.dtype == torch.float32
        assert view.shape == (count, 3, policy.size, policy.size)
        assert view.isfinite().all()
        assert view.is_contiguous()
    assert torch.equal(images, before), "the stored images were changed in place"


def test_evaluation_scales_then_normalises_each_channel() -> None:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    images[0, :, 0, 0] = torch.tensor((255, 51, 102))
    view = evaluation(images, CIFAR)[0]
    expected = ((1 - 0.485) / 0.229, (0.2 - 0.456) / 0.224, (0.4 - 0.406) / 0.225)
    assert view[:, 0, 0].tolist() == pytest.approx(expected, abs=1e-6)
    black = (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225)
    assert view[:, 5, 5].tolist() == pytest.approx(black, abs=1e-6)


def test_evaluation_of_larger_images_takes_the_centre() -> None:
    images = tiles(3, 256)
    found = to_bytes(evaluation(images, LARGE), LARGE)
    assert torch.equal(found, images[:, :, 16:240, 16:240])


def test_wrong_images_are_refused_with_the_value_found() -> None:
    with pytest.raises(ValueError, match=r"float32 \(2, 3, 32, 32\), expected uint8"):
        weak(torch.zeros(2, 3, 32, 32), CIFAR, seeded())
    with pytest.raises(ValueError, match="20 x 20 px with 4 reflected pixels"):
        weak(torch.zeros(2, 3, 20, 20, dtype=torch.uint8), CIFAR, seeded())
    with pytest.raises(ValueError, match="20 x 20 px with 0 reflected pixels"):
        evaluation(torch.zeros(2, 3, 20, 20, dtype=torch.uint8), CIFAR)


@pytest.mark.parametrize(("policy", "side"), [(CIFAR, 32), (LARGE, 256)])
def test_no_view_reads_a_value_back_from_the_device(policy: Policy, side: int) -> None:
    """Tensors on the meta device have no values: reading one, as in `.item()`, is an error."""
    images = tiles(8, side).repeat(8, 1, 1, 1).to("meta")
    for view in (weak(images, policy, seeded()), strong(images, policy, seeded())):
        assert view.shape == (64, 3, policy.size, policy.size)
        assert view.device.type == "meta"
