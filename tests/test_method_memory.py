"""Methods: how they start, what they remember, when they write it, what a step never does."""

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, METHODS, MU, POOL, STEPS_PER_EPOCH, Toy, clock, every_tensor, toy_run

from dac.course import Meter
from dac.loop import make_optimizer
from dac.models.ema import Ema
from dac.otsu import otsu_threshold

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
U = BATCH * MU

# --- construction -------------------------------------------------------------------------------


def test_encoder_and_target_head_start_alike_for_every_method_of_a_seed() -> None:
    starts = [encoder_path_start(Toy(toy_run(method))) for method in METHODS if method != "ssb"]
    for start in starts[1:]:
        assert all(torch.equal(start[k], starts[0][k]) for k in starts[0])
    other = encoder_path_start(Toy(toy_run("dac", seed=2)))
    assert not torch.equal(other["weight"], starts[0]["weight"])


def encoder_path_start(toy: Toy) -> dict[str, Tensor]:
    head = getattr(toy.method, "objective", toy.method).head
    return {"weight": head.weight, **toy.network.backbone.state_dict()}


def test_network_is_a_function_of_its_seed() -> None:
    first, second = (Toy(toy_run("dac")).network.state_dict() for _ in range(2))
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_memory_is_in_the_state_dict() -> None:
    names = {f"method.memory.{n}" for n in ("consensus", "score", "visited")}
    names |= {f"method.bank.{n}" for n in ("z", "q", "position")} | {"method.tau_open"}
    assert names <= set(Toy(toy_run("dac")).network.state_dict())


@pytest.mark.parametrize("method", METHODS)
def test_copying_the_state_mid_run_changes_nothing(method: str) -> None:
    whole, resumed = Toy(toy_run(method)), Toy(toy_run(method))
    for step in range(AFTER - 2, AFTER + 2):
        whole.step(step)
    resumed.network.load_state_dict(whole.network.state_dict())
    resumed.optimizer.load_state_dict(copy.deepcopy(whole.optimizer.state_dict()))
    resumed.ema.load_state_dict(whole.ema.state_dict())
    resumed.draw.set_state(whole.draw.get_state())
    for name, stream in resumed.streams.items():
        stream.set_state(whole.streams[name].get_state())
    for step in range(AFTER + 2, AFTER + 4):
        assert whole.step(step) == resumed.step(step)
    left, right = (
        {**toy.network.state_dict(), **{f"ema {k}": v for k, v in toy.ema.average.items()}}
        for toy in (whole, resumed)
    )
    assert all(torch.equal(left[name], right[name]) for name in left)


# --- order of writes ----------------------------------------------------------------------------


def test_bank_is_written_by_finish_step_only() -> None:
    toy = Toy(toy_run("dac"))
    bank = toy.method.bank
    before = (bank.z.clone(), bank.q.clone(), bank.position.clone())

    def is_untouched() -> bool:
        now = (bank.z, bank.q, bank.position)
        return all(torch.equal(a, b) for a, b in zip(before, now, strict=True))

    def check() -> None:
        assert is_untouched()

    toy.step(AFTER, between=check)
    assert not is_untouched() and bank.position == U
    assert torch.equal(bank.z[U:], before[0][U:])


def test_bank_receives_unit_embeddings_of_the_weak_views_and_their_targets() -> None:
    toy = Toy(toy_run("dac"))
    toy.network.eval()
    batch = toy.batch()
    toy.terms(0, batch)
    toy.method.finish_step()
    with torch.no_grad():
        features = toy.network.encode(batch.u_weak[0])
        z = F.normalize(toy.method.projection(features))
        p = toy.method.logits(features).softmax(dim=1)
    s = toy.method.memory.score[batch.u_index][:, None]
    assert torch.allclose(toy.method.bank.z[:U], z, atol=1e-5)
    assert torch.allclose(toy.method.bank.q[:U], torch.cat([p * s, 1 - s], dim=1), atol=1e-5)


def test_finishing_twice_writes_once() -> None:
    toy = Toy(toy_run("dac"))
    toy.terms(0)
    toy.method.finish_step()
    toy.method.finish_step()
    assert toy.method.bank.position == U


def test_scores_and_bank_are_filled_during_warm_up() -> None:
    toy = Toy(toy_run("dac"))
    for step in range(3):
        toy.step(step)
    assert toy.method.bank.position == 3 * U
    assert toy.method.memory.visited.sum() > U
    assert toy.method.tau_open == 0  # the threshold comes with the rejection


def test_threshold_follows_the_scores_at_every_step() -> None:
    toy = Toy(toy_run("dac"))
    seen = set()
    for step in range(AFTER, AFTER + 5):
        toy.step(step)
        seen.add(toy.method.tau_open.item())
    assert len(seen) == 5 and min(seen) > 0


@pytest.mark.parametrize("step", [0, AFTER])
@pytest.mark.parametrize("rejection", [False, True])
def test_training_keeps_what_it_weighs_with_one(step: int, rejection: bool) -> None:
    toy = Toy(toy_run("dac", rejection=rejection))
    for each in range(step, step + 8):
        toy.step(each)
    kept = toy.method.keeps(torch.empty(0), torch.arange(POOL))
    rejects = rejection and step == AFTER
    omega = toy.method.omega(toy.method.memory.score) if rejects else torch.ones(POOL)
    assert torch.equal(kept, omega == 1)
    assert (0 < kept.sum() < POOL) == rejects
    assert bool(toy.method.trained_thresholds()) == rejection


@pytest.mark.parametrize("otsu_eps", [0.0, 0.25])
def test_threshold_is_otsus_over_the_new_scores_plus_its_eps(otsu_eps: float) -> None:
    toy = Toy(toy_run("dac", otsu_eps=otsu_eps))
    toy.terms(AFTER)  # scores are updated first
    memory = toy.method.memory
    expected = otsu_threshold(memory.score[memory.visited]) + otsu_eps
    assert toy.method.tau_open.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("step", [0, AFTER])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_copies_nothing_to_the_host(method: str, step: int) -> None:
    # The meta device has shapes but no values: whatever asks for a number fails there, exactly
    # where a GPU would have to stop and wait.
    toy = Toy(toy_run(method))
    batch = every_tensor(toy.batch(step), lambda tensor: tensor.to("meta"))
    network = toy.network.to("meta")
    optimizer, ema, meter = make_optimizer(network, toy.run.train), Ema(network, 0.9), Meter()
    terms = {name: term.mean() for name, term in network.terms(batch, clock(step), ema).items()}
    torch.stack(list(terms.values())).sum().backward()
    optimizer.step()
    ema.update()
    network.method.finish_step()
    meter.add(step, terms)
