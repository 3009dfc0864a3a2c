"""Load `params.yaml`; nothing else reads it. Every fault of the file is reported at once.

`load` returns the typed file; `Params.run` resolves one run: defaults, then the differences of the
data set, the task and the method. A later difference wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dac.config.base import NUM_SEEDS, Backbone, DataName
from dac.config.bases import merge_bases
from dac.config.checks import ENTRIES, find_faults
from dac.config.file import File
from dac.config.messages import Message, Place, one_line
from dac.config.methods import DacSettings, MethodEntry, MethodSettings, settings_of
from dac.config.results import Suite
from dac.config.run import EVALUATION_ONLY, PretrainRun, Run
from dac.config.tasks import Task
from dac.config.train import Pretrain, Train
from dac.config.yaml_file import read_yaml
from dac.io.errors import UserError
from dac.io.suggestions import hint

DEFAULT_PATH = Path("params.yaml")
MOST_FAULTS = 10  # shown at once
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Params:
    path: Path
    file: File

    def task(self, name: str) -> Task:
        return _pick(self.file.tasks, name, "task", self.path)

    def evaluation(self, run: Run) -> dict[str, Any]:
        """Everything besides the network that determines its metrics."""
        method = run.method.model_dump(mode="json", include=EVALUATION_ONLY)
        return self.file.evaluate.model_dump(mode="json") | method

    def expected(self, run: Run) -> dict[str, Any]:
        """The identity that the metrics of a run must have."""
        return run.identity() | {"evaluate": self.evaluation(run)}

    def suite(self, name: str | None = None) -> Suite:
        return _pick(self.file.suites, name or self.file.suite, "suite", self.path)

    def pretrain(self, data: DataName, backbone: Backbone) -> PretrainRun:
        section = self.file.pretrain
        settings = Pretrain(**section.defaults | section.by_data.get(data, {}))
        return PretrainRun(data, backbone, self.file.prepare[data], settings)

    def run(self, task_name: str, method_name: str, seed: int) -> Run:
        task = self.task(task_name)
        entry = _pick(self.file.methods, method_name, "method", self.path)
        check_seed(seed)
        train = Train(**_train_values(self.file, task, entry))
        if train.nesterov and train.momentum == 0:
            raise UserError(
                f"{self.path} sets, for {task_name} with {method_name}, nesterov: true and "
                "momentum: 0; Nesterov's step needs a momentum above 0, or set nesterov: false"
            )
        method = _settings(entry, task.data)
        _check_phases(method, train, task_name, method_name, self.path)
        if isinstance(method, DacSettings):
            method = method.around(_settings(self.file.methods[method.objective], task.data))
            _check_phases(method.target, train, task_name, method.objective, self.path)
        return Run(
            task_name=task_name,
            method_name=method_name,
            seed=seed,
            task=task,
            data=self.file.prepare[task.data],
            train=train,
            method=method,
        )


def check_seed(seed: int) -> None:
    if not 0 <= seed < NUM_SEEDS:
        raise UserError(f"seed {seed} is outside 0..{NUM_SEEDS - 1}; give one in this range")


def load(path: Path = DEFAULT_PATH) -> Params:
    """Return the parameters in `path`; a UserError lists everything that is wrong with it."""
    return parse(read_yaml(path), path)


def parse(written: dict[str, Any], path: Path) -> Params:
    """Return the parameters from a file's mappings; `path` names the file in messages."""
    merged = dict(written)
    baseless: dict[Place, Message] = {}
    for section in ENTRIES:
        if isinstance(written.get(section), dict):
            merged[section] = merge_bases(written[section], section, baseless)
    faults = [((*place, "base"), message) for place, message in baseless.items() if message]
    faults += find_faults(merged, written, baseless)
    if faults:
        listed = [f"  - {one_line(fault)}" for fault in faults[:MOST_FAULTS]]
        if len(faults) > MOST_FAULTS:
            listed.append(f"  and {len(faults) - MOST_FAULTS} more; fix these first")
        raise UserError("\n".join([f"{path} has {len(faults)} fault(s):", *listed]))
    return Params(path, File.model_validate(merged))


# --- resolving --------------------------------------------------------------------------------


def _train_values(file: File, task: Task, entry: MethodEntry) -> dict[str, Any]:
    return (
        file.train.defaults
        | file.train.by_data.get(task.data, {})
        | task.train
        | entry.train
        | entry.train_by_data.get(task.data, {})
    )


def _settings(entry: MethodEntry, data: DataName) -> MethodSettings:
    values = entry.settings | entry.by_data.get(data, {})
    return settings_of(entry.method)(**values).of_method(entry.method)


def _check_phases(
    method: MethodSettings, train: Train, task_name: str, entry: str, path: Path
) -> None:
    """Refuse a phase that begins after the last epoch: it would silently never happen."""
    for name, first in method.first_epochs().items():
        if first >= train.epochs:
            raise UserError(
                f"{path} sets, for {task_name} with {entry}, {train.epochs} epochs and {name}: "
                f"{first}, so a phase of the method would never begin. Train for more epochs or "
                f"lower {name} under methods.{entry}.by_data"
            )


def _pick(entries: Mapping[str, Entry], name: str, kind: str, path: Path) -> Entry:
    if name not in entries:
        raise UserError(f"{kind} {name!r} is not in {path}{hint(name, entries)}")
    return entries[name]
