"""Methods on degenerate inputs: values, gradients and memory stay finite."""

import pytest
import torch
from torch import Tensor, nn
from toy_runs import DISTINCT, POOL, STEPS_PER_EPOCH, Toy, clock, every_tensor, toy_run

from dac.methods.step import Batch

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
ACTIVE = {"tau": 0.4}  # so low that the unlabeled loss matters from the start
FORMS = ("dac", "dac-released")


@pytest.mark.parametrize("method", DISTINCT)
def test_first_steps_before_and_after_warm_up_are_finite(method: str) -> None:
    for first in (0, AFTER):
        assert_finite_step(Toy(toy_run(method)), first)


def assert_finite_step(
    toy: Toy, step: int, batch: Batch | None = None, *, bf16: bool = False, backward: bool = True
) -> dict[str, Tensor]:
    """Terms and the gradient of their sum are finite; returns the terms."""
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):  # as in the loop: forward only
        terms = toy.terms(step, batch)
    toy.network.zero_grad()
    if backward:
        torch.stack([term.mean() for term in terms.values()]).sum().backward()
    for name, term in terms.items():
        assert term.isfinite().all(), name
    for name, parameter in toy.network.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    toy.network.finish_step()
    for name, buffer in toy.network.named_buffers():
        assert buffer.isfinite().all(), name
    return terms


@pytest.mark.parametrize("method", FORMS)
def test_one_head_is_finite_and_agrees_with_itself(method: str) -> None:
    toy = Toy(toy_run(method, num_heads=1, **ACTIVE))
    for step in range(AFTER, AFTER + 8):
        assert assert_finite_step(toy, step)["mutual_information"] == 0
    memory = toy.method.memory
    assert memory.visited.sum() > POOL // 2 and (memory.consensus[memory.visited] == 1).all()


@pytest.mark.parametrize("method", DISTINCT)
def test_batch_of_one_is_finite(method: str) -> None:
    toy = Toy(toy_run(method))
    for step in (0, AFTER):
        assert_finite_step(toy, step, every_tensor(toy.batch(step), lambda tensor: tensor[:1]))
    if hasattr(toy.method, "memory"):  # all pool items unvisited but two
        assert toy.method.memory.visited.sum() <= 2


@pytest.mark.parametrize("method", DISTINCT)
def test_saturated_softmaxes_are_finite(method: str) -> None:
    toy = Toy(toy_run(method))
    with torch.no_grad():
        for name, parameter in toy.network.method.named_parameters():
            if "head" in name and parameter.ndim == 2:
                parameter.mul_(1e4)
    features = toy.network.encode(toy.pool)
    assert toy.method.logits(features).abs().max() > 1e3
    for step in (AFTER, AFTER + 1):
        assert_finite_step(toy, step)


@pytest.mark.parametrize("method", FORMS)
def test_all_zero_bank_is_finite(method: str) -> None:
    toy = Toy(toy_run(method))
    toy.method.bank.z.zero_()
    toy.method.bank.q.zero_()
    assert_finite_step(toy, AFTER)


def test_threshold_of_zero_is_finite_and_rejects_nobody() -> None:
    forget = {"score_momentum": 1.0}  # every score stays zero, and so does tau_open
    toy, free = (Toy(toy_run("dac", rejection=r, **ACTIVE | forget)) for r in (True, False))
    found = assert_finite_step(toy, AFTER)["unlabeled"]
    assert toy.method.tau_open == 0
    assert torch.equal(found, free.terms(AFTER)["unlabeled"])


def test_equal_scores_reject_nobody() -> None:
    toy, free = Toy(toy_run("dac", **ACTIVE)), Toy(toy_run("dac", rejection=False, **ACTIVE))
    for each in (toy, free):
        nn.init.zeros_(each.method.heads.linear.weight)  # all heads say the same of every image
    found, expected = assert_finite_step(toy, AFTER), free.terms(AFTER)
    assert torch.equal(found["unlabeled"], expected["unlabeled"])
    assert toy.method.memory.score[toy.method.memory.visited].unique().numel() == 1


@pytest.mark.parametrize("method", DISTINCT)
def test_bfloat16_steps_are_finite_and_close_to_float32(method: str) -> None:
    # DAC's logarithms and scores need float32 whatever the precision of the network is.
    exact, fast = Toy(toy_run(method)), Toy(toy_run(method))
    for step in (AFTER - 1, AFTER):
        expected = exact.terms(step)
        found = assert_finite_step(fast, step, bf16=True, backward=step == AFTER)
        exact.network.finish_step()
        for name, term in found.items():
            assert term.dtype == torch.float32, name
            assert term.mean().item() == pytest.approx(expected[name].mean().item(), abs=0.1), name


def test_clock_of_the_toys_counts_epochs() -> None:
    assert clock(AFTER - 1).epoch == 0 and clock(AFTER).epoch == 1
