"""The types of `params.yaml`: one frozen, strict model per section, a sentence under every field.

Values live in `params.yaml` with their sources; ranges and meanings live here. No torch in this
folder: the workflow reads parameters a lot and must stay quick.
"""

from dac.settings.base import FIRST_EPOCH_MARK, NUM_SEEDS, Backbone, DataName, Name, Section
from dac.settings.data import Archive, Data, Download, DownloadSet
from dac.settings.method_base import GRADIENT, Forwards
from dac.settings.methods import (
    SETTINGS,
    CoMatchSettings,
    DacSettings,
    FixMatchSettings,
    LabeledOnlySettings,
    MethodEntry,
    MethodSettings,
    MixMatchSettings,
    Objective,
    SimMatchSettings,
    SoftMatchSettings,
)
from dac.settings.open_set import (
    IOMatchSettings,
    MtcfSettings,
    OpenMatchSettings,
    OspSettings,
    SafeStudentSettings,
    SsbSettings,
    UAGregSettings,
)
from dac.settings.results import (
    STAGE_TARGETS,
    Aggregate,
    Evaluate,
    Figure,
    Figures,
    Grid,
    Plan,
    Suite,
    Table,
)
from dac.settings.tasks import LabeledList, Pool, Task
from dac.settings.train import Pretrain, PretrainSection, Train, TrainSection


class File(Section):
    """The sections of `params.yaml`; entries with a `base` are merged before this is read."""

    suite: str
    download: Download
    prepare: dict[DataName, Data]
    pretrain: PretrainSection
    train: TrainSection
    tasks: dict[Name, Task]
    methods: dict[Name, MethodEntry]
    planned_methods: tuple[Name, ...]
    """Methods that tables and figures may name before they exist."""
    evaluate: Evaluate
    aggregate: Aggregate
    figures: Figures
    suites: dict[Name, Suite]
    plan: Plan


__all__ = [
    "FIRST_EPOCH_MARK",
    "GRADIENT",
    "NUM_SEEDS",
    "SETTINGS",
    "STAGE_TARGETS",
    "Aggregate",
    "Archive",
    "Backbone",
    "CoMatchSettings",
    "DacSettings",
    "Data",
    "DataName",
    "Download",
    "DownloadSet",
    "Evaluate",
    "Figure",
    "Figures",
    "File",
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
    "Objective",
    "OpenMatchSettings",
    "OspSettings",
    "Plan",
    "Pool",
    "Pretrain",
    "PretrainSection",
    "SafeStudentSettings",
    "Section",
    "SimMatchSettings",
    "SoftMatchSettings",
    "SsbSettings",
    "Suite",
    "Table",
    "Task",
    "Train",
    "TrainSection",
    "UAGregSettings",
]
