"""Averaged weights: numbers by hand, swapping, what is averaged and what is not."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dac.models.ema import Ema


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def move(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_average_by_hand() -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 1.0)
    ema = Ema(module, decay=0.9)
    for value, expected in [(2.0, 1.1), (2.0, 1.19), (0.0, 1.071)]:  # starts at the first weights
        nn.init.constant_(module.weight, value)
        ema.update()
        assert ema.average["weight"].item() == pytest.approx(expected)


@given(st.floats(0, 0.999), st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_average_equals_the_weighted_sum_of_all_past_weights(
    decay: float, path: list[float]
) -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 0.5)
    ema = Ema(module, decay)
    for value in path:
        nn.init.constant_(module.weight, value)
        ema.update()
    n = len(path)
    expected = decay**n * 0.5 + sum(
        (1 - decay) * decay ** (n - 1 - i) * value for i, value in enumerate(path)
    )
    assert ema.average["weight"].item() == pytest.approx(expected, abs=1e-4)


def test_decay_of_zero_follows_the_live_weights() -> None:
    module = small_network()
    ema = Ema(module, decay=0.0)
    move(module)
    ema.update()
    for name, parameter in module.named_parameters():
        assert torch.allclose(ema.average[name], parameter, atol=1e-6)


def test_swapping_shows_the_average_and_restores_the_live_weights_to_the_bit() -> None:
    module = small_network()
    ema = Ema(module, decay=0.9)
    move(module)
    ema.update()
    before, average = weights(module), {k: v.clone() for k, v in ema.average.items()}
    with ema.swapped_in():
        inside = dict(module.named_parameters())
        assert all(torch.equal(inside[name], average[name]) for name in average)
        assert not torch.equal(inside["0.weight"], before["0.weight"])
    assert same(weights(module), before)
    assert same(ema.average, average)


def test_live_weights_come_back_when_the_block_raises() -> None:
    module = small_network()
    ema = Ema(module, decay=0.5)
    move(module)
    before = weights(module)
    with pytest.raises(ZeroDivisionError), ema.swapped_in():
        _ = 1 / 0
    assert same(weights(module), before)


def test_optimizer_goes_on_with_the_live_weights_after_a_swap() -> None:
    swapped, untouched = small_network(), small_network()
    x = torch.randn(5, 3)
    for module in (swapped, untouched):
        ema = Ema(module, decay=0.9)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()
            ema.update()
            if module is swapped:
                with ema.swapped_in():
                    module.eval()(x)
                    module.train()
    assert same(weights(swapped), weights(untouched))


def test_buffers_are_not_averaged_and_evaluation_reads_the_current_ones() -> None:
    module = small_network()
    ema = Ema(module, decay=0.9)
    assert set(ema.average) == {name for name, _ in module.named_parameters()}
    for _ in range(3):
        module(torch.randn(8, 3) + 5)
        move(module)
        ema.update()
    statistics = module[1].running_mean.clone()
    assert statistics.abs().sum() > 0
    x = torch.randn(4, 3)
    with ema.swapped_in():
        found = module.eval()(x)
        assert torch.equal(module[1].running_mean, statistics)
    fresh = small_network()
    fresh.load_state_dict(module.state_dict() | ema.state_dict())
    assert torch.equal(found, fresh.eval()(x))


def test_frozen_parameters_are_left_out() -> None:
    module = small_network()
    module[0].weight.requires_grad_(False)
    assert "0.weight" not in Ema(module, decay=0.9).average


def test_average_does_not_share_memory_with_the_live_weights() -> None:
    module = small_network()
    ema = Ema(module, decay=0.9)
    before = ema.average["0.weight"].clone()
    move(module)
    assert torch.equal(ema.average["0.weight"], before)


def test_state_dict_restores_the_average() -> None:
    module = small_network()
    ema, other = Ema(module, decay=0.9), Ema(module, decay=0.9)
    move(module)
    ema.update()
    other.load_state_dict({name: t.clone() for name, t in ema.state_dict().items()})
    move(module)
    for each in (ema, other):
        each.update()
    assert same(ema.average, other.average)


def test_weights_of_another_network_are_refused() -> None:
    ema = Ema(small_network(), decay=0.9)
    with pytest.raises(KeyError, match=r"2\.bias"):
        ema.load_state_dict({k: v for k, v in ema.state_dict().items() if k != "2.bias"})
