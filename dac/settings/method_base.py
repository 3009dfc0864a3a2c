"""What the settings of every method have, and how they state what a step costs."""

from dataclasses import dataclass

from dac.settings.base import Count, Probability, Section

GRADIENT = 3  # forward passes that a forward and a backward pass cost


@dataclass(frozen=True)
class Forwards:
    """Forward passes that a step costs, a backward pass counted as two (`dac.plan`)."""

    labeled: float
    """Per labeled image."""
    unlabeled: float
    """Per unlabeled image."""

    def __add__(self, other: "Forwards") -> "Forwards":
        return Forwards(self.labeled + other.labeled, self.unlabeled + other.unlabeled)


class Common(Section):
    """What every method has."""

    labeled_views: Count
    """Weak views of every labeled image per step."""
    feature_layernorm: bool
    """LayerNorm between the pooled feature and everything that reads it."""

    def pool_passes(self, epoch: int) -> float:
        """Forward passes of the whole pool at the start of an epoch."""
        return 0


class WithConfidence(Common):
    """Methods without a rule of their own for outliers."""

    reject_below: Probability
    """Evaluation: max softmax below this is called an outlier."""
