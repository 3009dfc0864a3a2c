"""Steps of real training loops on a pretended CUDA device, one method at a time."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from pretended_cuda import pretended_cuda
from pretended_log import StepLog, logged_steps
from torch import Tensor, nn
from toy_runs import PARAMS

from dac.augment import Policy
from dac.config import Run
from dac.data.run_data import RunData, policy
from dac.io.device import choose_device
from dac.methods import network
from dac.training import loop, pretraining
from dac.training.batches import Batches
from dac.training.meter import Meter
from dac.training.run import start
from dac.training.state import StopRequest

TASK, PRETRAINED_DATA = "cifar-50-500", "semi-inat-2021"
SIDE = 4  # of the pictures; it does not change what is launched
SMALLER = 16  # DAC's bank and its blocks


class Enough(Exception):
    """The steps that were asked for are done."""


@contextmanager
def ended_after(count: int, steps: list[StepLog]) -> Iterator[None]:
    """Leave the training loop after this many steps."""
    add = Meter.add

    def add_or_leave(self: Meter, step: int, terms: dict[str, Tensor]) -> None:
        add(self, step, terms)
        if len(steps) == count:
            raise Enough

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Enough):
        patch.setattr(Meter, "add", add_or_leave)
        yield


def first_steps(run: Run, data: RunData, count: int, *, begin: int = 0) -> list[StepLog]:
    """The loop's first `count` steps from step `begin` on, from random weights."""
    with pretended_cuda() as log, logged_steps(log) as steps:
        device = choose_device("cuda")
        state = start(run, data, device)
        state.step = begin
        batches = Batches(data, run.train, state.network.method, state.streams, device)
        with ended_after(count, steps):
            loop.fit(
                state, batches, data, run.train, device=device, save=unused, stop=StopRequest()
            )
    return steps


def unused(state: Any) -> None:
    raise AssertionError("nothing is saved here")


# --- launches outside the backbone, at the paper's settings -----------------------------------


class StandIn(nn.Module):
    """In place of a backbone: features of its width, gradients to nothing, and no launches."""

    xavier_head = False

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = _Unwritten.apply(images, self.anchor, self.feature_dim)
        return features


class _Unwritten(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, anchor: Tensor, feature_dim: int) -> Tensor:
        return images.new_empty(len(images), feature_dim)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, None, None]:
        return None, None, None


def stand_in(build: Callable[..., nn.Module]) -> Callable[..., StandIn]:
    return lambda *given, **named: StandIn(int(build(*given, **named).feature_dim))


def paper_step(method: str) -> StepLog:
    """A step of the last epoch with the paper's batches, without its backbone.

    Sums and momentum exist since the step before it. Pictures are tiny and DAC's bank is smaller,
    which does not change what is launched.
    """
    run = PARAMS.run(TASK, method, 1)
    if hasattr(run.method, "bank_batches"):
        smaller = {"bank_batches": run.method.bank_batches // SMALLER}
        run = dataclasses.replace(run, method=run.method.model_copy(update=smaller))
    begin = (run.train.epochs - 1) * run.train.steps_per_epoch + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "build_backbone", stand_in(network.build_backbone))
        return first_steps(run, blank_data(tiny(policy(run.data))), 2, begin=begin)[-1]


def tiny(chosen: Policy) -> Policy:
    return dataclasses.replace(chosen, size=SIDE, pad=1)


def blank_data(policy: Policy) -> RunData:
    """Black pictures, in the numbers of CIFAR-100."""
    num_known, num_labeled, num_images = 50, 500, 50_000
    images = np.zeros((num_images, 3, SIDE, SIDE), np.uint8)
    labeled, pool = np.split(np.arange(num_images), [num_labeled])
    return RunData(
        num_known=num_known,
        train_images=images,
        labeled_index=labeled,
        labels=labeled % num_known,
        pool_index=pool,
        pool_labels=pool % num_known,
        test_images=images[:num_known],
        test_labels=np.arange(num_known),
        policy=policy,
        split_hash="",
    )


def paper_pretraining_step() -> StepLog:
    """The same for SimSiam; two views are drawn."""
    run = PARAMS.pretrain(PRETRAINED_DATA, "resnet18")
    images = np.zeros((4 * run.settings.batch, 3, SIDE + 1, SIDE + 1), np.uint8)
    with pytest.MonkeyPatch.context() as patch, pretended_cuda() as log, logged_steps(log) as steps:
        patch.setattr(pretraining, "build_backbone", stand_in(pretraining.build_backbone))
        device = choose_device("cuda")
        state, batches = pretraining.start(run, device), pretraining.all_images(images, run, device)
        given = (state, batches, tiny(policy(run.data)), run.settings)
        with ended_after(2, steps):
            pretraining.fit(*given, save=unused, stop=StopRequest(), label="")
    return steps[-1]
