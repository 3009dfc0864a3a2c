"""One run, resolved: everything that training it needs to know, and what decides its result."""

from dataclasses import dataclass
from typing import Any, cast

from dac.settings import (
    Backbone,
    DacSettings,
    Data,
    DataName,
    Forwards,
    MethodSettings,
    Objective,
    Pretrain,
    Task,
    Train,
)

OPERATIONAL = {"checkpoint_every", "log_every", "workers"}
OF_EVALUATION = {"reject_below"}  # settings of a method that training does not read


@dataclass(frozen=True)
class Run:
    """Everything one training run needs to know, resolved."""

    task_name: str
    method_name: str
    seed: int
    task: Task
    data: Data
    train: Train
    method: MethodSettings
    objective: Objective | None = None
    """Of DAC: what its target head learns with."""

    def forwards(self, epoch: int) -> Forwards:
        """What a step of an epoch costs."""
        if isinstance(self.method, DacSettings):
            return self.method.forwards_on(cast(Objective, self.objective), epoch)
        return self.method.forwards(epoch)

    def forwards_per_step(self) -> float:
        """Forward passes of images in a step, a backward pass counted as two; mean over epochs."""
        epochs = [self.forwards(epoch) for epoch in range(self.train.epochs)]
        each = self.train.batch
        total = sum(each * (epoch.labeled + self.train.mu * epoch.unlabeled) for epoch in epochs)
        return total / len(epochs)

    def identity(self) -> dict[str, Any]:
        """What decides the network: everything but how often to save and log, reader threads, and
        what only evaluation reads."""
        everything = self.as_dict()
        train = {k: v for k, v in everything["train"].items() if k not in OPERATIONAL}
        methods = {
            part: {k: v for k, v in everything[part].items() if k not in OF_EVALUATION}
            for part in ("method", "objective")
            if part in everything
        }
        return everything | {"train": train} | methods

    def as_dict(self) -> dict[str, Any]:
        objective = self.objective and {"objective": self.objective.model_dump(mode="json")}
        return {
            "task": {
                "name": self.task_name,
                **self.task.model_dump(mode="json", exclude={"train"}),
            },
            "method": {"name": self.method_name, **self.method.model_dump(mode="json")},
            **(objective or {}),
            "seed": self.seed,
            "data": self.data.model_dump(mode="json"),
            "train": self.train.model_dump(mode="json"),
        }


@dataclass(frozen=True)
class PretrainRun:
    """Everything that pre-training one backbone on one data set needs to know, resolved."""

    data_name: DataName
    backbone: Backbone
    data: Data
    settings: Pretrain

    def identity(self) -> dict[str, Any]:
        """What decides the result."""
        return {
            "data": {"name": self.data_name, **self.data.model_dump(mode="json")},
            "backbone": self.backbone,
            "pretrain": self.settings.model_dump(mode="json", exclude=OPERATIONAL),
        }
