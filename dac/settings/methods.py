"""The section `methods`: one model per method, a sentence under every field that needs one.

The open-set baselines have a file of their own, dac/settings/open_set.py.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from dac.settings.base import (
    Count,
    DataName,
    FirstEpoch,
    Name,
    NonNegative,
    Positive,
    Probability,
    Section,
)
from dac.settings.method_base import GRADIENT, Common, Forwards, WithConfidence
from dac.settings.open_set import (
    IOMatchSettings,
    MtcfSettings,
    OpenMatchSettings,
    OpenSet,
    OspSettings,
    SafeStudentSettings,
    SsbSettings,
    UAGregSettings,
)


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
    interleaved: bool
    """Every chunk exchanges a part with the first, which so has rows of all for batch norm."""

    def forwards(self, epoch: int) -> Forwards:
        """Two views without gradient for the guess, both again in the mix."""
        return Forwards(GRADIENT, 2 + 2 * GRADIENT)


class FixMatchSettings(WithConfidence):
    lambda_u: NonNegative
    tau: Probability
    hard_label: bool
    """One-hot pseudo-labels (Eq. 3) or the soft ones of the released configs."""
    start_epoch: FirstEpoch
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
    warmup_epochs: FirstEpoch
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
