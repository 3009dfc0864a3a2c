"""Settings that every method has."""

from collections.abc import Collection
from typing import Any, ClassVar, Self

from pydantic import PrivateAttr

from dac.config.base import FIRST_EPOCH_MARK, Few, Probability, Section
from dac.config.methods.phase import Phase


class MethodSettings(Section):
    """Base class of a method's settings: fields of `params.yaml`, and what its steps draw."""

    weighs_samples: ClassVar[bool] = False
    """Whether unlabeled terms go through `Step.weigh`, so that DAC can use the method as its
    objective (Table 4)."""

    _method: str = PrivateAttr(default="")

    labeled_views: Few
    """Weak views of every labeled image per step."""
    feature_layernorm: bool
    """LayerNorm between the pooled feature and everything that reads it."""

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        if taken := {"method", "name", "file"} & cls.model_fields.keys():
            raise TypeError(f"{cls.__name__} has the field {min(taken)!r}, a name that is taken")
        if "phase" in vars(cls) and "turns" not in vars(cls):
            cls.turns = MethodSettings.turns  # type: ignore[method-assign] # not its base's

    @property
    def method(self) -> str:
        """The value of `method:` in the entry; empty for settings without an entry."""
        return self._method

    def of_method(self, method: str) -> Self:
        found = self.model_copy()
        found._method = method
        return found

    def first_epochs(self) -> dict[str, int]:
        """The settings that are the first epoch of a phase."""
        fields = type(self).model_fields.items()
        return {name: getattr(self, name) for name, f in fields if FIRST_EPOCH_MARK in f.metadata}

    def phase(self, epoch: int) -> Phase:
        """What every step of an epoch draws; methods with several phases look at `epoch`."""
        raise NotImplementedError

    def turns(self, epochs: range) -> Collection[int]:
        """The epochs whose phase may differ from that of the epoch before: any, unless a method
        knows better, so that long training is planned as fast as short."""
        return epochs


class WithConfidence(MethodSettings):
    """Settings of methods without an outlier rule of their own."""

    reject_below: Probability
    """In evaluation, images with a max softmax below this count as outliers."""
