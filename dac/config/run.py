"""One resolved run: everything that training needs to know, and what determines its result."""

from dataclasses import dataclass
from typing import Any

from dac.config.base import Backbone, DataName
from dac.config.data import Data
from dac.config.methods import DacSettings, MethodSettings
from dac.config.tasks import Task
from dac.config.train import Pretrain, Train

OPERATIONAL = {"checkpoint_every", "log_every", "workers"}
EVALUATION_ONLY = {"reject_below"}  # settings of a method that training does not read


@dataclass(frozen=True)
class Run:
    """Everything that one training run needs to know, resolved."""

    task_name: str
    method_name: str
    seed: int
    task: Task
    data: Data
    train: Train
    method: MethodSettings

    @property
    def objective(self) -> MethodSettings | None:
        """Settings of DAC's objective; None for the other methods."""
        return self.method.target if isinstance(self.method, DacSettings) else None

    def identity(self) -> dict[str, Any]:
        """Everything that determines the network. Excluded: how often to save and log, the number
        of reader threads, and what only evaluation reads."""
        everything = self.as_dict()
        train = {k: v for k, v in everything["train"].items() if k not in OPERATIONAL}
        methods = {
            part: {k: v for k, v in everything[part].items() if k not in EVALUATION_ONLY}
            for part in ("method", "objective")
            if part in everything
        }
        return everything | {"train": train} | methods

    def as_dict(self) -> dict[str, Any]:
        objective = {} if self.objective is None else {"objective": _as_dict(self.objective)}
        return {
            "task": {
                "name": self.task_name,
                **self.task.model_dump(mode="json", exclude={"train"}),
            },
            "method": {"name": self.method_name, **_as_dict(self.method)},
            **objective,
            "seed": self.seed,
            "data": self.data.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
        }


def _as_dict(settings: MethodSettings) -> dict[str, Any]:
    """The settings, and the file of a method that is not ours: another file is another run."""
    file = {"file": settings.method} if settings.method.endswith(".py") else {}
    return file | settings.model_dump(mode="json")


@dataclass(frozen=True)
class PretrainRun:
    """Everything that pre-training one backbone on one data set needs to know, resolved."""

    data_name: DataName
    backbone: Backbone
    data: Data
    settings: Pretrain

    def identity(self) -> dict[str, Any]:
        """Everything that determines the result."""
        return {
            "data": {"name": self.data_name, **self.data.model_dump(mode="json")},
            "backbone": self.backbone,
            "pretrain": self.settings.model_dump(mode="json", exclude=OPERATIONAL),
        }
