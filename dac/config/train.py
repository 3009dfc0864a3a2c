"""The sections `pretrain` and `train`: how networks are trained, whatever the method."""

from typing import Annotated, Any, Literal

from pydantic import Field

from dac.config.base import (
    Backbone,
    Count,
    DataName,
    Epochs,
    Few,
    LearningRate,
    Probability,
    Section,
    Seed,
    Size,
    WeightDecay,
)


class Pretrain(Section):
    """SimSiam without labels, one network per data set and backbone (Table 6)."""

    epochs: Epochs
    batch: Size
    """Images per step; the last incomplete batch of an epoch is dropped."""
    base_lr: LearningRate
    """lr = base_lr * batch / 256."""
    momentum: Annotated[float, Field(ge=0, lt=1)]
    weight_decay: WeightDecay
    """Applied to all parameters, norms and biases included."""
    hidden: Size | None
    """Width of the projector's hidden layers; None: the backbone's feature width."""
    projection: Size
    prediction_hidden: Size
    crop_scale: Probability
    """Smallest area of the random resized crop, as a share of the image."""
    seed: Seed
    """Seed of pre-training; one network serves every method and seed."""
    checkpoint_every: Count
    """Steps between checkpoints."""
    log_every: Count
    workers: Few


class PretrainSection(Section):
    defaults: dict[str, Any]
    by_data: dict[DataName, dict[str, Any]]


class Train(Section):
    backbone: Backbone
    steps_per_epoch: Size
    """An epoch is a counter of this many steps, not a pass over the data."""
    epochs: Epochs
    batch: Size
    """B, the number of labeled images per step."""
    mu: Few
    """Unlabeled images per step, as a multiple of B."""
    lr: LearningRate
    momentum: Annotated[float, Field(ge=0, lt=1)]
    nesterov: bool
    weight_decay: WeightDecay
    """Not applied to parameters of one dimension (norms, biases)."""
    cosine: Annotated[float, Field(ge=0, le=0.5)]
    """lr(k) = lr * cos(cosine * pi * k / steps): 7/16 in FixMatch."""
    ema_decay: Annotated[float, Field(ge=0, lt=1)]
    pool_includes_labeled: bool
    """Whether labeled images are also in the unlabeled pool."""
    evaluate_every: Count
    """Steps between closed-set evaluations (also at the last step)."""
    evaluation_batch: Size
    checkpoint_every: Count
    log_every: Count
    initial: Literal["random", "simsiam"]
    """Initial weights of the backbone: random, or from the stage `pretrain`."""
    precision: Literal["fp32", "tf32", "bf16"]
    """How a GPU computes convolutions and matrix products. fp32: IEEE float32; tf32:
    TensorFloat-32; bf16: bfloat16 by autocast, except where losses need float32. A CPU treats tf32
    as fp32."""
    compile: bool
    """Whether to run `torch.compile` on the backbone."""
    workers: Few
    """Reader threads for data sets that do not fit on the device."""

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch


class TrainSection(Section):
    defaults: dict[str, Any]
    by_data: dict[DataName, dict[str, Any]]
