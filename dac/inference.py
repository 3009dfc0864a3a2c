"""What a network says about images: logits, scores, embeddings. No random draws."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dac.augment import Policy, evaluation
from dac.methods.base import Network


@dataclass(frozen=True)
class Outputs:
    """One row per image."""

    logits: np.ndarray  # n x C
    scores: np.ndarray  # n, high for inliers
    agreement: np.ndarray | None  # mean over the images of `agreement_of`, groups x K x K

    @property
    def predictions(self) -> np.ndarray:
        return self.logits.argmax(axis=1)


@torch.no_grad()
def predict(
    network: Network,
    images: np.ndarray,
    policy: Policy,
    *,
    index: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    batch: int,
    device: torch.device,
) -> Outputs:
    """Run the network over `images` (or the rows `index` of them), `batch` at a time.

    `groups` assigns an image to a group (0, 1, ...) for which the heads' agreement is averaged.
    """
    rows = np.arange(len(images)) if index is None else index
    logits, scores = [], []
    sums: dict[int, list[Tensor]] = {}
    with evaluating(network):
        for start, features in _features(network, images, rows, policy, batch, device):
            logits.append(network.method.logits(features).float())
            scores.append(network.method.score(features).float())
            if groups is not None:
                _add_agreement(sums, network, features, groups[start : start + batch])
    return Outputs(
        logits=torch.cat(logits).cpu().numpy(),
        scores=torch.cat(scores).cpu().numpy(),
        agreement=_mean_agreement(sums, groups),
    )


@torch.no_grad()
def embed(
    network: Network, images: np.ndarray, policy: Policy, *, batch: int, device: torch.device
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the target head (n x C) and embeddings of length one (n x D), float32."""
    rows = np.arange(len(images))
    probabilities, embeddings = [], []
    with evaluating(network):
        for _, features in _features(network, images, rows, policy, batch, device):
            probabilities.append(network.method.logits(features).float().softmax(dim=1))
            embeddings.append(network.method.embedding(features))
    return torch.cat(probabilities).cpu().numpy(), torch.cat(embeddings).cpu().numpy()


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Running statistics instead of batch statistics inside the block."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def _features(
    network: Network,
    images: np.ndarray,
    rows: np.ndarray,
    policy: Policy,
    batch: int,
    device: torch.device,
) -> Iterator[tuple[int, Tensor]]:
    """Features of `batch` images at a time, each with its place in `rows`."""
    for start in range(0, len(rows), batch):
        chosen = rows[start : start + batch]
        block = torch.from_numpy(np.ascontiguousarray(images[chosen])).to(device)
        yield start, network.encode(evaluation(block, policy))


def _add_agreement(
    sums: dict[int, list[Tensor]], network: Network, features: Tensor, groups: np.ndarray
) -> None:
    agreement = network.method.agreement(features)
    if agreement is None:
        return
    for group in np.unique(groups):
        chosen = torch.from_numpy(np.flatnonzero(groups == group)).to(features.device)
        sums.setdefault(int(group), []).append(agreement[chosen].double().sum(dim=0))


def _mean_agreement(sums: dict[int, list[Tensor]], groups: np.ndarray | None) -> np.ndarray | None:
    if not sums or groups is None:
        return None
    means = [
        torch.stack(sums[g]).sum(dim=0).cpu().numpy() / np.sum(groups == g) for g in sorted(sums)
    ]
    return np.stack(means)
