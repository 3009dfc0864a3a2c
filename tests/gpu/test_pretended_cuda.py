"""The pretended device itself: what it catches, what it lets pass, and what it leaves behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pretended_cuda as pretending
import pytest
import torch
import toy
from pretended_cuda import pretended_cuda
from pretended_log import Sync
from pretended_runs import first_steps
from torch import Tensor

from dac import losses
from dac.augment import views
from dac.config import Params
from dac.consensus import ScoreMemory
from dac.methods.fixmatch import FixMatch

HOST = torch.arange(3)


# --- mutations of the package -----------------------------------------------------------------


@pytest.fixture
def syncs(params: Params, root: Path) -> Callable[[str], list[Sync]]:
    """Waits in the first step of a method."""

    def of_method(method: str = "fixmatch") -> list[Sync]:
        run, data = params.run(toy.TASK, method, 1), toy.toy_data(params, method, root)
        (step,) = first_steps(run, data, 1)
        return step.syncs

    return of_method


def changed(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, change: Callable[..., Any]
) -> None:
    """`change` gets the original function and what it is called with."""
    original = getattr(place, name)
    monkeypatch.setattr(place, name, lambda *given, **named: change(original, *given, **named))


def test_without_a_mutation_nothing_waits(syncs: Callable[..., list[Sync]]) -> None:
    assert syncs() == []


LOSSES: dict[str, tuple[Callable[..., Any], str, str]] = {
    "item": (lambda f, x, y: f(x, y) * f(x, y).item(), "value", "_local_scalar_dense"),
    "branch": (lambda f, x, y: f(x, y) if (y >= 0).all() else 0, "value", "_local_scalar_dense"),
    "mask": (lambda f, x, y: f(x[y >= 0], y[y >= 0]), "value", "aten.index.Tensor"),
    "nonzero": (lambda f, x, y: f(x, y) * len((y >= 0).nonzero()), "value", "aten.nonzero"),
    "to host": (lambda f, x, y: f(x, y) * f(x, y).cpu(), "to host", "aten._to_copy"),
    "new number": (
        lambda f, x, y: f(x, y) * torch.tensor(2.0, device=y.device),
        "to device",
        "aten._to_copy",
    ),
    "wait": (lambda f, x, y: torch.cuda.synchronize() or f(x, y), "synchronize", "cuda"),
}


@pytest.mark.parametrize("mutation", LOSSES)
def test_a_loss_that_waits_is_found_with_its_place(
    mutation: str, syncs: Callable[..., list[Sync]], monkeypatch: pytest.MonkeyPatch
) -> None:
    change, kind, operation = LOSSES[mutation]
    changed(monkeypatch, losses, "supervised", change)
    first, *_ = syncs()  # the backward pass may wait, too
    assert first.kind == kind and operation in first.operation
    assert first.place.startswith("dac/methods/fixmatch.py:")


def test_a_tensor_that_is_left_on_the_host_is_the_error_of_cuda(
    syncs: Callable[..., list[Sync]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def weighted(terms: Callable[..., Any], *given: Any) -> dict[str, Tensor]:
        return {name: term * torch.ones(term.shape or 1) for name, term in terms(*given).items()}

    changed(monkeypatch, FixMatch, "terms", weighted)
    with pytest.raises(RuntimeError, match=r"at least two devices, cuda:0 and cpu! .*aten\.mul"):
        syncs()


@pytest.mark.parametrize(
    "send",
    [
        lambda host, device: host.to(device),
        lambda host, device: host.to(device, non_blocking=True),
        lambda host, device: host.pin_memory().to(device),
    ],
    ids=["not pinned", "not pinned, non-blocking", "pinned, blocking"],
)
def test_a_copy_that_waits_is_found(
    send: Callable[..., Tensor],
    syncs: Callable[..., list[Sync]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "send", send)
    found = syncs()
    assert {sync.kind for sync in found} == {"to device"}
    assert all(sync.place.startswith("dac/augment/views.py:") for sync in found)


def test_a_number_assigned_by_index_is_copied(
    syncs: Callable[..., list[Sync]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch makes it a tensor of the host, which `index_put_` copies to the device."""

    def update(original: Callable[..., Tensor], memory: ScoreMemory, *given: Tensor) -> Tensor:
        memory.visited[given[0]] = True
        return original(memory, *given)

    changed(monkeypatch, ScoreMemory, "update", update)
    (sync,) = syncs("dac")
    assert (sync.kind, sync.operation) == ("to device", "aten.index_put_.default")


