"""Frozen statistics: batches are normalised as ever, and batch norm remembers nothing of them."""

import copy

import pytest
import torch
from plain import is_same
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dac.io.seeds import seeded
from dac.models.small_cnn import SmallCNN
from dac.models.statistics import frozen_statistics


def used_network() -> SmallCNN:
    """In training mode, with running statistics that are no longer zeros and ones."""
    with seeded(torch.Generator().manual_seed(0)):
        network = SmallCNN().train()
    for seed in range(3):
        network(images(seed))
    return network


def images(seed: int, rows: int = 6) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(rows, 3, 8, 8, generator=draw) + 1


def memory(network: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in network.named_buffers()}


def flags(network: nn.Module) -> list[bool]:
    return [m.track_running_stats for m in network.modules() if isinstance(m, _BatchNorm)]


def test_frozen_forward_leaves_every_running_statistic_to_the_bit() -> None:
    network = used_network()
    before = memory(network)
    assert {name.rsplit(".")[-1] for name in before} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }
    with frozen_statistics(network):
        network(images(7))
        network(images(8))
    assert is_same(memory(network), before)


def test_frozen_forward_still_normalises_by_the_batch() -> None:
    network = used_network()
    thawed = copy.deepcopy(network)
    with frozen_statistics(network):
        found = network(images(7))
    assert torch.equal(found, thawed(images(7)))
    assert not torch.allclose(found, thawed.eval()(images(7)), atol=1e-2)  # not by the running ones


def test_frozen_forward_has_the_gradients_of_an_ordinary_one() -> None:
    network = used_network()
    thawed = copy.deepcopy(network)
    with frozen_statistics(network):
        network(images(7)).square().sum().backward()
    thawed(images(7)).square().sum().backward()
    for ours, theirs in zip(network.parameters(), thawed.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad) and ours.grad.any()


def test_statistics_move_again_after_the_block() -> None:
    network = used_network()
    plain = copy.deepcopy(network)
    with frozen_statistics(network):
        network(images(7))
    network(images(8))
    plain(images(8))
    assert is_same(memory(network), memory(plain))
    assert network.layers[1].num_batches_tracked == 4


def test_flags_are_restored_after_the_block_and_after_an_exception() -> None:
    network = used_network()
    network.layers[4].track_running_stats = False  # one that was off stays off
    before = flags(network)
    with frozen_statistics(network):
        assert flags(network) == [False, False, False]
    assert flags(network) == before == [True, False, True]
    with pytest.raises(RuntimeError, match="channels"), frozen_statistics(network):
        network(torch.zeros(2, 5, 8, 8))
    assert flags(network) == before


def test_when_false_nothing_is_frozen() -> None:
    network = used_network()
    plain = copy.deepcopy(network)
    with frozen_statistics(network, when=False):
        assert flags(network) == [True, True, True]
        found = network(images(7))
    assert torch.equal(found, plain(images(7)))
    assert is_same(memory(network), memory(plain))
    assert network.layers[1].num_batches_tracked == 4


def test_blocks_may_lie_inside_one_another() -> None:
    network = used_network()
    before = memory(network)
    with frozen_statistics(network):
        with frozen_statistics(network):
            network(images(7))
        network(images(8))
    assert is_same(memory(network), before) and flags(network) == [True, True, True]


def test_evaluation_mode_keeps_to_the_running_statistics() -> None:
    network = used_network().eval()
    expected = network(images(7))
    with frozen_statistics(network):
        assert torch.equal(network(images(7)), expected)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm3d, nn.SyncBatchNorm])
def test_batch_norm_of_every_kind_is_frozen(norm: type[_BatchNorm]) -> None:
    module = nn.Sequential(nn.Identity(), norm(3))
    with frozen_statistics(module):
        assert flags(module) == [False]
    assert flags(module) == [True]
