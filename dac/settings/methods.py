"""The section `methods`: one model per method, a sentence under every field that needs one."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from dac.settings.base import Count, DataName, Name, NonNegative, Positive, Probability, Section

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


class WithConfidence(Common):
    """Methods without a rule of their own for outliers."""

    reject_below: Probability
    """Evaluation: max softmax below this is called an outlier."""


class LabeledOnlySettings(WithConfidence):
    def forwards(self, epoch: int) -> Forwards:
        return Forwards(GRADIENT * self.labeled_views, 0)


class MixMatchSettings(WithConfidence):
    lambda_u: NonNegative
    temperature: Positive
    """T of sharpening."""
    alpha: Positive
    """MixUp's lambda is drawn from Beta(alpha, alpha)."""
    rampup: Probability
    """Share of training over which lambda_u grows from zero."""

    def forwards(self, epoch: int) -> Forwards:
        """Two views without gradient for the guess, both again in the mix."""
        return Forwards(GRADIENT, 2 + 2 * GRADIENT)


class FixMatchSettings(WithConfidence):
    lambda_u: NonNegative
    tau: Probability
    hard_label: bool
    """One-hot pseudo-labels (Eq. 3) or the soft ones of the released configs."""
    start_epoch: Annotated[int, Field(ge=0)]
    """First epoch with the unlabeled loss."""

    def forwards(self, epoch: int) -> Forwards:
        return Forwards(GRADIENT * self.labeled_views, 2 * GRADIENT)


class CoMatchSettings(WithConfidence):
    lambda_u: NonNegative
    lambda_c: NonNegative
    """Weight of the graph loss."""
    tau: Probability
    graph_tau: Probability
    """Edges of the pseudo-label graph below this are cut."""
    temperature: Positive
    """Of both graphs and of memory smoothing."""
    smoothing: Probability
    """alpha: what a prediction keeps of itself in memory smoothing."""
    smoothing_start: Literal["queue", "epoch"]
    """Smooth as soon as the queue is full (original code), or from epoch 1 on (release)."""
    queue_batches: Count
    """Length of the queue in steps."""
    alignment_batches: Count
    """Batches in the running mean of distribution alignment."""
    proj_dim: Count
    num_projectors: Count
    """Projections whose outputs are averaged: 1, or EPASS's 3 as in the release."""

    def forwards(self, epoch: int) -> Forwards:
        return Forwards(GRADIENT * self.labeled_views, 3 * GRADIENT)


class SimMatchSettings(WithConfidence):
    lambda_u: NonNegative
    lambda_in: NonNegative
    """Weight of the instance loss."""
    tau: Probability
    temperature: Positive
    """T of the similarity to labeled instances."""
    smoothing: Probability
    """alpha: what a prediction keeps of itself beside the instances' votes."""
    alignment_batches: Count
    proj_dim: Count
    num_projectors: Count
    bank: Literal["momentum", "averaged"]
    """Labeled embeddings: moving averages of the student's, or the averaged network's last."""
    bank_momentum: Probability
    """Of `momentum`: what an embedding keeps of itself."""
    bank_updates_statistics: bool
    """Of `averaged`: whether that forward updates batch norm once more, as in the release."""

    def forwards(self, epoch: int) -> Forwards:
        bank = self.bank == "averaged"
        return Forwards(GRADIENT * self.labeled_views + bank, 2 * GRADIENT)


class SoftMatchSettings(WithConfidence):
    lambda_u: NonNegative
    momentum: Probability
    """m of the running mean and variance of confidence and of the mean prediction."""
    num_sigma: Positive
    """Width of the Gaussian below the mean: sigma is divided by this."""

    def forwards(self, epoch: int) -> Forwards:
        return Forwards(GRADIENT * self.labeled_views, 2 * GRADIENT)


class MtcfSettings(Common):
    warmup_epochs: Annotated[int, Field(ge=0)]
    """Epochs that train the inlier head only."""
    history: Count
    """Epochs whose inlier predictions are averaged."""
    lambda_u: NonNegative
    temperature: Positive
    alpha: Positive
    rampup: Probability
    """Share of training over which lambda_u grows from zero."""

    def forwards(self, epoch: int) -> Forwards:
        if epoch < self.warmup_epochs:
            return Forwards(GRADIENT, 0)
        return Forwards(2 * GRADIENT, 2 + 2 * GRADIENT)


class OpenMatchSettings(Common):
    start_epoch: Annotated[int, Field(ge=0)]
    """First epoch with FixMatch on the images taken for inliers."""
    lambda_em: NonNegative
    """Weight of the detectors' entropy."""
    lambda_socr: NonNegative
    """Weight of the detectors' consistency between two weak views."""
    tau: Probability

    def forwards(self, epoch: int) -> Forwards:
        views = 4 if epoch >= self.start_epoch else 2
        return Forwards(GRADIENT * self.labeled_views, views * GRADIENT)


