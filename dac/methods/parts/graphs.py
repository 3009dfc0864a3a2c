"""Graphs over a batch: which samples should be close, and a loss that pulls them together.

CoMatch (Li et al. 2021, Sec. 3.3); UAGreg uses the same with its own rule for edges.
"""

# U unlabeled batch, C known classes, D embedding

from torch import Tensor

from dac.losses import full_precision


def pseudo_label_graph(p: Tensor, threshold: float, groups: Tensor | None = None) -> Tensor:
    """W_bj = p_b p_j where at least `threshold`, 1 on the diagonal, rows normalized to sum to one:
    U x C -> U x U. `groups` (U) cuts edges between samples of different groups (UAGreg)."""
    with full_precision(p):
        weights = p @ p.T
    weights.fill_diagonal_(1)
    weights = weights * (weights >= threshold)
    if groups is not None:
        weights = weights * (groups[:, None] == groups)
    return weights / weights.sum(dim=1, keepdim=True)


def graph_contrast(first: Tensor, second: Tensor, graph: Tensor, temperature: float) -> Tensor:
    """-sum_j W_bj log S_bj for every sample: U x D twice -> U.

    S_bj is the softmax over j of z_b z'_j / t; gradients reach both views.
    """
    with full_precision(first):
        similarity = (first @ second.T / temperature).log_softmax(dim=1)
    return -(graph * similarity).sum(dim=1)
