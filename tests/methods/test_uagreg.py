"""UAGreg: its thresholds, the graph by status, all terms in plain NumPy, and what they reach."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from plain import softmax
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, toy_run

from dac.methods.parts.mixture import mixture_means
from dac.methods.step import Batch
from dac.methods.uagreg import mean_negative_entropy
from dac.otsu import otsu_threshold

U = BATCH * MU
LATER = STEPS_PER_EPOCH


def two_groups(seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    low, high = (torch.randn(n, generator=draw) * 0.02 for n in (300, 100))
    return torch.cat([0.9 + high, 0.3 + low])


def uagreg(**differences: Any) -> Toy:
    """After a few steps, with thresholds that some images pass and some do not."""
    toy = Toy(toy_run("uagreg", **differences))
    for step in range(3):
        toy.step(step)
    with torch.no_grad():
        confidence = toy.method.score(toy.network.encode(toy.pool, frozen=True))
    toy.method.thresholds.copy_(confidence.quantile(torch.tensor([0.3, 0.7])))
    return toy


# --- thresholds ---------------------------------------------------------------------------------


def test_thresholds_start_at_one_and_the_first_epoch_leaves_them() -> None:
    toy = Toy(toy_run("uagreg"))
    assert toy.method.thresholds.tolist() == [1, 1]
    for step in range(STEPS_PER_EPOCH):
        toy.step(step)
    assert toy.method.thresholds.tolist() == [1, 1]


def test_thresholds_follow_the_means_of_the_pool_from_the_second_epoch() -> None:
    toy = Toy(toy_run("uagreg", threshold_momentum=0.9))
    expected = np.ones(2)
    for epoch, seed in ((1, 1), (2, 2), (3, 3)):
        values = two_groups(seed) ** epoch
        toy.method.start_epoch(clock(epoch * STEPS_PER_EPOCH), lambda *_, v=values, **__: v)
        expected = 0.9 * expected + 0.1 * mixture_means(values).numpy()
        assert toy.method.thresholds.numpy() == pytest.approx(expected, rel=1e-6)
    assert toy.method.thresholds[0] < toy.method.thresholds[1] < 1


@pytest.mark.parametrize("weights", ["live", "averaged"])
def test_threshold_pass_reads_these_weights_and_brings_the_live_ones_back(weights: str) -> None:
    toy = Toy(toy_run("uagreg", threshold_weights=weights, threshold_momentum=0.0))
    for average in toy.ema.average.values():
        average.mul_(0.5)  # an average unlike the live weights
    before = {name: p.clone() for name, p in toy.network.named_parameters()}
    state = toy.draw.get_state()
    expected = mixture_means(toy.scan(toy.method.score, averaged=weights == "averaged"))
    toy.draw.set_state(state)
    other = mixture_means(toy.scan(toy.method.score, averaged=weights != "averaged"))
    toy.draw.set_state(state)
    toy.method.start_epoch(clock(LATER), toy.scan)
    assert torch.allclose(toy.method.thresholds, expected.float())
    assert not torch.allclose(toy.method.thresholds, other.float(), atol=1e-4)
    for name, parameter in toy.network.named_parameters():
        assert torch.equal(parameter, before[name])


# --- parts --------------------------------------------------------------------------------------


def test_mean_negative_entropy_by_hand() -> None:
    rows = torch.tensor([[0.5, 0.5], [1 / 4, 3 / 4], [0.01, 0.99]]).log()
    found = mean_negative_entropy(rows, torch.tensor([True, True, False]))
    expected = 3 / 8 * math.log(3 / 8) + 5 / 8 * math.log(5 / 8)
    assert found.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("C", [2, 4, 20])
def test_mean_negative_entropy_is_lowest_where_the_mean_is_uniform(C: int) -> None:
    each_its_own = 50 * torch.eye(C)  # certain rows; their mean is uniform
    everybody = torch.ones(C, dtype=torch.bool)
    assert mean_negative_entropy(each_its_own, everybody).item() == pytest.approx(-math.log(C))
    other = torch.randn(C, C, generator=torch.Generator().manual_seed(C))
    assert -math.log(C) < mean_negative_entropy(other, everybody) < 0


def test_an_empty_mask_gives_zero_and_no_gradient() -> None:
    logits = torch.randn(5, 3).requires_grad_()
    found = mean_negative_entropy(logits, torch.zeros(5, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(found, [logits])
    assert found.item() == 0 and not gradient.any()


# --- the whole step -----------------------------------------------------------------------------


def plain_terms(toy: Toy, batch: Batch) -> dict[str, Any]:
    """A step of UAGreg in NumPy loops, from features of one forward."""
    s, method = toy.run.method, toy.method
    low, high = method.thresholds.tolist()
    with torch.no_grad():
        images = torch.cat([*batch.x, *batch.u_weak, *batch.u_strong])
        z = toy.network.encode(images, frozen=True)
        closed, opened = method.head(z).double().numpy(), method.open_head(z).double().numpy()
        v = method.projection(z[2 * BATCH + U :]).double().numpy()
    weak = slice(2 * BATCH, 2 * BATCH + U)
    y = np.concatenate([batch.y.numpy()] * 2)
    p, strong = softmax(closed[weak]), softmax(closed[2 * BATCH + U :])
    c = softmax(opened[weak] / s.open_temperature).max(axis=1)
    is_out, is_in = c < low, c >= high
    mean = softmax(opened[weak])[is_out].mean(axis=0)
    v = v / np.linalg.norm(v, axis=1, keepdims=True)
    first, second = v[:U], v[U:]
    unlabeled, graph = np.zeros(U), np.zeros(U)
    for i in range(U):
        if is_in[i] and p[i].max() >= s.tau:
            unlabeled[i] = -math.log(strong[i, p[i].argmax()])
        row = np.array([1.0 if i == j else p[i] @ p[j] for j in range(U)])
        row[[w < s.graph_tau or is_out[i] != is_out[j] for j, w in enumerate(row)]] = 0
        similar = softmax((second @ first[i] / s.temperature)[None])[0]
        graph[i] = -(row / row.sum() * np.log(similar)).sum()
    assert 0 < is_out.sum() < U and 0 < is_in.sum() < U - is_out.sum()
    return {
        "supervised": -np.log(softmax(closed[: 2 * BATCH])[np.arange(len(y)), y]).mean(),
        "open_supervised": -np.log(softmax(opened[: 2 * BATCH])[np.arange(len(y)), y]).mean(),
        "outliers": (mean * np.log(mean)).sum(),
        "unlabeled": s.lambda_u * unlabeled,
        "graph": s.lambda_g * graph,
    }


@pytest.mark.parametrize(("tau", "graph_tau"), [(0.0, 0.3), (0.4, 0.8)])
def test_terms_equal_plain_numpy(tau: float, graph_tau: float) -> None:
    toy = uagreg(tau=tau, graph_tau=graph_tau, lambda_u=0.7, lambda_g=0.3)
    batch = toy.batch()
    found, expected = toy.terms(LATER, batch), plain_terms(toy, batch)
    assert found.keys() == expected.keys()
    for name, term in expected.items():
        assert found[name].detach().numpy() == pytest.approx(term, rel=1e-3, abs=1e-5), name


def test_pseudo_labels_are_hard_and_only_of_inliers() -> None:
    toy = uagreg(tau=0.0)
    batch = toy.batch()
    step = toy.at(LATER, batch)
    found = toy.method.terms(step)["unlabeled"]
    weak, strong = step.views.u_weak[0], step.views.u_strong[0]
    is_inlier = toy.method.score(weak) >= toy.method.thresholds[1]
    pseudo = toy.method.head(weak).argmax(dim=1)
    each = F.cross_entropy(toy.method.head(strong), pseudo, reduction="none")
    assert torch.allclose(found[is_inlier], each[is_inlier], atol=1e-6)
    assert (found[~is_inlier] == 0).all() and 0 < is_inlier.sum() < U


PARTS = ("backbone", "head", "open_head", "projection")


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("supervised", {"labeled", "backbone", "head"}),
        ("open_supervised", {"labeled", "backbone", "open_head"}),
        ("outliers", {"weak", "backbone", "open_head"}),
        ("unlabeled", {"strong", "backbone", "head"}),
        ("graph", {"strong", "second strong", "backbone", "projection"}),
    ],
)
def test_each_term_reaches_these_views_and_parts_and_no_others(
    name: str, reached: set[str]
) -> None:
    toy = uagreg(tau=0.0, graph_tau=0.3)  # so low that images have neighbors
    toy.network.eval()  # batch statistics would couple all views
    batch = toy.batch()
    confidence = toy.method.score(toy.network.encode(batch.u_weak[0])).detach()
    toy.method.thresholds.copy_(confidence.quantile(torch.tensor([0.3, 0.7])))
    views = {"labeled": batch.x[0], "weak": batch.u_weak[0]}
    views |= dict(zip(("strong", "second strong"), batch.u_strong, strict=True))
    inputs = [(view, images.requires_grad_()) for view, images in views.items()]
    for part in PARTS:
        module = toy.network.backbone if part == "backbone" else getattr(toy.method, part)
        inputs += [(part, parameter) for parameter in module.parameters()]
    term = toy.terms(LATER, batch)[name].sum()
    gradients = torch.autograd.grad(term, [tensor for _, tensor in inputs], allow_unused=True)
    pairs = zip(inputs, gradients, strict=True)
    assert reached == {place for (place, _), g in pairs if g is not None and g.any()}


@pytest.mark.parametrize("thresholds", [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 2.0]])
def test_all_or_no_outliers_and_inliers_give_finite_terms(thresholds: list[float]) -> None:
    toy = uagreg()
    toy.method.thresholds.copy_(torch.tensor(thresholds))
    terms = toy.terms(LATER)
    assert (terms["outliers"] == 0) == (thresholds[0] == 0)
    assert terms["unlabeled"].any() == (thresholds[1] == 0)
    for gradient in torch.autograd.grad(
        sum(t.mean() for t in terms.values()), list(toy.network.parameters())
    ):
        assert gradient.isfinite().all()


# --- evaluation ---------------------------------------------------------------------------------


def test_score_is_the_open_heads_confidence_and_thresholds_say_what_is_kept() -> None:
    toy = uagreg()
    method, features = toy.method, toy.network.encode(toy.pool).detach()
    logits = method.open_head(features).detach().double().numpy()
    scores = method.score(features).detach()
    assert scores.numpy() == pytest.approx(softmax(logits / 0.9).max(axis=1), rel=1e-5)
    found = {n: rule.threshold(scores[:40], scores) for n, rule in method.rules().items()}
    assert found.keys() == {"published", "memory", "memory_upper", "kept"}
    assert torch.equal(torch.stack([found["memory"], found["memory_upper"]]), method.thresholds)
    assert found["kept"] == method.thresholds[1] and 0 < (scores >= found["kept"]).sum() < POOL
    assert torch.equal(found["published"], otsu_threshold(scores[:40]))
    assert scores.amin() >= 1 / NUM_KNOWN
