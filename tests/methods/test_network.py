"""The network of a run: how it starts, what its state holds, what it leaves out of a model file."""

import pytest
import torch
from plain import is_same, statistics
from torch import Tensor
from toy_runs import METHODS, Toy, toy_run

from dac.config.methods import SHIPPED
from dac.io.errors import UserError
from dac.methods.base import Sizes
from dac.methods.fixmatch import FixMatch
from dac.methods.network import build_method
from dac.methods.parts.rules import Rule, at_least
from dac.models.ema import Ema


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


def test_average_of_a_method_covers_its_heads() -> None:
    toy = Toy(toy_run("dac"))
    assert set(Ema(toy.network, 0.9).average) == {n for n, _ in toy.network.named_parameters()}
    assert "method.heads.linear.weight" in toy.ema.average


class NoRule(FixMatch):
    def rules(self) -> dict[str, Rule]:
        return {}


class WrongRule(FixMatch):
    def rules(self) -> dict[str, Rule]:
        return {"published": at_least(self.settings.reject_beneath)}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoRule, "the rules of fixmatch are none; override `rules`"),
        (WrongRule, r"the rules of fixmatch cannot be read \(.*reject_beneath"),
    ],
)
def test_a_method_without_a_published_rule_is_refused_before_training(
    kind: type[FixMatch], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dac.methods.network.class_of", lambda settings: kind)
    with pytest.raises(UserError, match=message):
        Toy(toy_run("fixmatch"))


@pytest.mark.parametrize("frozen", [True, False])
def test_encode_freezes_when_asked_and_not_otherwise(frozen: bool) -> None:
    network = Toy(toy_run("labeled-only")).network
    images = 2 * torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(7)) + 1
    before = statistics(network)
    features = network.encode(images, frozen=frozen)
    assert is_same(statistics(network), before) == frozen
    assert torch.equal(features, network.encode(images))


def test_a_finished_step_writes_every_bank_of_the_method_and_of_its_objective_once() -> None:
    network = Toy(toy_run("simmatch+dac")).network
    written: list[tuple[Tensor, ...]] = []
    assert network.banks == [network.method.objective.bank, network.method.bank]
    for bank in network.banks:
        bank.write = lambda *rows: written.append(rows)
        bank.stage(torch.ones(2), torch.zeros(2))
    for _ in range(2):  # the second time there is nothing to write
        network.finish_step()
        assert len(written) == 2


def test_banks_are_left_out_of_the_finished_model_and_nothing_else_of_dac_is() -> None:
    network = Toy(toy_run("dac")).network
    dropped = {n for n in network.state_dict() if not network.needed_for_evaluation(n)}
    assert dropped == {f"method.bank.{name}" for name in ("z", "q", "position")}


def test_a_method_is_found_by_the_type_of_its_settings() -> None:
    sizes = Sizes(5, 3, num_labeled=6, pool=9, batch=2, unlabeled_batch=4, xavier_head=True)
    for name, settings_class in SHIPPED.items():
        run = toy_run(name)
        assert type(run.method) is settings_class
        method = build_method(run.method, sizes, torch.Generator())
        module = f"dac.methods.{name.replace('-', '_')}"
        assert type(method).__module__ == module and method.settings is run.method
