"""Settings of labeled-only training and of the semi-supervised methods."""

from collections.abc import Collection
from typing import Literal

from dac.config.base import Few, FirstEpoch, NonNegative, Positive, Probability, Size
from dac.config.methods.common import WithConfidence
from dac.config.methods.phase import Forwards, Phase, ViewCounts


class LabeledOnlySettings(WithConfidence):
    def phase(self, epoch: int) -> Phase:
        return Phase(shared=ViewCounts(labeled=self.labeled_views))

    def turns(self, epochs: range) -> Collection[int]:
        return ()


class MixMatchSettings(WithConfidence):
    weighs_samples = True

    lambda_u: NonNegative
    temperature: Positive
    """Sharpening temperature T."""
    alpha: Positive
    """MixUp's lambda is drawn from Beta(alpha, alpha)."""
    rampup: Probability
    """Share of training over which lambda_u grows from zero."""
    interleaved: bool
    """Whether every chunk swaps a part with the first, whose batch norm then sees rows of all."""

    def phase(self, epoch: int) -> Phase:
        """Two weak views, labeled without a gradient and then mixed; none is encoded as it is."""
        return Phase(apart=ViewCounts(labeled=1, weak=2), extra=Forwards(unlabeled=2))

    def turns(self, epochs: range) -> Collection[int]:
        return ()


class FixMatchSettings(WithConfidence):
    weighs_samples = True

    lambda_u: NonNegative
    tau: Probability
    hard_label: bool
    """Whether pseudo-labels are one-hot (Eq. 3) or soft, as in the released configs."""
    start_epoch: FirstEpoch
    """First epoch with the unlabeled loss."""

    def phase(self, epoch: int) -> Phase:
        return Phase(shared=ViewCounts(labeled=self.labeled_views, weak=1, strong=1))

    def turns(self, epochs: range) -> Collection[int]:
        return ()


class CoMatchSettings(WithConfidence):
    weighs_samples = True

    lambda_u: NonNegative
    lambda_c: NonNegative
    """Weight of the graph loss."""
    tau: Probability
    graph_tau: Probability
    """Edges of the pseudo-label graph below this are cut."""
    temperature: Positive
    """Temperature of both graphs and of memory smoothing."""
    smoothing: Probability
    """alpha, the share of itself that a prediction keeps in memory smoothing."""
    smoothing_start: Literal["queue", "epoch"]
    """Start of smoothing: once the queue is full (original code), or from epoch 1 on (release)."""
    queue_batches: Size
    """Length of the queue in steps."""
    alignment_batches: Size
    """Batches in the running mean of distribution alignment."""
    proj_dim: Size
    num_projectors: Few
    """Projections whose outputs are averaged: 1, or EPASS's 3 as in the release."""

    def phase(self, epoch: int) -> Phase:
        return Phase(shared=ViewCounts(labeled=self.labeled_views, weak=1, strong=2))

    def turns(self, epochs: range) -> Collection[int]:
        return ()


class SimMatchSettings(WithConfidence):
    weighs_samples = True

    lambda_u: NonNegative
    lambda_in: NonNegative
    """Weight of the instance loss."""
    tau: Probability
    temperature: Positive
    """Temperature of the similarity to labeled instances."""
    smoothing: Probability
    """alpha, the share of itself that a prediction keeps beside the instances' votes."""
    alignment_batches: Size
    proj_dim: Size
    num_projectors: Few
    bank: Literal["momentum", "averaged"]
    """Labeled embeddings: moving averages of the student's, or the averaged network's latest."""
    bank_momentum: Probability
    """Used by `momentum`: the share of itself that an embedding keeps."""
    bank_updates_statistics: bool
    """Used by `averaged`: whether its forward pass updates batch norm again, as in the release."""

    def phase(self, epoch: int) -> Phase:
        views = ViewCounts(labeled=self.labeled_views, weak=1, strong=1)
        return Phase(shared=views, extra=Forwards(labeled=self.bank == "averaged"))

    def turns(self, epochs: range) -> Collection[int]:
        return ()


class SoftMatchSettings(WithConfidence):
    weighs_samples = True

    lambda_u: NonNegative
    momentum: Probability
    """Momentum m of the mean and variance of confidence and of the mean prediction."""
    num_sigma: Positive
    """Width of the Gaussian below the mean: sigma is divided by this."""

    def phase(self, epoch: int) -> Phase:
        return Phase(shared=ViewCounts(labeled=self.labeled_views, weak=1, strong=1))

    def turns(self, epochs: range) -> Collection[int]:
        return ()
