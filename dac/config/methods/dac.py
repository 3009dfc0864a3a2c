"""Settings of DAC and of the objective that trains its target head."""

from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from dac.config.base import Few, FirstEpoch, Name, NonNegative, Positive, Probability, Size
from dac.config.methods.common import MethodSettings
from dac.config.methods.phase import Phase, ViewCounts


class DacSettings(MethodSettings):
    objective: Name
    """The entry under `methods:` whose L_s and L_u train the target head (Table 4)."""
    num_heads: Few
    proj_dim: Size
    lambda_u_heads: NonNegative
    """Weight of the heads' self-training."""
    head_tau: Probability
    head_reduction: Literal["mean", "sum"]
    """Reduction over heads in L_div."""
    lambda_mi: NonNegative
    mi_reduction: Literal["mean", "sum"]
    """Mean over unordered pairs, or the literal sum over ordered pairs of Eq. 5."""
    diversify: Literal["heads", "heads+projection"]
    """What L_div updates; never the encoder."""
    score_form: Literal["paper", "released"]
    score_momentum: Probability
    score_range: Literal["all", "visited"]
    """Whether min, max and Otsu look at pool items not visited yet (their score is still zero)."""
    minmax_eps: NonNegative
    otsu_eps: NonNegative
    warmup_epochs: FirstEpoch
    """Epochs without L_u(f, omega) and L_kd."""
    rejection: bool
    """Whether to reject softly; otherwise omega is 1 (ablation rows without soft rejection)."""
    rejection_temperature: Annotated[float, Field(ge=0, allow_inf_nan=True)]
    """t_w of Eq. 13; .inf means hard rejection."""
    lambda_kd: NonNegative
    kd_temperature: Positive
    bank_batches: Size
    """Bank length M in unlabeled batches."""

    _target: MethodSettings | None = PrivateAttr(default=None)

    def around(self, target: MethodSettings) -> Self:
        """Return a copy with the settings of `objective` inside; views and features stay DAC's."""
        own = {"labeled_views": self.labeled_views, "feature_layernorm": self.feature_layernorm}
        found = self.model_copy()
        found._target = target.model_copy(update=own)
        return found

    @property
    def target(self) -> MethodSettings:
        """The settings of the objective."""
        assert self._target is not None, "a resolved run has an objective (Params.run)"
        return self._target

    def phase(self, epoch: int) -> Phase:
        """All x, one weak and one strong view of u, and whatever the objective draws."""
        own = ViewCounts(labeled=self.labeled_views, weak=1, strong=1)
        return self.target.phase(epoch) | Phase(shared=own)

    def turns(self, epochs: range) -> Collection[int]:
        return self.target.turns(epochs)
