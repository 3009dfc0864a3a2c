"""Building blocks of every section of `params.yaml`: strict frozen models and scalar types.

Upper bounds are far beyond what anybody uses: a larger value is a typing error, which would
otherwise show as exhausted memory, weights that overflow or a job that never ends.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0, le=1)]
LARGEST_NUMBER, LARGEST_SIZE, MOST_EPOCHS = 1e6, 10**6, 10**5
Positive = Annotated[float, Field(gt=0, le=LARGEST_NUMBER)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST_NUMBER)]
"""A weight of a loss, a temperature; hours, gigabytes."""
LearningRate = Annotated[float, Field(gt=0, le=100)]
WeightDecay = Annotated[float, Field(ge=0, le=10)]
SIZE_MARK = "a size in memory"
Few = Annotated[int, Field(gt=0, le=1000), SIZE_MARK]
"""Heads, views, threads: each costs as much as the first."""
Side = Annotated[int, Field(gt=0, le=10**4)]
"""Side of a square image, in pixels."""
Size = Annotated[int, Field(gt=0, le=LARGEST_SIZE), SIZE_MARK]
"""Size of what is in memory: a layer, a batch, a bank; or how many classes there are."""
SizeOrZero = Annotated[int, Field(ge=0, le=LARGEST_SIZE), SIZE_MARK]
Count = Annotated[int, Field(gt=0, le=10**12)]
"""What is only counted: steps, images, minutes, megabytes."""
Epochs = Annotated[int, Field(gt=0, le=MOST_EPOCHS)]
FIRST_EPOCH_MARK = "the first epoch of a phase"
FirstEpoch = Annotated[int, Field(ge=0, le=MOST_EPOCHS), FIRST_EPOCH_MARK]
"""Training must last longer than this (`MethodSettings.first_epochs` looks for the mark)."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$", max_length=100)]
"""Name of a task, method, table, figure or suite; it becomes a folder or file name."""
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Line = Annotated[str, Field(pattern=ONE_LINE)]
"""Text for a cell of a table or a caption: no line break, no other control character."""
NUM_SEEDS = 2**32  # accepted by NumPy's legacy generator, which draws the splits
Seed = Annotated[int, Field(ge=0, lt=NUM_SEEDS)]
DataName = Literal["digits", "cifar10", "cifar100", "imagenet30", "semi-inat-2021", "folder"]
Backbone = Literal["small-cnn", "wrn-28-2", "resnet18", "resnet18-released"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
