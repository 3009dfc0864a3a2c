"""Settings of the open-set baselines (docs/protocol/baselines.md)."""

from collections.abc import Collection
from typing import Annotated, Literal

from dac.config.base import (
    FIRST_EPOCH_MARK,
    Epochs,
    FirstEpoch,
    NonNegative,
    Positive,
    Probability,
    Size,
    SizeOrZero,
)
from dac.config.methods.common import MethodSettings
from dac.config.methods.phase import GRADIENT, Forwards, Phase, Stream, ViewCounts


class MtcfSettings(MethodSettings):
    labeled_views: Literal[1]
    warmup_epochs: FirstEpoch
    """Epochs that train the inlier head only."""
    history: Annotated[Epochs, FIRST_EPOCH_MARK]
    """Epochs whose inlier predictions are averaged; after that many, targets begin to move."""
    lambda_u: NonNegative
    temperature: Positive
    alpha: Positive
    rampup: Probability
    """Share of training over which lambda_u grows from zero."""
    undrawn: Literal["older", "zero"]
    """Entry of an image in an epoch that does not draw it: its older one, or 0 (benchmark)."""

    def phase(self, epoch: int) -> Phase:
        """A stream of labeled and unlabeled images for the inlier head; MixMatch after warm-up."""
        joint = {"joint": Stream("labeled", weak=1, with_labeled=True)}
        if epoch < self.warmup_epochs:  # the target head has learned nothing yet
            return Phase(streams=joint, selectable=False)
        views = ViewCounts(labeled=1, weak=2)
        return Phase(apart=views, streams=joint, extra=Forwards(unlabeled=2))

    def turns(self, epochs: range) -> Collection[int]:
        return {self.warmup_epochs}


class OpenMatchSettings(MethodSettings):
    start_epoch: FirstEpoch
    """First epoch with FixMatch on the images considered inliers."""
    lambda_em: NonNegative
    """Weight of the detectors' entropy."""
    lambda_socr: NonNegative
    """Weight of the detectors' consistency between two weak views."""
    tau: Probability

    def phase(self, epoch: int) -> Phase:
        inliers = {"inliers": Stream("unlabeled", weak=1, strong=1)}
        return Phase(
            shared=ViewCounts(labeled=self.labeled_views, weak=2),
            streams=inliers if epoch >= self.start_epoch else {},
            pool_passes=int(epoch >= max(1, self.start_epoch)),
        )

    def turns(self, epochs: range) -> Collection[int]:
        return {self.start_epoch, max(1, self.start_epoch)}


class SafeStudentSettings(MethodSettings):
    warmup_epochs: FirstEpoch
    """Epochs on labels only, in which the averaged weights equal the live ones."""
    seen_from: Probability
    """Share of the ranked pool below the images considered known."""
    unseen_below: Probability
    """Share of the ranked pool considered unknown."""
    lambda_seen: NonNegative
    lambda_unseen: NonNegative
    score_form: Literal["benchmark", "original"]
    """Energy discrepancy as in the benchmark of DAC's authors, or in the original code."""
    score_temperature: Positive
    """Temperature of the form `original`."""
    clamp_weight: bool
    """Keep the weight of unseen images within [1, e]; else it is infinite where theta_u is 0."""

    def phase(self, epoch: int) -> Phase:
        views = ViewCounts(labeled=self.labeled_views)
        if epoch < self.warmup_epochs:  # nothing is ranked yet, and there is no teacher
            return Phase(shared=views, averages=False, selectable=False)
        streams = {
            "seen": Stream("unlabeled", weak=1, strong=1),
            "unseen": Stream("unlabeled", strong=1),
        }
        no_gradient = Forwards(unlabeled=-2)  # the teacher's pass over the weak view
        return Phase(shared=views, streams=streams, pool_passes=1, extra=no_gradient)

    def turns(self, epochs: range) -> Collection[int]:
        return {self.warmup_epochs}


