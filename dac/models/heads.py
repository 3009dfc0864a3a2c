"""What stands on the pooled feature: the target head, the projection and the divergent heads."""

# B batch, K heads, C known classes, D embedding

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def target_head(feature_dim: int, num_known: int, *, xavier: bool) -> nn.Linear:
    """f_cls; how it starts goes with the backbone (docs/protocol.md, "Heads")."""
    head = nn.Linear(feature_dim, num_known)
    return _xavier(head) if xavier else head


def projection(feature_dim: int, dim: int) -> nn.Sequential:
    """h: two layers with PyTorch's default initialisation, as the release."""
    return nn.Sequential(
        nn.Linear(feature_dim, feature_dim), nn.ReLU(inplace=True), nn.Linear(feature_dim, dim)
    )


class Projections(nn.Module):
    """The mean of one or several projections, of length one: B x d -> B x D.

    Several, trained apart by their different starts, are EPASS (the release takes three).
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
        self.linear = _xavier(nn.Linear(dim, num_heads * num_known))

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.linear(z)
        return logits.unflatten(1, self.shape)


def _xavier(linear: nn.Linear) -> nn.Linear:
    nn.init.xavier_normal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
