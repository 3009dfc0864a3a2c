"""Modules on the pooled feature: target heads, projections, divergent and matching heads."""

# B batch, K heads, C known classes, D embedding

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def target_head(feature_dim: int, num_known: int, *, is_xavier: bool) -> nn.Linear:
    """f_cls; its initialization depends on the backbone (docs/protocol/training.md, "Heads")."""
    head = nn.Linear(feature_dim, num_known)
    return xavier(head) if is_xavier else head


def projection(feature_dim: int, dim: int) -> nn.Sequential:
    """h: two layers with PyTorch's default initialization, as in the release."""
    return nn.Sequential(
        nn.Linear(feature_dim, feature_dim), nn.ReLU(inplace=True), nn.Linear(feature_dim, dim)
    )


def leaky_projection(feature_dim: int, dim: int) -> nn.Sequential:
    """UAGreg's projection."""
    return nn.Sequential(
        nn.Linear(feature_dim, feature_dim),
        nn.LeakyReLU(0.1, inplace=True),
        nn.Linear(feature_dim, dim),
    )


def mlp_head(*widths: int, is_xavier: bool) -> nn.Sequential:
    """Linear layers of these widths, with ReLU between them (SSB)."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        layers += [xavier(linear) if is_xavier else linear, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


class MatchingHead(nn.Module):
    """Whether an image and a class belong together (OSP): B x d and B -> B logits."""

    def __init__(self, feature_dim: int, num_known: int, dim: int) -> None:
        super().__init__()
        self.label = nn.Linear(num_known, dim)  # of a one-hot label
        self.match = nn.Sequential(
            nn.Linear(feature_dim + dim, dim),
            nn.BatchNorm1d(dim),
            nn.ReLU(inplace=True),
            nn.Linear(dim, 1),
        )

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        label = self.label(F.one_hot(classes, self.label.in_features).to(features.dtype))
        logits: Tensor = self.match(torch.cat([features, label], dim=1))
        return logits.squeeze(1)


class Projections(nn.Module):
    """The mean of one or more projections, scaled to unit length: B x d -> B x D.

    Several projections, which differ by their initialization, are EPASS (three in the release).
    """

    def __init__(self, feature_dim: int, dim: int, count: int) -> None:
        super().__init__()
        self.each = nn.ModuleList(projection(feature_dim, dim) for _ in range(count))

    def forward(self, features: Tensor) -> Tensor:
        z = torch.stack([one(features) for one in self.each]).float().mean(dim=0)
        return F.normalize(z)


class DivergentHeads(nn.Module):
    """g_1 ... g_K as one linear layer: B x D -> B x K x C."""

    def __init__(self, dim: int, num_heads: int, num_known: int) -> None:
        super().__init__()
        self.shape = (num_heads, num_known)
        self.linear = xavier(nn.Linear(dim, num_heads * num_known))

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.linear(z)
        return logits.unflatten(1, self.shape)


def xavier(linear: nn.Linear) -> nn.Linear:
    """Initialize with Xavier's normal weights and zero bias."""
    nn.init.xavier_normal_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