class OspSettings(MethodSettings):
    labeled_views: Literal[1]
    pruning_epoch: FirstEpoch
    """First epoch of phase 2."""
    filter_every: Epochs
    """Epochs between two selections of inliers and outliers."""
    rampup_epochs: Epochs
    """Epochs of phase 2 over which its losses grow from zero."""
    gamma: Probability
    """Share of the component along an outlier that is pruned."""
    match_dim: Size
    """Width of the matching head."""
    bank_size: Size
    """Outlier features kept per class."""
    bank_confidence: Probability
    """Only outliers less confident than this enter the bank."""
    fills_bank: bool
    """Whether the bank is filled; in the release it is not, and pruning only shortens features."""
    out_share: Probability
    """Outliers are in this lowest share of the range from the lowest score to the threshold ..."""
    out_below: Probability
    """... and score below this."""
    kl_tau: Probability
    kl_temperature: Positive

    def phase(self, epoch: int) -> Phase:
        rotated = {"rotated": Stream("labeled", weak=1)}
        three_more_turns = Forwards(labeled=3 * GRADIENT)
        if epoch < self.pruning_epoch:
            views = ViewCounts(labeled=self.labeled_views)
            return Phase(apart=views, streams=rotated, extra=three_more_turns)
        return Phase(
            apart=ViewCounts(labeled=self.labeled_views, weak=1, strong=1),
            streams=rotated,
            # The filter; the few outliers that fill the bank are not counted.
            pool_passes=int(epoch in self._filters(epoch + 1)),
            extra=three_more_turns,
        )

    def turns(self, epochs: range) -> Collection[int]:
        filters = self._filters(epochs.stop)
        return {self.pruning_epoch, *filters, *(epoch + 1 for epoch in filters)}

    def _filters(self, end: int) -> range:
        """The epochs before `end` that select inliers and outliers."""
        return range(self.pruning_epoch, end, self.filter_every)


class SsbSettings(MethodSettings):
    detector_epoch: FirstEpoch
    """First epoch of phase 2."""
    hidden: Size
    """Width of the hidden layers of both heads."""
    lambda_u: NonNegative
    tau: Probability
    lambda_em: NonNegative
    lambda_socr: NonNegative
    negative_below: Probability
    """A class is a pseudo-negative of an unlabeled image if its detector gives at most this."""

    def phase(self, epoch: int) -> Phase:
        if epoch < self.detector_epoch:  # the best network must have a detector
            return Phase(shared=ViewCounts(labeled=1, weak=1, strong=1), selectable=False)
        count = self.labeled_views
        return Phase(shared=ViewCounts(labeled=count, labeled_strong=count, weak=2, strong=1))

    def turns(self, epochs: range) -> Collection[int]:
        return {self.detector_epoch}


class IOMatchSettings(MethodSettings):
    lambda_u: NonNegative
    lambda_open: NonNegative
    """Weight of the open-set head's loss."""
    tau: Probability
    open_tau: Probability
    """The open-set head learns targets at least this confident."""
    open_start_epoch: FirstEpoch
    """First epoch with the open-set head's loss."""
    alignment_batches: SizeOrZero
    """Batches in the running mean of distribution alignment; 0 turns it off."""
    proj_dim: Size

    def phase(self, epoch: int) -> Phase:
        return Phase(
            shared=ViewCounts(labeled=self.labeled_views, weak=1, strong=1),
            selectable=epoch >= self.open_start_epoch,  # the best one must have an open-set head
        )

    def turns(self, epochs: range) -> Collection[int]:
        return {self.open_start_epoch}


class UAGregSettings(MethodSettings):
    lambda_u: NonNegative
    lambda_g: NonNegative
    """Weight of the graph loss."""
    tau: Probability
    open_temperature: Positive
    """Temperature of the open-set head's confidence."""
    temperature: Positive
    """Temperature of the graph loss."""
    graph_tau: Probability
    threshold_momentum: Probability
    threshold_weights: Literal["live", "averaged"]
    """Network whose confidences set the thresholds: the live or the averaged one."""
    proj_dim: Size

    def phase(self, epoch: int) -> Phase:
        views = ViewCounts(labeled=self.labeled_views, weak=1, strong=2)
        return Phase(shared=views, pool_passes=int(epoch >= 1))

    def turns(self, epochs: range) -> Collection[int]:
        return {1}
