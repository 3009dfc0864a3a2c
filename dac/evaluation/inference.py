"""What a network says about images: classes, scores, embeddings."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dac.augment import Policy, evaluation
from dac.data.images import Images, Schedule
from dac.methods.network import Network
from dac.methods.parts.rules import Accepts


@dataclass(frozen=True)
class Outputs:
    """One row per image."""

    ranking: np.ndarray  # n x 5 (or C), the likeliest classes; logits of a pool are too many
    scores: np.ndarray  # n, high for inliers
    accepted: dict[str, np.ndarray] = field(default_factory=dict)
    """Rule -> n, whether each image is an inlier, for rules that are not thresholds."""
    agreement: np.ndarray | None = None  # mean over the images of a group, groups x K x K

    @property
    def predictions(self) -> np.ndarray:
        return self.ranking[:, 0]


@torch.no_grad()
def predict(
    network: Network,
    images: Images,
    policy: Policy,
    *,
    index: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    accepts: Mapping[str, Accepts] | None = None,
    batch: int,
) -> Outputs:
    """Run the network over `images` (or the rows `index` of them), `batch` at a time.

    `accepts` are rules to ask about every image. `groups` assigns an image to a group (0, 1, ...)
    for which the heads' agreement is averaged.
    """
    rows = _all_rows(images) if index is None else torch.from_numpy(index)
    method = network.method
    ranking, scores = [], []
    accepted: dict[str, list[Tensor]] = {name: [] for name in accepts or {}}
    sums: dict[int, list[Tensor]] = {}
    with evaluating(network):
        for start, features in _features(network, images, rows, _evaluation(policy), batch):
            logits = method.logits(features).float()
            ranked = logits.sort(dim=1, descending=True, stable=True).indices  # ties as argmax
            ranking.append(ranked[:, :5])
            scores.append(method.score(features).float())
            positions = torch.arange(start, start + len(features), device=images.device)
            for name, rule in (accepts or {}).items():
                accepted[name].append(rule(features, positions))
            if groups is not None:
                _add_agreement(sums, network, features, groups[start : start + batch])
    return Outputs(
        ranking=torch.cat(ranking).cpu().numpy(),
        scores=torch.cat(scores).cpu().numpy(),
        accepted={name: torch.cat(parts).cpu().numpy() for name, parts in accepted.items()},
        agreement=_mean_agreement(sums, groups),
    )


@torch.no_grad()
def embed(
    network: Network, images: Images, policy: Policy, *, batch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the target head (n x C) and embeddings of length one (n x D), float32."""
    rows = _all_rows(images)
    probabilities, embeddings = [], []
    with evaluating(network):
        for _, features in _features(network, images, rows, _evaluation(policy), batch):
            probabilities.append(network.method.logits(features).float().softmax(dim=1))
            embeddings.append(network.method.embedding(features))
    return torch.cat(probabilities).cpu().numpy(), torch.cat(embeddings).cpu().numpy()


@torch.no_grad()
def read_pool(
    network: Network,
    images: Images,
    rows: Tensor,
    read: Callable[[Tensor], Tensor],
    view: Callable[[Tensor], Tensor],
    *,
    batch: int,
) -> Tensor:
    """Apply `read` to the features of every image: n x ..., on the device."""
    with evaluating(network):
        found = _features(network, images, rows, view, batch)
        return torch.cat([read(features) for _, features in found])


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
    images: Images,
    rows: Tensor,
    view: Callable[[Tensor], Tensor],
    batch: int,
) -> Iterator[tuple[int, Tensor]]:
    """Features of a view of `batch` images at a time, each with its place in `rows`."""
    schedule = Schedule(images, rows, batch)
    for number in range(len(schedule)):
        yield number * batch, network.encode(view(schedule.at(number)))


def _all_rows(images: Images) -> Tensor:
    return torch.arange(len(images.source))


def _evaluation(policy: Policy) -> Callable[[Tensor], Tensor]:
    return lambda block: evaluation(block, policy)


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
