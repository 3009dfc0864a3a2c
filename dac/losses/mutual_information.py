"""Mutual information of the heads, L_mi, Eq. (6): the textbook form, then a fast one."""

# B batch, K heads, C known classes

from typing import Any

import torch
from torch import Tensor

from dac.losses.precision import LOG_FLOOR, full_precision, wide

GRAM_ELEMENTS = 1 << 21  # elements of the Gram matrix held at once: 8 MB


def textbook_mutual_information(logits: Tensor) -> Tensor:
    """Eq. (6) as written: I = sum J log(J / m_i m_j), mean over the pairs i < j of heads.

    logits: B x K x C. The joint J of a pair is the batch mean of p_i p_j^T, m are batch means of p.
    Needs a B x K x K x C x C tensor: 101 GB for ten heads on Semi-iNat. One head has no pair: 0.
    """
    p = logits.softmax(dim=2)
    joint = (p[:, :, None, :, None] * p[:, None, :, None, :]).mean(dim=0)  # K x K x C x C
    mean = p.mean(dim=0)  # K x C
    independent = mean[:, None, :, None] * mean[None, :, None, :]
    ratio = joint.clamp_min(LOG_FLOOR).log() - independent.clamp_min(LOG_FLOOR).log()
    pairs = (joint * ratio).sum(dim=(2, 3))  # K x K
    first, second = torch.triu_indices(len(pairs), len(pairs), offset=1, device=pairs.device)
    return pairs[first, second].sum() / max(len(first), 1)


def mutual_information(logits: Tensor) -> Tensor:
    """The same value and gradient, in nats, without the large tensor.

    docs/protocol/dac.md, "Mutual information", lists the choices behind Eq. (6).
    """
    with full_precision(logits):
        value: Tensor = _MutualInformation.apply(wide(logits))
    return value


class _MutualInformation(torch.autograd.Function):
    """Value and closed-form gradient together, from blocks of the Gram matrix P^T P / B.

    With J the joint of heads i and j and m the marginals,
    dMI/dP_i = P_j (log J - log m_i m_j)^T / B up to a constant per row, which the softmax
    removes. Nothing of size (K C)^2 is stored.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        B, num_heads, C = logits.shape
        p = logits.softmax(dim=2)
        flat = p.reshape(B, num_heads * C)
        log_mean = flat.mean(dim=0).clamp_min(LOG_FLOOR).log()
        total = logits.new_zeros(())
        gradient = torch.zeros_like(flat)
        heads_per_block = max(1, GRAM_ELEMENTS // (C * num_heads * C))
        for first in range(0, num_heads, heads_per_block):  # blocks of heads, usually one
            rows = slice(first * C, min(first + heads_per_block, num_heads) * C)
            rest = slice(first * C, num_heads * C)  # pairs with earlier heads are done
            joint = (flat[:, rows].T @ flat[:, rest]).div_(B)
            ratio = joint.clamp_min(LOG_FLOOR).log_()
            ratio.sub_(log_mean[rows, None]).sub_(log_mean[rest])
            _keep_upper_pairs(ratio, C)
            total += torch.dot(joint.view(-1), ratio.view(-1))
            gradient[:, rows] += flat[:, rest] @ ratio.T
            gradient[:, rest] += flat[:, rows] @ ratio
        pairs = max(1, num_heads * (num_heads - 1) // 2)
        gradient = gradient.view(B, num_heads, C).div_(B * pairs)
        gradient.sub_((gradient * p).sum(dim=2, keepdim=True)).mul_(p)  # through the softmax
        ctx.save_for_backward(gradient)
        return total / pairs

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        (gradient,) = ctx.saved_tensors
        return upstream[0] * gradient


def _keep_upper_pairs(ratio: Tensor, C: int) -> None:
    """Zero the blocks of pairs (i, j) with j <= i, in place."""
    rows, columns = ratio.shape[0] // C, ratio.shape[1] // C
    upper = torch.ones(rows, columns, device=ratio.device).triu_(diagonal=1)
    ratio.view(rows, C, columns, C).mul_(upper[:, None, :, None])
