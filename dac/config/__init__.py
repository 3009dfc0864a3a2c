"""`params.yaml`: its types, with a sentence under every field; loading, checks and resolution.

Values are in `params.yaml` with their sources; ranges and meanings are here, one file per section.
No torch in this folder: the workflow reads parameters in every job and must stay fast.
"""

from dac.config.base import (
    FIRST_EPOCH_MARK,
    NUM_SEEDS,
    Backbone,
    Count,
    DataName,
    FirstEpoch,
    Name,
    NonNegative,
    Positive,
    Probability,
    Section,
)
from dac.config.data import Archive, Data, Download, DownloadSet
from dac.config.file import File
from dac.config.methods import (
    SHIPPED,
    CoMatchSettings,
    DacSettings,
    FixMatchSettings,
    IOMatchSettings,
    LabeledOnlySettings,
    MethodEntry,
    MethodSettings,
    MixMatchSettings,
    MtcfSettings,
    OpenMatchSettings,
    OspSettings,
    SafeStudentSettings,
    SimMatchSettings,
    SoftMatchSettings,
    SsbSettings,
    UAGregSettings,
)
from dac.config.methods.common import WithConfidence
from dac.config.methods.phase import GRADIENT, Forwards, Phase, Stream, ViewCounts
from dac.config.params import DEFAULT_PATH, Params, check_seed, load, parse
from dac.config.plan import Plan
from dac.config.results import (
    STAGE_TARGETS,
    Aggregate,
    Evaluate,
    Figure,
    Figures,
    Grid,
    Suite,
    Table,
)
from dac.config.run import PretrainRun, Run
from dac.config.tasks import LabeledList, Pool, Task
from dac.config.train import Pretrain, PretrainSection, Train, TrainSection

__all__ = [
    "DEFAULT_PATH",
    "FIRST_EPOCH_MARK",
    "GRADIENT",
    "NUM_SEEDS",
    "SHIPPED",
    "STAGE_TARGETS",
    "Aggregate",
    "Archive",
    "Backbone",
    "CoMatchSettings",
    "Count",
    "DacSettings",
    "Data",
    "DataName",
    "Download",
    "DownloadSet",
    "Evaluate",
    "Figure",
    "Figures",
    "File",
    "FirstEpoch",
    "FixMatchSettings",
    "Forwards",
    "Grid",
    "IOMatchSettings",
    "LabeledList",
    "LabeledOnlySettings",
    "MethodEntry",
    "MethodSettings",
    "MixMatchSettings",
    "MtcfSettings",
    "Name",
    "NonNegative",
    "OpenMatchSettings",
    "OspSettings",
    "Params",
    "Phase",
    "Plan",
    "Pool",
    "Positive",
    "Pretrain",
    "PretrainRun",
    "PretrainSection",
    "Probability",
    "Run",
    "SafeStudentSettings",
    "Section",
    "SimMatchSettings",
    "SoftMatchSettings",
    "SsbSettings",
    "Stream",
    "Suite",
    "Table",
    "Task",
    "Train",
    "TrainSection",
    "UAGregSettings",
    "ViewCounts",
    "WithConfidence",
    "check_seed",
    "load",
    "parse",
]
