"""Every run on a pretended CUDA device (tests/support/pretended_cuda.py): nothing lies on another
device, no step makes the host wait, and results are those of the CPU to the last bit."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from pretended_cuda import NAME, pretended_cuda
from pretended_log import StepLog, logged_steps
from toy import CPU, TASK

from dac.config import Params, PretrainRun, Run
from dac.data import prepared
from dac.data.run_data import RunData, load_data
from dac.evaluation import network as evaluation
from dac.evaluation.measure import evaluate
from dac.evaluation.outputs import outputs
from dac.io.device import choose_device
from dac.io.errors import Stopped
from dac.runs import checkpoint
from dac.runs.pretrained import Pretrained, load_pretrained
from dac.training import pretraining
from dac.training import run as training
from dac.training.state import StopRequest

pytestmark = pytest.mark.slow

BRIEF = {"steps_per_epoch": 2, "evaluate_every": 6, "checkpoint_every": 4}
POOL, TEST = 240, 120  # images
STOP = 3  # between two checkpoints, in an epoch in which every phase has begun
PRETRAIN = {"epochs": 2, "batch": 400, "checkpoint_every": 4, "log_every": 2}
PRETRAIN_STEPS = 4


@pytest.fixture(scope="module")
def brief(tmp_path_factory: pytest.TempPathFactory) -> Params:
    return toy.toy_params(tmp_path_factory.mktemp("brief"), **BRIEF)


def brief_run(params: Params, method: str, **changes: Any) -> Run:
    """Two epochs of two steps; three where a method has something to do in the third."""
    run = params.run(TASK, method, 1)
    epochs = {} if method == "mtcf" else {"epochs": 2}
    return dataclasses.replace(run, train=run.train.model_copy(update=epochs | changes))


def small_data(params: Params, method: str, root: Path) -> RunData:
    data = toy.toy_data(params, method, root)
    return dataclasses.replace(
        data,
        pool_index=data.pool_index[:POOL],
        pool_labels=data.pool_labels[:POOL],
        test_images=data.test_images[:TEST],
        test_labels=data.test_labels[:TEST],
    )


@contextmanager
def memory_as_on_a_gpu() -> Iterator[None]:
    """Backbones of the CPU have their channels last, too: another order of sums is other bits."""

    def network(*given: Any, **named: Any) -> Any:
        built = build_network(*given, **named)
        built.backbone.to(memory_format=torch.channels_last)
        return built

    def backbone(*given: Any, **named: Any) -> Any:
        return build_backbone(*given, **named).to(memory_format=torch.channels_last)

    build_network, build_backbone = training.build_network, pretraining.build_backbone
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "build_network", network)
        patch.setattr(evaluation, "build_network", network)
        patch.setattr(pretraining, "build_backbone", backbone)
        yield


@pytest.fixture(scope="module")
def on_cpu(
    brief: Params, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The folder of an undisturbed run of a method on the CPU."""

    @cache
    def trained(method: str) -> Path:
        out = tmp_path_factory.mktemp(method)
        with memory_as_on_a_gpu():
            data = small_data(brief, method, root)
            training.train(brief_run(brief, method), data, out, CPU, StopRequest())
        return out

    return trained


Train = Callable[[torch.device, StopRequest], None]


def stopped_and_resumed(train: Train, *, done: int) -> list[StepLog]:
    """Run `train` twice on the pretended device: until a stop, and to its end."""
    found = []
    for stop in (toy.stopping(done), nullcontext(StopRequest())):
        with pretended_cuda() as log, logged_steps(log) as steps, stop as request:
            is_stopped = not found
            with pytest.raises(Stopped) if is_stopped else nullcontext():
                train(choose_device("cuda"), request)
        found += steps
    return found


def waits(steps: list[StepLog]) -> list[Any]:
    return [sync for step in steps for sync in step.syncs]


def measured(run: Run, data: RunData, out: Path, device: torch.device) -> list[Any]:
    model = checkpoint.from_file(out / "model.pt")
    return [*evaluate(run, data, model, 20, device), outputs(run, data, model, device)]


