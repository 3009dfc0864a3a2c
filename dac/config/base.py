"""Building blocks of every section of `params.yaml`: strict frozen models and scalar types."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0)]
FIRST_EPOCH_MARK = "the first epoch of a phase"
FirstEpoch = Annotated[int, Field(ge=0), FIRST_EPOCH_MARK]
"""Training must last longer than this (dac/config/params.py looks for the mark)."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$")]
"""Name of a task, method, table, figure or suite; it becomes a folder or file name."""
NUM_SEEDS = 2**32  # accepted by NumPy's legacy generator, which draws the splits
Seed = Annotated[int, Field(ge=0, lt=NUM_SEEDS)]
DataName = Literal["digits", "cifar10", "cifar100", "imagenet30", "semi-inat-2021", "folder"]
Backbone = Literal["small-cnn", "wrn-28-2", "resnet18", "resnet18-released"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
