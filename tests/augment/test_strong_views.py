"""RandAugment rounds and Cutout of the strong view: which operation, how strong, which image."""

import dataclasses
import inspect
import math

import pytest
import torch
from pictures import tiles
from policies import CIFAR, numpy_crop, seeded, to_bytes
from torch import Tensor

from dac.augment import Policy, strong
from dac.augment.operations import CUTOUT_FILL, OPERATIONS, Operation, cutout
from dac.augment.views import uniform


def strong_by_hand(images: Tensor, policy: Policy, draws: Tensor) -> Tensor:
    """The strong view one image at a time, from the documented order of the draws."""
    views = []
    for image, row in zip(images, draws, strict=True):
        view = numpy_crop(image, policy, row[:3])[None]
        for choice, fraction in row[3:-3].reshape(-1, 2):
            operation = OPERATIONS[math.floor(choice * 14)]
            magnitude = operation.low + (operation.high - operation.low) * fraction
            view = operation.function(view, magnitude[None])
        views.append(cutout(view, *(row[-3:] * torch.tensor((0.5, 32, 32)))[:, None]))
    return torch.cat(views)


@pytest.mark.parametrize("num_ops", [0, 1, 3])
def test_strong_view_follows_the_documented_draws(num_ops: int) -> None:
    policy = dataclasses.replace(CIFAR, num_ops=num_ops)
    images = tiles(200, 32)
    draws = uniform(200, 3 + 2 * num_ops + 3, seeded(4))
    found = to_bytes(strong(images, policy, seeded(4)), policy)
    assert torch.equal(found, strong_by_hand(images, policy, draws))


Recorded = tuple[Tensor, dict[int, list[float]]]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """Which operation each of 7000 images got in each round (7000 x 3), and all magnitudes.

    Each image carries its number in its pixels; the stand-ins for the operations change nothing.
    """
    seen: list[tuple[int, int]] = []
    magnitudes: dict[int, list[float]] = {index: [] for index in range(14)}

    def stand_in(index: int) -> Operation:
        def record(x: Tensor, v: Tensor) -> Tensor:
            numbers = x[:, 0, 0, 0].int() * 256 + x[:, 1, 0, 0].int()
            seen.extend((number, index) for number in numbers.tolist())
            magnitudes[index].extend(v.tolist())
            return x

        return Operation(record, OPERATIONS[index].low, OPERATIONS[index].high)

    stand_ins = tuple(stand_in(index) for index in range(14))
    number = torch.arange(7000)
    images = torch.stack((number // 256, number % 256, number * 0), dim=1).to(torch.uint8)
    still = dataclasses.replace(CIFAR, pad=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dac.augment.views.OPERATIONS", stand_ins)
        strong(images[:, :, None, None].expand(-1, -1, 32, 32), still, seeded(5))
    by_image: list[list[int]] = [[] for _ in number]
    for image, index in seen:
        by_image[image].append(index)
    return torch.tensor(by_image), magnitudes  # fails unless every image has as many rounds


def test_each_image_gets_three_operations_uniform_over_fourteen(recorded: Recorded) -> None:
    chosen, _ = recorded
    assert chosen.shape == (7000, 3)
    for rounds in chosen.T:
        counts = rounds.bincount(minlength=14)
        assert ((counts >= 390) & (counts <= 610)).all(), counts  # 500 +- 5 deviations


def test_operations_are_drawn_with_replacement(recorded: Recorded) -> None:
    chosen, _ = recorded
    same = (chosen[:, 0] == chosen[:, 1]).double().mean()
    assert abs(same - 1 / 14) < 0.016  # 5 deviations; 0 without replacement
    thrice = (chosen == chosen[:, :1]).all(dim=1).sum()
    assert 10 <= thrice <= 66  # 7000 / 196 = 36


def test_magnitudes_are_continuous_and_fill_their_range(recorded: Recorded) -> None:
    _, magnitudes = recorded
    for operation, values in zip(OPERATIONS, magnitudes.values(), strict=True):
        v = (torch.tensor(values, dtype=torch.float64) - operation.low) / (
            operation.high - operation.low
        )
        assert len(v.unique()) == len(v)
        assert v.min() >= 0 and v.max() < 1
        tenths = (v * 10).long().bincount(minlength=10) / len(v)
        assert ((tenths > 0.06) & (tenths < 0.14)).all(), tenths


def test_there_is_no_nominal_magnitude() -> None:
    """The release accepts one and ignores it; here nothing can be mistaken for it."""
    assert list(inspect.signature(strong).parameters) == ["images", "policy", "generator"]
    fields = {field.name for field in dataclasses.fields(Policy)}
    expected = {"size", "pad", "flip", "random_resized_crop", "mean", "std", "num_ops"}
    assert fields == expected


def test_every_strong_view_has_a_cutout() -> None:
    images = torch.full((500, 3, 32, 32), 7, dtype=torch.uint8)
    views = to_bytes(strong(images, dataclasses.replace(CIFAR, num_ops=0), seeded(6)), CIFAR)
    fill = torch.tensor(CUTOUT_FILL, dtype=torch.uint8)[:, None, None]
    covered = (views == fill).all(dim=1).sum(dim=(1, 2))
    assert covered.min() >= 1
    assert covered.max() <= 17 * 17
    assert (covered > 8 * 8).double().mean() > 0.3
