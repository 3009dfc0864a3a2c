"""Settings of the open-set baselines (docs/protocol.md, "Open-set baselines")."""

from typing import Annotated, Literal

from pydantic import Field

from dac.settings.base import (
    FIRST_EPOCH_MARK,
    Count,
    FirstEpoch,
    NonNegative,
    Positive,
    Probability,
)
from dac.settings.method_base import GRADIENT, Common, Forwards


class MtcfSettings(Common):
    labeled_views: Literal[1]
    warmup_epochs: FirstEpoch
    """Epochs that train the inlier head only."""
    history: Annotated[int, Field(gt=0), FIRST_EPOCH_MARK]
    """Epochs whose inlier predictions are averaged; with the last of them targets begin to move."""
    lambda_u: NonNegative
    temperature: Positive
    alpha: Positive
    rampup: Probability
    """Share of training over which lambda_u grows from zero."""
    undrawn: Literal["older", "zero"]
    """What an image has in an epoch that does not draw it: its older entry, or 0 (benchmark)."""

    def forwards(self, epoch: int) -> Forwards:
        if epoch < self.warmup_epochs:
            return Forwards(GRADIENT, 0)
        return Forwards(2 * GRADIENT, 2 + 2 * GRADIENT)


class OpenMatchSettings(Common):
    start_epoch: FirstEpoch
    """First epoch with FixMatch on the images taken for inliers."""
    lambda_em: NonNegative
    """Weight of the detectors' entropy."""
    lambda_socr: NonNegative
    """Weight of the detectors' consistency between two weak views."""
    tau: Probability

    def forwards(self, epoch: int) -> Forwards:
        views = 4 if epoch >= self.start_epoch else 2
        return Forwards(GRADIENT * self.labeled_views, views * GRADIENT)

    def pool_passes(self, epoch: int) -> float:
        return float(epoch >= max(1, self.start_epoch))


class SafeStudentSettings(Common):
    warmup_epochs: FirstEpoch
    """Epochs of labels only, in which the averaged weights are the live ones."""
    seen_from: Probability
    """Share of the ranked pool below the images taken for known classes."""
    unseen_below: Probability
    """Share of the ranked pool taken for unknown classes."""
    lambda_seen: NonNegative
    lambda_unseen: NonNegative
    score_form: Literal["benchmark", "original"]
    """Energy discrepancy of the benchmark of DAC's authors, or of the original code."""
    score_temperature: Positive
    """Of `original`."""
    clamp_weight: bool
    """Keep the weight of an unseen image within [1, e]; else it is infinite where theta_u is 0."""

    def forwards(self, epoch: int) -> Forwards:
        """The teacher's look at a seen image has no gradient."""
        is_warm = epoch >= self.warmup_epochs
        return Forwards(GRADIENT * self.labeled_views, is_warm * (1 + 2 * GRADIENT))

    def pool_passes(self, epoch: int) -> float:
        return float(epoch >= self.warmup_epochs)


class OspSettings(Common):
    labeled_views: Literal[1]
    pruning_epoch: FirstEpoch
    """First epoch of stage 2."""
    filter_every: Count
    """Epochs between two choices of inliers and outliers."""
    rampup_epochs: Count
    """Epochs of stage 2 over which its losses grow from zero."""
    gamma: Probability
    """Share of the component along an outlier that is pruned."""
    match_dim: Count
    """Width of the matching head."""
    bank_size: Count
    """Outlier features kept per class."""
    bank_confidence: Probability
    """Only outliers less confident than this enter the bank."""
    fills_bank: bool
    """False: as released, where pruning only shortens features."""
    out_share: Probability
    """An outlier lies in this lowest part between the lowest score and the threshold, ..."""
    out_below: Probability
    """... and below this."""
    kl_tau: Probability
    kl_temperature: Positive

    def forwards(self, epoch: int) -> Forwards:
        """Four rotations of as many images as there are labeled ones."""
        unlabeled = 2 * GRADIENT if epoch >= self.pruning_epoch else 0
        return Forwards(GRADIENT * (self.labeled_views + 4), unlabeled)

    def pool_passes(self, epoch: int) -> float:
        """The filter; the few outliers that fill the bank are not counted."""
        since = epoch - self.pruning_epoch
        return float(since >= 0 and since % self.filter_every == 0)


class SsbSettings(Common):
    detector_epoch: FirstEpoch
    """First epoch of stage 2."""
    hidden: Count
    """Width of the hidden layers of both heads."""
    lambda_u: NonNegative
    tau: Probability
    lambda_em: NonNegative
    lambda_socr: NonNegative
    negative_below: Probability
    """A class whose detector gives an unlabeled image at most this is a pseudo-negative."""

    def forwards(self, epoch: int) -> Forwards:
        if epoch < self.detector_epoch:
            return Forwards(GRADIENT, 2 * GRADIENT)
        return Forwards(2 * GRADIENT * self.labeled_views, 3 * GRADIENT)


class IOMatchSettings(Common):
    lambda_u: NonNegative
    lambda_open: NonNegative
    """Weight of the open-set head's loss."""
    tau: Probability
    open_tau: Probability
    """The open-set head learns targets at least this confident."""
    open_start_epoch: FirstEpoch
    """First epoch with the open-set head's loss."""
    alignment_batches: Annotated[int, Field(ge=0)]
    """Batches in the running mean of distribution alignment; 0: none."""
    proj_dim: Count

    def forwards(self, epoch: int) -> Forwards:
        return Forwards(GRADIENT * self.labeled_views, 2 * GRADIENT)


class UAGregSettings(Common):
    lambda_u: NonNegative
    lambda_g: NonNegative
    """Weight of the graph loss."""
    tau: Probability
    open_temperature: Positive
    """Of the open-set head's confidence."""
    temperature: Positive
    """Of the graph loss."""
    graph_tau: Probability
    threshold_momentum: Probability
    threshold_weights: Literal["live", "averaged"]
    """Whose confidences set the thresholds: the live network's, or the averaged one's."""
    proj_dim: Count

    def forwards(self, epoch: int) -> Forwards:
        return Forwards(GRADIENT * self.labeled_views, 3 * GRADIENT)

    def pool_passes(self, epoch: int) -> float:
        return float(epoch >= 1)


OpenSet = (
    MtcfSettings
    | OpenMatchSettings
    | SafeStudentSettings
    | OspSettings
    | SsbSettings
    | IOMatchSettings
    | UAGregSettings
)
