"""The losses, each with its equation. Tensors in, tensors out; no state.

Unlabeled losses come back per sample, so that DAC's weight (Eq. 4) can wrap any of them.
"""

# B batch, U unlabeled batch, K heads, C known classes, D embedding, M bank

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LOG_FLOOR = 1e-12  # logs are clamped here: a saturated softmax makes exact zeros
GRAM_ELEMENTS = 1 << 21  # elements of the Gram matrix held at once: 8 MB
UNDERFLOW = 80  # exp(-80) and exp(80) are still normal float32
BANK_BLOCK = 1024  # bank rows worked on at once: U x 1024 affinities stay in a CPU's cache,
BLOCKS_FOR_A_GPU = 8  # and a GPU wants few launches
LOG2_E = math.log2(math.e)


def _wide(tensor: Tensor) -> Tensor:
    """At least float32: sums over classes and logarithms do not survive bf16."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """Products inside stay in float32: autocast would make them bf16, which has three digits."""
    kind = tensor.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """L_s, Eq. (2); several views of the batch may lie one after the other."""
    return F.cross_entropy(_wide(logits), labels.repeat(len(logits) // len(labels)))


def pseudo_label(weak: Tensor, strong: Tensor, *, tau: float, hard: bool = True) -> Tensor:
    """FixMatch's term for every sample, Eq. (3): U x C logits of both views -> U."""
    p = _wide(weak.detach()).softmax(dim=-1)
    return confident_cross_entropy(p, strong, tau=tau, hard=hard)


def confident_cross_entropy(p: Tensor, strong: Tensor, *, tau: float, hard: bool = False) -> Tensor:
    """1[max p >= tau] H(p, strong) for every sample, `hard` with a one-hot target: U x C -> U."""
    confidence, pseudo = p.max(dim=-1)
    target = pseudo if hard else p
    return (confidence >= tau) * F.cross_entropy(_wide(strong), target, reduction="none")


def head_supervised(logits: Tensor, labels: Tensor) -> Tensor:
    """L_s of every head, mean over heads: B x K x C logits."""
    rows, num_heads, _ = logits.shape
    labels = labels.repeat(rows // len(labels))[:, None].expand(rows, num_heads)
    return F.cross_entropy(_wide(logits).flatten(0, 1), labels.flatten())


def head_pseudo_label(weak: Tensor, strong: Tensor, *, tau: float) -> Tensor:
    """Self-training of every head on its own labels, mean over heads and samples: U x K x C."""
    return pseudo_label(weak.flatten(0, 1), strong.flatten(0, 1), tau=tau).mean()


def mutual_information(logits: Tensor) -> Tensor:
    """L_mi, Eq. (6): mutual information of two heads' predictions, mean over unordered pairs.

    logits: B x K x C. The joint of a pair is the batch mean of p_i p_j^T, against the product of
    the batch means (docs/protocol.md, "Mutual information"), in nats. One head has no pair: 0.
    """
    with full_precision(logits):
        value: Tensor = _MutualInformation.apply(_wide(logits))
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


def distillation(
    features: Tensor,
    targets: Tensor,
    bank_features: Tensor,
    bank_targets: Tensor,
    temperature: float,
) -> Tensor:
    """L_kd, Eqs. (11)-(12): cross entropy between q_b and the bank's targets seen from z_b.

    features: U x D, normalised strong-view embeddings; targets: U x (C+1), the open-set targets q;
    bank_features: M x D, normalised; bank_targets: M x (C+1). Gradient reaches `features` only.
    """
    with full_precision(features):
        value: Tensor = _Distillation.apply(
            _wide(features), _wide(targets.detach()), bank_features, bank_targets, temperature
        )
    return value


def _softmax_shift(scaled: Tensor, bank_features: Tensor, temperature: float) -> Tensor:
    """What to subtract before exp, U x 1. Between unit vectors |scaled| bounds every product, which
    saves a pass over the bank; at very low temperatures exp(-2 |scaled|) would underflow."""
    if 2 / temperature < UNDERFLOW:
        return scaled.norm(dim=1, keepdim=True)
    blocks = _blocks(bank_features)
    return torch.cat([(scaled @ z.T).amax(dim=1, keepdim=True) for z in blocks], dim=1).amax(
        dim=1, keepdim=True
    )


def _blocks(bank: Tensor) -> tuple[Tensor, ...]:
    return bank.split(BANK_BLOCK if bank.device.type == "cpu" else BLOCKS_FOR_A_GPU * BANK_BLOCK)


class _Distillation(torch.autograd.Function):
    """Attention over the bank in blocks, with the closed-form gradient.

    The affinities (U x M, 200 MB at the paper's size) are the only large thing kept; autograd's
    chain of softmax, product and logarithm would hold and rewrite several of them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        targets: Tensor,
        bank_features: Tensor,
        bank_targets: Tensor,
        temperature: float,
    ) -> Tensor:
        # e^x is written 2^(x log2 e): exp2 is three times faster than exp on a CPU.
        scaled = features * (LOG2_E / temperature)
        shift = _softmax_shift(scaled, bank_features, temperature)
        affinity, total = [], torch.zeros_like(shift)
        weighted = targets.new_zeros(targets.shape[1], len(targets))  # (C+1) x U
        for z, q in zip(_blocks(bank_features), _blocks(bank_targets), strict=True):
            block = torch.addmm(-shift, scaled, z.T).exp2_()  # Eq. (11), not yet normalised
            weighted.addmm_(q.T, block.T)  # this way round a fifth faster than block @ q
            total += block.sum(dim=1, keepdim=True)
            affinity.append(block)
        aggregated = weighted.T / total  # sum_i e_bi q_i
        clamped = aggregated.clamp_min(LOG_FLOOR)
        ctx.save_for_backward(targets, aggregated, total, bank_features, bank_targets, *affinity)
        ctx.temperature = temperature
        return -(targets * clamped.log()).sum(dim=1).mean()  # Eq. (12)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None, None]:
        targets, aggregated, total, bank_features, bank_targets, *affinity = ctx.saved_tensors
        U = len(targets)
        clamped = aggregated.clamp_min(LOG_FLOOR)
        to_aggregated = -targets / clamped * (aggregated >= LOG_FLOOR)
        constant = (to_aggregated * aggregated).sum(dim=1, keepdim=True)
        to_features = bank_features.new_zeros(U, bank_features.shape[1])
        for z, q, block in zip(
            _blocks(bank_features), _blocks(bank_targets), affinity, strict=True
        ):
            to_product = torch.addmm(-constant, to_aggregated, q.T).mul_(block)
            to_features.addmm_(to_product, z)
        scale = upstream[0] / (U * ctx.temperature)
        return to_features / total * scale, None, None, None, None
