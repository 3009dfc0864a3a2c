"""The section `methods`: one model per method, a sentence under every field that needs one."""

from typing import Annotated, Any, Literal

from pydantic import Field

from dac.settings.base import Count, DataName, NonNegative, Positive, Probability, Section


class LabeledOnlySettings(Section):
    labeled_views: Count
    feature_layernorm: bool
    reject_below: Probability
    """Evaluation: max softmax below this is called an outlier."""


class FixMatchSettings(Section):
    labeled_views: Count
    """Weak views of every labeled image per step."""
    feature_layernorm: bool
    """LayerNorm between the pooled feature and everything that reads it."""
    lambda_u: NonNegative
    tau: Probability
    hard_label: bool
    """One-hot pseudo-labels (Eq. 3) or the soft ones of the released configs."""
    start_epoch: Annotated[int, Field(ge=0)]
    """First epoch with the unlabeled loss."""
    reject_below: Probability


class DacSettings(Section):
    labeled_views: Count
    feature_layernorm: bool
    lambda_u: NonNegative
    tau: Probability
    hard_label: bool
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


MethodSettings = LabeledOnlySettings | FixMatchSettings | DacSettings
SETTINGS: dict[str, type[LabeledOnlySettings] | type[FixMatchSettings] | type[DacSettings]] = {
    "labeled-only": LabeledOnlySettings,
    "fixmatch": FixMatchSettings,
    "dac": DacSettings,
}


class MethodEntry(Section):
    """One name under `methods:`: a method with its settings, or a `base` with differences."""

    method: Literal["labeled-only", "fixmatch", "dac"]
    settings: dict[str, Any] = {}
    by_data: dict[DataName, dict[str, Any]] = {}
    """Settings that differ on a data set."""
    train: dict[str, Any] = {}
    """Training settings that differ for this method."""
    train_by_data: dict[DataName, dict[str, Any]] = {}
