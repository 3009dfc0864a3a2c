"""The types of `params.yaml`: one frozen, strict model per section, a sentence under every field.

Values live in `params.yaml` with their sources; ranges and meanings live here. No torch in this
file: the workflow reads parameters a lot and must stay quick.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$")]
"""Of tasks, methods and suites: they become folder names."""
NUM_SEEDS = 2**32  # of NumPy's legacy generator, which draws the splits
Seed = Annotated[int, Field(ge=0, lt=NUM_SEEDS)]
DataName = Literal["digits", "cifar10", "cifar100", "imagenet30", "semi-inat-2021", "folder"]
Backbone = Literal["small-cnn", "wrn-28-2", "resnet18", "resnet18-released"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


# --- download ---------------------------------------------------------------------------------


Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Below = Annotated[str, Field(pattern=r"^\w[^/\\]*(/\w[^/\\]*)*$")]
"""A path below a folder: no leading slash, nothing that starts with a dot."""


class Archive(Section):
    name: Annotated[str, Field(pattern=r"^\w[^/\\]*$")]
    """File name of the archive, also looked for in a local mirror folder."""
    urls: tuple[Url, ...] = ()
    """Mirrors, tried in order."""
    md5: Md5 | None = None
    sha256: Sha256 | None = None
    size: Count | None = None
    """Bytes, where published."""


class DownloadSet(Section):
    archives: tuple[Archive, ...] = ()
    files: dict[Below, Md5] = {}
    """Path below the raw folder -> md5 of that file."""
    counts: dict[Below, Count] = {}
    """Folder below the raw folder -> number of files in it, where no checksums are published."""
    manual: str | None = None
    """Steps for people, where no program can fetch the set."""


class Download(Section):
    timeout_seconds: Positive
    """A connection that is silent for this long counts as dead."""
    retries: Annotated[int, Field(ge=0)]
    """Further tries per mirror after the first, each resuming where the last one broke off."""
    retry_wait_seconds: NonNegative
    """Wait before the first retry; doubles with each further one."""
    sets: dict[DataName, DownloadSet]


# --- prepare ----------------------------------------------------------------------------------


class Data(Section):
    """What one data set looks like after `prepare`."""

    num_classes: Count | None
    """None: counted from the folders."""
    train_per_class: Count | None = None
    """Size of the smallest class of the training part, where fixed; bounds labels per class."""
    test_per_class: Count | None = None
    """Size of every class of the test part, where fixed; `prepare` checks it."""
    side: Count
    """Side of the stored square training images."""
    size: Count
    """Side of what the network sees."""
    pad: Annotated[int, Field(ge=0)]
    """Reflect padding of the random crop (same-size sets only)."""
    flip: bool
    """Horizontal flips; off for digits, whose mirror images are other signs."""
    mean: tuple[float, float, float]
    std: tuple[Positive, Positive, Positive]


# --- train ------------------------------------------------------------------------------------


class Train(Section):
    backbone: Backbone
    steps_per_epoch: Count
    """An epoch is a counter of this many steps, not a pass over the data."""
    epochs: Count
    batch: Count
    """B, labeled images per step."""
    mu: Count
    """Unlabeled images per step are mu * B."""
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)]
    nesterov: bool
    weight_decay: NonNegative
    """Not applied to parameters of one dimension (norms, biases)."""
    cosine: Annotated[float, Field(ge=0, le=0.5)]
    """lr(k) = lr * cos(cosine * pi * k / steps): 7/16 in FixMatch."""
    ema_decay: Annotated[float, Field(ge=0, lt=1)]
    pool_includes_labeled: bool
    """Whether labeled images are also in the unlabeled pool."""
    evaluate_every: Count
    """Steps between closed-set evaluations (also at the last step)."""
    evaluation_batch: Count
    checkpoint_every: Count
    log_every: Count
    precision: Literal["fp32", "bf16"]
    compile: bool
    """`torch.compile` of the backbone."""
    workers: Count
    """Reader threads for data sets that do not fit on the device."""

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch


# --- split ------------------------------------------------------------------------------------


class Pool(Section):
    """A controlled unlabeled pool instead of the whole training part (Fig. 2, Fig. 11)."""

    size: Count
    outlier_share: Probability
    draw: Seed | None = None
    """None: Fig. 11's pool. A number: the n-th independent subset of Fig. 2."""


class LabeledList(Section):
    """A published list of labeled files, used when the raw folder has it."""

    path: Below
    md5: Md5


class Task(Section):
    data: DataName
    known_rule: Literal["first", "listed", "superclasses", "per-superclass", "all"]
    """How known classes are chosen: the first n ids; `known` itself; whole CIFAR-100 super-classes;
    the first ids of every super-class (correlated outliers); every labeled class."""
    num_known: Count | None = None
    """None with the rule `all`."""
    known: tuple[int, ...] | None = None
    """The ids of the rule `listed`."""
    labels_per_class: Count | None = None
    """None: every image of the labeled part (Semi-iNat, own pictures)."""
    labeled_list: LabeledList | None = None
    pool: Pool | None = None
    test_part: Literal["test", "dev"] = "test"
    """`dev` tasks choose parameters without looking at the test part."""
    train: dict[str, Any] = {}
    """Training settings that differ for this task."""


# --- methods ----------------------------------------------------------------------------------


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


# --- evaluate and suites ----------------------------------------------------------------------


class Evaluate(Section):
    last_evaluations: Count
    """The median over this many last evaluations is reported beside best and last."""


class Figures(Section):
    histogram_bins: Count


class Suite(Section):
    tasks: tuple[Name, ...]
    methods: tuple[Name, ...]
    seeds: tuple[Seed, ...]


# --- the file ---------------------------------------------------------------------------------


class TrainSection(Section):
    defaults: dict[str, Any]
    by_data: dict[DataName, dict[str, Any]]


class File(Section):
    """The sections of `params.yaml`; entries with a `base` are merged before this is read."""

    suite: str
    download: Download
    prepare: dict[DataName, Data]
    train: TrainSection
    tasks: dict[Name, Task]
    methods: dict[Name, MethodEntry]
    evaluate: Evaluate
    figures: Figures
    suites: dict[Name, Suite]
