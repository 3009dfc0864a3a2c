"""Rules that decide which images are inliers.

A rule is a threshold on the score or, if it cannot be one, a function of an image's features.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dac.otsu import otsu_threshold

Threshold = Callable[[Tensor, Tensor], Tensor]
"""Scores of the test images and of the pool -> the smallest score of an inlier."""
Accepts = Callable[[Tensor, Tensor], Tensor]
"""Features (B x d) and positions in the test set or pool (B) -> whether each is an inlier."""


@dataclass(frozen=True)
class Rule:
    """A threshold or a function; exactly one of the two is given."""

    threshold: Threshold | None = None
    accepts: Accepts | None = None

    def __post_init__(self) -> None:
        assert (self.threshold is None) != (self.accepts is None), "one of the two"


def at_least(threshold: float | Tensor) -> Rule:
    """Accept images whose score is at least `threshold`."""
    return Rule(threshold=lambda test, pool: torch.as_tensor(threshold))


def otsu_of_test() -> Rule:
    """Otsu's threshold of the test scores: transductive, as in the release's evaluation."""
    return Rule(threshold=lambda test, pool: otsu_threshold(test))


def above_otsu_of_pool() -> Rule:
    """Strictly above Otsu's threshold of the pool's scores."""

    def threshold(test: Tensor, pool: Tensor) -> Tensor:
        tau = otsu_threshold(pool)
        return torch.nextafter(tau, tau.new_tensor(torch.inf))

    return Rule(threshold=threshold)


def accepted(accepts: Accepts) -> Rule:
    """Accept the images that a function of their features and positions accepts."""
    return Rule(accepts=accepts)