class SafeStudentSettings(Common):
    warmup_epochs: Annotated[int, Field(ge=0)]
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

    def forwards(self, epoch: int) -> Forwards:
        """The teacher's look at a seen image has no gradient."""
        is_warm = epoch >= self.warmup_epochs
        return Forwards(GRADIENT * self.labeled_views, is_warm * (1 + 2 * GRADIENT))


class OspSettings(Common):
    pruning_epoch: Annotated[int, Field(ge=0)]
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


class SsbSettings(Common):
    detector_epoch: Annotated[int, Field(ge=0)]
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
    open_start_epoch: Annotated[int, Field(ge=0)]
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


class DacSettings(Common):
    objective: Name
    """The entry under `methods:` whose L_s and L_u the target head learns with (Table 4)."""
    num_heads: Count
    proj_dim: Count
    lambda_u_heads: NonNegative
    """Weight of the heads' self-training."""
    head_tau: Probability
    head_reduction: Literal["mean", "sum"]
    """Over heads, in L_div."""
    lambda_mi: NonNegative
    mi_reduction: Literal["mean", "sum"]
    """Mean over unordered pairs, or the literal sum over ordered pairs of Eq. 5."""
    diversify: Literal["heads", "heads+projection"]
    """What L_div updates; the encoder never."""
    score_form: Literal["paper", "released"]
    score_momentum: Probability
    score_range: Literal["all", "visited"]
    """Whether min, max and Otsu look at pool items not visited yet (their score is still zero)."""
    minmax_eps: NonNegative
    otsu_eps: NonNegative
    otsu_every: Count
    """Steps between recomputations of tau_open."""
    warmup_epochs: Annotated[int, Field(ge=0)]
    """Epochs without L_u(f, omega) and L_kd."""
    rejection: bool
    """False: omega is 1 (the ablation rows without soft rejection)."""
    rejection_temperature: Annotated[float, Field(ge=0, allow_inf_nan=True)]
    """t_w of Eq. 13; .inf rejects hard."""
    lambda_kd: NonNegative
    kd_temperature: Positive
    bank_batches: Count
    """Bank length M in unlabeled batches."""

    def forwards_on(self, objective: "Objective", epoch: int) -> Forwards:
        """DAC reads the objective's own forward, but MixMatch has none of unmixed images."""
        if isinstance(objective, MixMatchSettings):
            unmixed = Forwards(GRADIENT * self.labeled_views, 2 * GRADIENT)
            return objective.forwards(epoch) + unmixed
        return objective.forwards(epoch)


Objective = (
    MixMatchSettings | FixMatchSettings | CoMatchSettings | SimMatchSettings | SoftMatchSettings
)
"""Settings of methods that DAC can stand on."""
OpenSet = (
    MtcfSettings
    | OpenMatchSettings
    | SafeStudentSettings
    | OspSettings
    | SsbSettings
    | IOMatchSettings
    | UAGregSettings
)
MethodSettings = LabeledOnlySettings | Objective | OpenSet | DacSettings
MethodName = Literal[
    "labeled-only",
    "mixmatch",
    "fixmatch",
    "comatch",
    "simmatch",
    "softmatch",
    "mtcf",
    "openmatch",
    "safe-student",
    "osp",
    "ssb",
    "iomatch",
    "uagreg",
    "dac",
]
SETTINGS: dict[MethodName, type[MethodSettings]] = {
    "labeled-only": LabeledOnlySettings,
    "mixmatch": MixMatchSettings,
    "fixmatch": FixMatchSettings,
    "comatch": CoMatchSettings,
    "simmatch": SimMatchSettings,
    "softmatch": SoftMatchSettings,
    "mtcf": MtcfSettings,
    "openmatch": OpenMatchSettings,
    "safe-student": SafeStudentSettings,
    "osp": OspSettings,
    "ssb": SsbSettings,
    "iomatch": IOMatchSettings,
    "uagreg": UAGregSettings,
    "dac": DacSettings,
}


class MethodEntry(Section):
    """One name under `methods:`: a method with its settings, or a `base` with differences."""

    method: MethodName
    settings: dict[str, Any] = {}
    by_data: dict[DataName, dict[str, Any]] = {}
    """Settings that differ on a data set."""
    train: dict[str, Any] = {}
    """Training settings that differ for this method."""
    train_by_data: dict[DataName, dict[str, Any]] = {}
