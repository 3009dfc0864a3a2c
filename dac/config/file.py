"""The sections of `params.yaml`, as one model."""

from dac.config.base import DataName, Name, Section
from dac.config.data import Data, Download
from dac.config.methods import MethodEntry
from dac.config.plan import Plan
from dac.config.results import Aggregate, Evaluate, Figures, Suite
from dac.config.tasks import Task
from dac.config.train import PretrainSection, TrainSection


class File(Section):
    """The sections of `params.yaml`; entries with a `base` are merged before this is read."""

    suite: str
    download: Download
    prepare: dict[DataName, Data]
    pretrain: PretrainSection
    train: TrainSection
    tasks: dict[Name, Task]
    methods: dict[Name, MethodEntry]
    evaluate: Evaluate
    aggregate: Aggregate
    figures: Figures
    suites: dict[Name, Suite]
    plan: Plan
