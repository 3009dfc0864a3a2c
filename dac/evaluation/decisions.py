"""Which images every rule calls inliers.

Rules are named by where their threshold comes from:
  published     the method's own rule (docs/protocol/evaluation.md, "Decision rules")
  transductive  Otsu on the test scores, for every method
  inductive     Otsu on the scores of the training pool: nothing of the test set is used
  memory        where training ends with a threshold (DAC if it rejects, Safe-Student, UAGreg);
                UAGreg has a second one, memory_upper
  kept          what training itself takes for inliers in the pool
Beside them `reject_nothing` and `reject_everything`, as anchors.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from dac.evaluation.inference import Outputs
from dac.methods.parts.rules import Accepts, Rule, at_least, otsu_of_test
from dac.otsu import otsu_threshold


@dataclass(frozen=True)
class Decision:
    """The inliers of a rule. The threshold is NaN where the rule has none."""

    threshold: float
    test: np.ndarray
    pool: np.ndarray


def accepts(rules: Mapping[str, Rule]) -> dict[str, Accepts]:
    """Return the rules that need the features of every image."""
    return {name: rule.accepts for name, rule in rules.items() if rule.accepts is not None}


def decisions(rules: Mapping[str, Rule], test: Outputs, pool: Outputs) -> dict[str, Decision]:
    """Return the decisions of a method's rules and of the rules that all methods share."""
    shared = {
        "transductive": otsu_of_test(),
        "inductive": Rule(threshold=lambda test, pool: otsu_threshold(pool)),
        "reject_nothing": at_least(-np.inf),
        "reject_everything": at_least(np.inf),
    }
    return {name: _decide(name, rule, test, pool) for name, rule in {**shared, **rules}.items()}


def _decide(name: str, rule: Rule, test: Outputs, pool: Outputs) -> Decision:
    if rule.threshold is None:
        nobody = np.zeros(len(test.scores), dtype=bool)  # `kept` is about the pool only
        return Decision(float("nan"), test.accepted.get(name, nobody), pool.accepted[name])
    scores = torch.from_numpy(test.scores), torch.from_numpy(pool.scores)
    threshold = float(rule.threshold(*scores))
    return Decision(threshold, test.scores >= threshold, pool.scores >= threshold)
