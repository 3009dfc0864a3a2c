"""FixMatch and labeled-only training: both equations, and the score of closed-set methods."""

import dataclasses

import pytest
import torch
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, Toy, toy_run

U = BATCH * MU


@pytest.mark.parametrize("hard_label", [True, False])
def test_fixmatch_is_its_two_equations(hard_label: bool) -> None:
    toy = Toy(toy_run("fixmatch", tau=0.3, hard_label=hard_label, lambda_u=0.7))
    batch = toy.batch()
    terms = toy.terms(0, batch)
    features = toy.network.encode(torch.cat([*batch.x, *batch.u_weak, *batch.u_strong]))
    x, weak, strong = toy.method.head(features).split([BATCH, U, U])
    p = weak.softmax(dim=1)
    target = F.one_hot(p.argmax(dim=1), NUM_KNOWN) if hard_label else p
    expected = 0.7 * (p.amax(dim=1) >= 0.3) * -(target * strong.log_softmax(dim=1)).sum(dim=1)
    assert terms["supervised"].item() == pytest.approx(F.cross_entropy(x, batch.y).item(), rel=1e-5)
    assert torch.allclose(terms["unlabeled"], expected, rtol=1e-4, atol=1e-6)


def test_second_labeled_view_counts_as_much_as_the_first() -> None:
    toy = Toy(toy_run("labeled-only", labeled_views=2))
    toy.network.eval()  # running statistics: views do not touch each other
    batch = toy.batch()
    both = toy.terms(0, batch)["supervised"].item()
    each = [toy.terms(0, dataclasses.replace(batch, x=[view]))["supervised"] for view in batch.x]
    assert both == pytest.approx(sum(each).item() / 2, rel=1e-5)
    assert each[0] != each[1]


@pytest.mark.parametrize("method", ["labeled-only", "fixmatch", "fixmatch-released"])
def test_closed_set_methods_score_by_confidence_and_reject_below_095(method: str) -> None:
    toy = Toy(toy_run(method))
    features = toy.network.encode(toy.pool[:9])
    expected = toy.method.head(features).softmax(dim=1).max(dim=1).values
    assert torch.equal(toy.method.score(features), expected)
    (rule,) = toy.method.rules().values()  # the published one only
    assert rule.threshold(expected, expected).item() == pytest.approx(0.95)
    assert toy.method.agreement(features) is None