@pytest.mark.parametrize("method", toy.METHODS)
def test_a_run_that_is_stopped_and_resumed_has_the_results_of_the_cpu(
    method: str, brief: Params, root: Path, tmp_path: Path, on_cpu: Callable[[str], Path]
) -> None:
    run, data = brief_run(brief, method), small_data(brief, method, root)

    def train(device: torch.device, stop: StopRequest) -> None:
        training.train(run, data, tmp_path, device, stop)

    steps = stopped_and_resumed(train, done=STOP)
    assert len(steps) == run.train.steps and not waits(steps)
    toy.same_run(tmp_path, on_cpu(method))
    assert json.loads((tmp_path / "run.json").read_text())["provenance"]["device"] == NAME
    with pretended_cuda():
        found = measured(run, data, tmp_path, choose_device("cuda"))
    with memory_as_on_a_gpu():
        np.testing.assert_equal(found, measured(run, data, tmp_path, CPU))


@pytest.mark.parametrize("method", ["dac", "osp"])  # osp reads a part of its pool
def test_images_of_a_memory_map_come_from_pinned_memory(
    method: str, brief: Params, root: Path, tmp_path: Path, on_cpu: Callable[[str], Path]
) -> None:
    run, data = brief_run(brief, method), small_data(brief, method, root)
    mapped = dataclasses.replace(
        data,
        train_images=as_memory_map(data.train_images, tmp_path / "train.bin"),
        test_images=as_memory_map(data.test_images, tmp_path / "test.bin"),
    )
    with pretended_cuda() as log, logged_steps(log) as steps:
        training.train(run, mapped, tmp_path / "run", choose_device("cuda"), StopRequest())
    assert len(steps) == run.train.steps and not waits(steps)
    toy.same_run(tmp_path / "run", on_cpu(method))


def as_memory_map(images: np.ndarray, path: Path) -> np.memmap:
    images.tofile(path)
    return np.memmap(path, np.uint8, "r", shape=images.shape)


def test_bf16_does_not_wait_either(brief: Params, root: Path, tmp_path: Path) -> None:
    run = brief_run(brief, "dac", precision="bf16")
    data = small_data(brief, "dac", root)
    with pretended_cuda() as log, logged_steps(log) as steps:
        training.train(run, data, tmp_path, choose_device("cuda"), StopRequest())
    assert len(steps) == run.train.steps and not waits(steps)
    assert (tmp_path / "model.pt").exists()


# --- pre-training -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pretraining_run(brief: Params) -> PretrainRun:
    run = brief.pretrain("digits", "small-cnn")
    return dataclasses.replace(run, settings=run.settings.model_copy(update=PRETRAIN))


@pytest.fixture(scope="module")
def pretrained(
    pretraining_run: PretrainRun, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Pretrained:
    """The network that the CPU makes."""
    folder = tmp_path_factory.mktemp("pretrained")
    out = folder / "digits" / "small-cnn"
    images = prepared.load(root, "digits").part("train").images
    choose_device("cpu")
    with memory_as_on_a_gpu():
        pretraining.pretrain(pretraining_run, images, out, CPU, StopRequest())
    return load_pretrained(pretraining_run, folder)


def test_pre_training_that_is_stopped_and_resumed_has_the_weights_of_the_cpu(
    pretraining_run: PretrainRun, pretrained: Pretrained, root: Path, tmp_path: Path
) -> None:
    images = prepared.load(root, "digits").part("train").images

    def pretrain(device: torch.device, stop: StopRequest) -> None:
        pretraining.pretrain(pretraining_run, images, tmp_path, device, stop)

    steps = stopped_and_resumed(pretrain, done=3)
    assert len(steps) == PRETRAIN_STEPS and not waits(steps)
    toy.same_run(tmp_path, pretrained.path.parent)


def test_a_run_that_starts_from_a_pre_trained_network_has_the_results_of_the_cpu(
    brief: Params, pretrained: Pretrained, root: Path, tmp_path: Path
) -> None:
    task = "digits-6-30-pretrained"
    toy.add_split(root, task, brief)
    run = brief.run(task, "labeled-only", 1)
    given = run, load_data(run, root)
    with memory_as_on_a_gpu():
        training.train(*given, tmp_path / "cpu", CPU, StopRequest(), pretrained)
    with pretended_cuda():
        device = choose_device("cuda")
        training.train(*given, tmp_path / "cuda", device, StopRequest(), pretrained)
    toy.same_run(tmp_path / "cuda", tmp_path / "cpu")
