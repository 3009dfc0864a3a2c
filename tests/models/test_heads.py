"""Heads: sizes, independence of each other, initialisation, projections that are averaged."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dac.models.heads import DivergentHeads, Projections, projection, target_head


def size(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


@pytest.mark.parametrize(
    ("num_known", "d", "proj_dim", "extra"), [(50, 128, 128, 97_780), (20, 2048, 256, 4_776_392)]
)
def test_released_dac_adds_its_number_of_parameters(
    num_known: int, d: int, proj_dim: int, extra: int
) -> None:
    with torch.device("meta"):
        heads = DivergentHeads(proj_dim, 10, num_known)
        added = (nn.LayerNorm(d), projection(d, proj_dim), heads)
    assert size(added[0]) == 2 * d
    assert size(*added) == extra


def test_divergent_heads_are_separate_linear_layers() -> None:
    heads = DivergentHeads(dim=5, num_heads=3, num_known=4)
    nn.init.normal_(heads.linear.bias)
    z = torch.randn(7, 5)
    together = heads(z)
    assert together.shape == (7, 3, 4)
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        alone = F.linear(z, heads.linear.weight[rows], heads.linear.bias[rows])
        assert torch.allclose(together[:, i], alone, atol=1e-6)


def test_gradient_of_one_head_leaves_the_others_alone() -> None:
    heads = DivergentHeads(dim=5, num_heads=3, num_known=4)
    heads(torch.randn(7, 5))[:, 1].square().sum().backward()
    touched = heads.linear.weight.grad.view(3, 4, 5).abs().sum(dim=(1, 2))
    assert touched[1] > 0 and touched[0] == touched[2] == 0


def test_heads_are_xavier_normal_without_bias_and_the_projection_is_default() -> None:
    torch.manual_seed(0)
    for linear in (target_head(256, 50, is_xavier=True), DivergentHeads(256, 10, 20).linear):
        spread = math.sqrt(2 / (linear.in_features + linear.out_features))
        assert linear.weight.std().item() == pytest.approx(spread, rel=0.05)
        assert linear.weight.abs().max() > 2 * spread
        assert torch.equal(linear.bias, torch.zeros_like(linear.bias))
    first, activation, last = projection(64, 32)
    assert isinstance(activation, nn.ReLU)
    assert (first.out_features, last.out_features) == (64, 32)
    for linear in (first, last):
        assert linear.weight.abs().max() <= 1 / math.sqrt(64) and linear.bias.abs().max() > 0


def test_several_projections_are_averaged_before_they_get_length_one() -> None:
    torch.manual_seed(0)
    projections, features = Projections(8, 5, 3), torch.randn(20, 8)
    each = torch.stack([one(features) for one in projections.each])
    z = projections(features)
    assert torch.allclose(z.norm(dim=1), torch.ones(20))
    assert torch.allclose(z, F.normalize(each.sum(dim=0)), atol=1e-6)
    late = F.normalize(F.normalize(each, dim=2).mean(dim=0))
    assert not torch.allclose(z, late, atol=1e-3)
    assert not torch.allclose(each[0], each[1])  # they start apart