# --- single operations ------------------------------------------------------------------------

FREE: dict[str, Callable[[Tensor], object]] = {
    "a number of the host": lambda x: x * torch.tensor(2),
    "numbers of Python": lambda x: torch.where(x > 0, 1.0, 2.0) + 3,
    "fill by mask": lambda x: x.__setitem__(x > 0, 7),
    "fill by slice": lambda x: x.__setitem__(slice(1), 7),
    "look up": lambda x: x[x],
    "sizes": lambda x: x.new_zeros(len(x), x.shape[0]).numel(),
    "pinned": lambda x: HOST.pin_memory()[1:].to(x.device, non_blocking=True),
}
WAITING: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "int": (lambda x: int(x[0]), "value"),
    "tolist": (lambda x: x.tolist(), "to host"),
    "index by a tensor without dimensions": (lambda x: x[x[0]], "value"),
    "unique": (lambda x: x.unique(), "value"),
    "bincount": (lambda x: x.bincount(), "value"),
    "equal": (lambda x: torch.equal(x, x), "value"),
    "masked_select": (lambda x: x.masked_select(x > 0), "value"),
    "index of the host": (lambda x: x[HOST], "to device"),
    "where": (lambda x: torch.where(x > 0, x, torch.tensor(1)), "to device"),
    "as_tensor": (lambda x: torch.as_tensor([1.0], device=x.device), "to device"),
    "copy_": (lambda x: x.copy_(HOST), "to device"),
    "copy_ to the host": (lambda x: torch.zeros(3).copy_(x), "to host"),
}


@pytest.mark.parametrize("name", FREE)
def test_an_operation_that_does_not_wait(name: str) -> None:
    with pretended_cuda() as log:
        x = HOST.to("cuda")
        log.reset()
        FREE[name](x)
        assert not log.syncs


@pytest.mark.parametrize("name", WAITING)
def test_an_operation_that_waits(name: str) -> None:
    operation, kind = WAITING[name]
    with pretended_cuda() as log:
        x = HOST.to("cuda")
        log.reset()
        operation(x)
        assert [sync.kind for sync in log.syncs] == [kind]


def test_views_and_allocations_are_no_launches_and_a_list_is_one() -> None:
    with pretended_cuda() as log:
        x, y = torch.zeros(2, 3, device="cuda"), torch.ones(3, device="cuda:0")
        log.reset()
        _ = x[0], x.T, x.view(6), x.detach(), torch.empty_like(x), x.split(1)
        assert log.launches == 0
        torch._foreach_add_([x, y], 1)
        assert log.launches == 1 and HOST.sum() == 3, "the host's own operations are none"


# --- the process ------------------------------------------------------------------------------


def test_afterwards_the_process_is_as_it_was_and_can_fork() -> None:
    def error_without_cuda() -> str:
        with pytest.raises((AssertionError, RuntimeError)) as caught:
            torch.zeros(1, device="cuda")
        return str(caught.value)

    before = error_without_cuda()
    with pretended_cuda():
        x = torch.ones(3, device="cuda", requires_grad=True)
        (2 * x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
    assert error_without_cuda() == before and not torch.cuda.is_available()
    assert torch.accelerator.current_accelerator() is None
    with pytest.raises(RuntimeError, match="outside `with pretended_cuda"):
        x.grad.sum()
    child = os.fork()
    if child == 0:
        try:
            torch.ones(3, requires_grad=True).sum().backward()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("demanded", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_without_a_compiler_it_is_skipped_unless_one_is_demanded(
    demanded: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("DAC_REQUIRE_COMPILER", demanded)
    with pytest.raises(outcome, match=r"no C\+\+ compiler"):
        pretending._library.__wrapped__()
