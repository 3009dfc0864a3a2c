"""Safe-Student: both discrepancies, the two sets, the weight, and all terms in plain NumPy."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from plain import is_same, softmax, statistics
from torch import Tensor
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, selected, toy_run

from dac.methods.base import Sizes
from dac.methods.safe_student import (
    SafeStudent,
    distilled,
    energy_discrepancy,
    kl_from_uniform,
    original_discrepancy,
    share_of,
)
from dac.methods.step import Batch
from dac.otsu import otsu_threshold

U = BATCH * MU
WARM = STEPS_PER_EPOCH  # the first step after the warm-up
POOLS = (1, 2, 3, 4, 7, 10, 20, 899, 1000, 39000)


def student(**differences: Any) -> Toy:
    """Past the warm-up, with a teacher unlike the network."""
    toy = Toy(toy_run("safe-student", **differences))
    for step in range(4):
        toy.step(step)
    for average in toy.ema.average.values():
        average.mul_(0.7)
    toy.method.start_epoch(clock(WARM), toy.scan)
    return toy


def alone(pool: int, **differences: Any) -> SafeStudent:
    """The method over a pool of this size, without a network."""
    settings = toy_run("safe-student", **differences).method
    sizes = Sizes(5, 3, num_labeled=6, pool=pool, batch=2, unlabeled_batch=4, xavier_head=False)
    return SafeStudent(settings, sizes, torch.Generator())


def ranked(method: SafeStudent, values: Tensor) -> None:
    """An epoch begins with these discrepancies."""
    method.start_epoch(clock(WARM), lambda *_, **__: values)


def random_logits(rows: int = 20, C: int = 5) -> Tensor:
    return 3 * torch.randn(rows, C, generator=torch.Generator().manual_seed(rows))


# --- discrepancies ------------------------------------------------------------------------------


def test_energy_discrepancy_by_hand() -> None:
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [math.log(2), math.log(2)]])
    # log 4 (1 - 1/3); nothing with a top logit of 0; log 4 (1 - 1/2)
    expected = [2 / 3 * math.log(4), 0.0, 0.5 * math.log(4)]
    assert energy_discrepancy(logits).tolist() == pytest.approx(expected, abs=1e-6)


def test_original_discrepancy_by_hand() -> None:
    logits = torch.tensor([[math.log(9), 0.0], [0.0, math.log(9)], [0.0, 0.0]])
    # T = 2: powers are 3 and 1, so 2 (log 4 - log 1); of equal ones 2 (log 2 - log 1)
    expected = [2 * math.log(4), 2 * math.log(4), 2 * math.log(2)]
    assert original_discrepancy(logits, 2.0).tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 10.0])
def test_discrepancies_equal_their_definitions_in_loops(temperature: float) -> None:
    logits = random_logits()
    for i, row in enumerate(logits.double().tolist()):
        energy = math.log(sum(math.exp(v) for v in row)) * (1 - math.exp(-max(row)))
        assert energy_discrepancy(logits)[i].item() == pytest.approx(energy, rel=1e-4)
        powers = [math.exp(v / temperature) for v in row]
        lost = temperature * (math.log(sum(powers)) - math.log(sum(powers) - max(powers)))
        found = original_discrepancy(logits, temperature)[i]
        assert found.item() == pytest.approx(lost, rel=1e-4)


# --- the two sets -------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_top_is_seen_and_bottom_unseen_by_exact_shares(pool: int) -> None:
    method = alone(pool)
    values = torch.randperm(pool, generator=torch.Generator().manual_seed(1)).float()
    ranked(method, values)
    seen, unseen = method.seen.mask, method.unseen.mask
    assert seen.sum() == pool - 4 * pool // 10  # 60 %, rounded up
    # A pool of three or fewer has no bottom: the choice stays as it was.
    assert unseen.sum() == (3 * pool // 10 or pool)
    if pool >= 4:
        assert not (seen & unseen).any()
        assert values[seen].amin() > values[unseen].amax()
        assert method.unseen_below == values.sort().values[3 * pool // 10]


def test_shares_are_not_one_short_where_floats_are() -> None:
    assert math.floor(0.29 * 100) == 28
    assert share_of(100, 0.29) == 29 and share_of(10, 0.3) == 3 and share_of(9, 0.3) == 2


def test_equal_discrepancies_still_give_sets_of_these_sizes() -> None:
    method = alone(10)
    ranked(method, torch.full((10,), 0.5))
    assert method.seen.mask.sum() == 6 and method.unseen.mask.sum() == 3
    assert not (method.seen.mask & method.unseen.mask).any()


def test_teacher_ranks_the_pool_and_the_seen_set_is_what_is_kept() -> None:
    toy = student()
    state = toy.draw.get_state()
    toy.method.start_epoch(clock(WARM), toy.scan)
    toy.draw.set_state(state)
    assert torch.equal(toy.method.discrepancy, toy.scan(toy.method.score, averaged=True))
    index = torch.tensor([5, 0, 119, 7, 8])
    kept = toy.method.rules()["kept"].accepts(torch.zeros(5, 1), index)
    assert torch.equal(kept, toy.method.seen.mask[index])
    assert torch.equal(selected(toy.method, "seen"), toy.method.seen.mask)
    assert torch.equal(selected(toy.method, "unseen"), toy.method.unseen.mask)


# --- the weight ---------------------------------------------------------------------------------


def test_weight_is_one_at_the_threshold_and_grows_below_it() -> None:
    method = alone(10)
    ranked(method, torch.arange(1.0, 11.0))
    assert method.unseen_below == 4
    found = method.unseen_weight(torch.arange(4))  # exp(1 - ED / 4)
    assert found.tolist() == pytest.approx([math.exp(0.75), math.exp(0.5), math.exp(0.25), 1])


@pytest.mark.parametrize("shift", [-5.0, -3.0, -20.0, 0.0, -1e-3])
def test_weight_is_within_one_and_e_for_any_sign_of_the_threshold(shift: float) -> None:
    method = alone(10)
    ranked(method, torch.arange(10.0) + shift)  # -3: the threshold is 0
    found = method.unseen_weight(torch.arange(10))
    assert found.isfinite().all() and found.amin() >= 1 and found.amax() <= math.e + 1e-6
    assert method.unseen_weight(torch.tensor([3])).item() == 1


# --- losses -------------------------------------------------------------------------------------


def test_distilled_is_a_hard_cross_entropy_and_a_divergence_over_the_number_of_classes() -> None:
    t, logits = torch.tensor([[0.75, 0.25]]), torch.tensor([[0.5, 0.5]]).log()
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert distilled(t, logits).item() == pytest.approx(math.log(2) + divergence / 2, rel=1e-6)
    certain = torch.eye(3)  # 0 log 0 is 0
    assert distilled(certain, torch.zeros(3, 3)).tolist() == pytest.approx(
        [4 / 3 * math.log(3)] * 3
    )


def test_divergence_from_uniform_by_hand_and_zero_at_uniform() -> None:
    logits = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log()
    # (log(1/2 / 3/4) + log(1/2 / 1/4)) / 2
    expected = [(math.log(2 / 3) + math.log(2)) / 2, 0]
    assert kl_from_uniform(logits).tolist() == pytest.approx(expected, abs=1e-6)
    assert (kl_from_uniform(random_logits()) > 0).all()


def plain_terms(toy: Toy, batch: Batch) -> dict[str, Any]:
    """A step of Safe-Student in NumPy: three forwards, each normalised by itself, and a teacher."""
    s, seen, unseen = toy.run.method, batch.more["seen"], batch.more["unseen"]
    teacher = copy.deepcopy(toy.network)
    for name, parameter in teacher.named_parameters():
        parameter.data.copy_(toy.ema.average[name])

    def probabilities(network: Any, images: Tensor) -> np.ndarray:
        with torch.no_grad():
            rows = network.method.head(network.encode(images, frozen=True))
        return softmax(rows.double().numpy())

    p = probabilities(toy.network, batch.x[0])[np.arange(BATCH), batch.y.numpy()]
    t, a = probabilities(teacher, seen.weak[0]), probabilities(toy.network, seen.strong[0])
    b = probabilities(toy.network, unseen.strong[0])
    distances, pushed = np.zeros(U), np.zeros(U)
    theta = toy.method.unseen_below.item()
    for i in range(U):
        soft = sum(t[i] * np.log(t[i] / a[i])) / NUM_KNOWN
        distances[i] = -math.log(a[i, t[i].argmax()]) + soft
        weight = math.exp(1 - toy.method.discrepancy[unseen.index[i]].item() / theta)
        uniform = sum(math.log(1 / NUM_KNOWN / v) for v in b[i]) / NUM_KNOWN
        pushed[i] = min(max(weight, 1), math.e) * uniform
    return {
        "supervised": -np.log(p).mean(),
        "seen": s.lambda_seen * distances,
        "unseen": s.lambda_unseen * pushed,
    }


def test_terms_equal_plain_numpy() -> None:
    toy = student(lambda_seen=0.6, lambda_unseen=0.4)
    ranked(toy.method, torch.linspace(-1, 4, POOL).roll(7))  # weights between 1 and e, and beyond
    batch = toy.batch(WARM)
    expected, found = plain_terms(toy, batch), toy.terms(WARM, batch)
    assert found.keys() == expected.keys()
    for name, term in expected.items():
        assert found[name].detach().numpy() == pytest.approx(term, rel=1e-3, abs=1e-5), name


# --- teacher, statistics, warm-up ---------------------------------------------------------------


def test_teacher_gets_no_gradient_and_the_live_weights_come_back() -> None:
    toy = student()
    batch, before = toy.batch(WARM), copy.deepcopy(toy.network.state_dict())
    views = [batch.more["seen"].weak[0].requires_grad_(), batch.more["seen"].strong[0]]
    views[1].requires_grad_()
    term = toy.terms(WARM, batch)["seen"].sum()
    weak, strong = torch.autograd.grad(term, views, allow_unused=True)
    assert weak is None and strong.any()
    for name, parameter in toy.network.named_parameters():
        assert torch.equal(parameter, before[name])


def test_running_statistics_follow_the_labeled_forward_only() -> None:
    toy = student()
    plain, batch = copy.deepcopy(toy.network), toy.batch(WARM)
    plain.encode(batch.x[0])
    toy.terms(WARM, batch)
    assert is_same(statistics(toy.network), statistics(plain))


def test_warm_up_is_supervised_only_draws_no_more_and_tells_the_loop_not_to_average() -> None:
    """What the loop does with it: tests/training/test_loop_parts.py."""
    toy = Toy(toy_run("safe-student", warmup_epochs=2))
    toy.method.start_epoch(clock(STEPS_PER_EPOCH), toy.scan)
    assert toy.method.seen.mask.all() and toy.method.unseen.mask.all()  # nothing is ranked
    last, first = clock(2 * STEPS_PER_EPOCH - 1), clock(2 * STEPS_PER_EPOCH)
    before, after = (toy.method.settings.phase(each.epoch) for each in (last, first))
    assert set(toy.terms(last.step)) == {"supervised"} and before.streams == {}
    assert not before.averages and after.averages
    assert set(after.streams) == {"seen", "unseen"}


# --- degenerate sets and evaluation -------------------------------------------------------------


@pytest.mark.parametrize("pool", [1, 2, 3])
def test_a_tiny_pool_without_a_bottom_has_finite_weights(pool: int) -> None:
    method = alone(pool)
    ranked(method, torch.zeros(pool))
    assert method.seen.mask.any() and method.unseen.mask.any()
    assert method.unseen_weight(torch.arange(pool)).tolist() == [1] * pool


@pytest.mark.parametrize("empty", ["seen", "unseen"])
def test_an_empty_set_stays_as_it_was_and_the_other_one_is_chosen(empty: str) -> None:
    method = alone(10, **{"seen": {"seen_from": 1.0}, "unseen": {"unseen_below": 0.0}}[empty])
    previous = torch.arange(10) % 2 == 0
    method.seen.choose(previous)
    method.unseen.choose(previous)
    ranked(method, torch.arange(1.0, 11.0).flip(0))
    expected = {"seen": torch.arange(10) < 6, "unseen": torch.arange(10) >= 7}  # 60 %, 30 %
    expected[empty] = previous
    for name, mask in expected.items():
        assert torch.equal(selected(method, name), mask), name


def test_an_empty_unseen_set_has_the_smallest_discrepancy_for_threshold_and_weights_of_one() -> (
    None
):
    method = alone(10, unseen_below=0.0)
    ranked(method, torch.arange(1.0, 11.0).flip(0))
    assert method.unseen_below == 1
    assert method.unseen_weight(torch.arange(10)).tolist() == [1] * 10


def test_an_unseen_set_of_everything_has_the_largest_discrepancy_for_threshold() -> None:
    method = alone(10, unseen_below=1.0)
    ranked(method, torch.arange(1.0, 11.0).flip(0))
    assert method.unseen.mask.all() and method.unseen_below == 10


@pytest.mark.parametrize("shares", [(1.0, 0.3), (0.4, 0.0), (1.0, 0.0), (0.0, 1.0)])
def test_terms_stay_finite_with_empty_and_full_sets(shares: tuple[float, float]) -> None:
    toy = student(seen_from=shares[0], unseen_below=shares[1])
    terms = toy.terms(WARM)
    assert set(terms) == {"supervised", "seen", "unseen"}
    assert all(term.isfinite().all() for term in terms.values())


@pytest.mark.parametrize("form", ["benchmark", "original"])
def test_score_is_the_discrepancy_and_the_threshold_otsus_of_the_test_scores(form: str) -> None:
    toy = student(score_form=form)
    features = toy.network.encode(toy.pool, frozen=True).detach()
    logits = toy.method.head(features)
    expected = (
        energy_discrepancy(logits) if form == "benchmark" else original_discrepancy(logits, 10.0)
    )
    scores = toy.method.score(features)
    assert torch.equal(scores, expected)
    rules = toy.method.rules()
    assert rules.keys() == {"published", "memory", "kept"}
    found = rules["published"].threshold(scores[:50], scores)
    assert torch.equal(found, otsu_threshold(scores[:50]))
    assert rules["memory"].threshold(scores, scores) == toy.method.unseen_below


def test_weight_is_the_plain_formula_where_it_is_not_clamped() -> None:
    toy = student(clamp_weight=False)
    toy.method.discrepancy[:3] = torch.tensor([-2.0, 2.0, 4.0])
    toy.method.unseen_below.fill_(2.0)
    found = toy.method.unseen_weight(torch.arange(3))
    assert found.tolist() == pytest.approx([math.exp(2), 1, math.exp(-1)], rel=1e-6)


def test_discrepancy_of_very_low_logits_is_finite_and_keeps_its_order() -> None:
    logits = torch.tensor([[-200.0, -300], [-150, -300], [-1, -2], [5, -2]])
    found = energy_discrepancy(logits)
    assert found.isfinite().all() and found[2] < found[3]
