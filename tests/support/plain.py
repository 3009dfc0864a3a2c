"""Pieces of the methods in plain NumPy and loops, to compare the package with."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]


def softmax(logits: Array) -> Array:
    """Over the last axis."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def linear(layer: nn.Linear, rows: Array) -> Array:
    """What a linear layer makes of rows, in float64."""
    weight, bias = (t.detach().double().numpy() for t in (layer.weight, layer.bias))
    return rows @ weight.T + bias


def align(p: Array, mean: Array) -> Array:
    """Distribution alignment against a mean prediction."""
    aligned = p * (1 / p.shape[1] + 1e-6) / (mean + 1e-6)
    return aligned / aligned.sum(axis=1, keepdims=True)


def interleave(chunks: int, size: int) -> list[int]:
    """Chunk 0 and chunk i exchange their i-th part."""
    rows = [[c * size + i for i in range(size)] for c in range(chunks)]
    for c in range(1, chunks):
        for i in range(size * c // chunks, size * (c + 1) // chunks):
            rows[0][i], rows[c][i] = rows[c][i], rows[0][i]
    return [row for chunk in rows for row in chunk]


def statistics(network: nn.Module) -> dict[str, Tensor]:
    """Clones of what batch norm remembers."""
    return {n: b.clone() for n, b in network.named_buffers() if "running" in n or "num_b" in n}


def is_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Whether two dictionaries hold equal tensors under the same names."""
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
