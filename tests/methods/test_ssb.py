"""SSB: FixMatch first, then detectors: both stages in plain loops, what stage 1 leaves alone."""

import copy
import math

import numpy as np
import pytest
import torch
from plain import softmax
from torch import Tensor, nn
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, fitted, toy_run

from dac.config import ViewCounts
from dac.evaluation.inference import evaluating
from dac.methods.step import Batch

U, C = BATCH * MU, NUM_KNOWN
AFTER = STEPS_PER_EPOCH  # stage 2 begins
SETTINGS = {"tau": 0.4, "lambda_u": 0.6, "lambda_em": 0.3, "lambda_socr": 0.7}
SETTINGS |= {"negative_below": 0.45}  # so that toy samples lie on both sides


def ssb(steps: int = 3, **differences: float) -> Toy:
    toy = Toy(toy_run("ssb", **SETTINGS | differences))
    for step in range(steps):
        toy.step(step)
    return toy


def detectors(toy: Toy) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in toy.method.detectors.named_parameters()}


# --- a plain reading ----------------------------------------------------------------------------


def multilayer(head: nn.Module, z: np.ndarray) -> np.ndarray:
    """Three linear layers, the negative part cut off between them."""
    weights = [p.detach().double().numpy() for p in head.parameters()]
    assert len(weights) == 6
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        z = z @ weight.T + bias
        last, z = z, np.maximum(z, 0)
    return last


class Plain:
    """Both stages in loops; a copy of the network gives the features of one forward."""

    def __init__(self, toy: Toy) -> None:
        self.network = copy.deepcopy(toy.network).train()
        self.method = self.network.method
        self.counts = np.zeros(2, dtype=int)  # confident samples, pseudo-negatives

    def detect(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a_out and a_in."""
        both = multilayer(self.method.detectors, z)
        out = 1 / (1 + np.exp(both[:, C:] - both[:, :C]))
        return out, 1 - out

    def terms(self, batch: Batch) -> dict[str, np.ndarray]:
        images = [*batch.x, *batch.x_strong, *batch.u_weak, *batch.u_strong]
        with torch.no_grad():
            rows = self.network.backbone(torch.cat(images)).double().numpy()
        parts = np.split(rows, np.cumsum([len(each) for each in images])[:-1])
        y = batch.y.tolist()
        x, weak, strong = parts[: len(batch.x)], parts[-1 - len(batch.u_weak)], parts[-1]
        found = self.fixmatch(np.concatenate(x), y * len(x), weak, strong)
        if batch.x_strong:
            found |= self.detection(parts, y, strong)
        return found

    def fixmatch(
        self, x: np.ndarray, y: list[int], weak: np.ndarray, strong: np.ndarray
    ) -> dict[str, np.ndarray]:
        p, learned, of_x = (softmax(multilayer(self.method.head, z)) for z in (weak, strong, x))
        unlabeled = np.zeros(U)
        for b in range(U):
            if p[b].max() >= 0.4:
                unlabeled[b] = -0.6 * math.log(learned[b, p[b].argmax()])
                self.counts[0] += 1
        supervised = np.mean([-math.log(of_x[i, label]) for i, label in enumerate(y)])
        return {"supervised": supervised, "unlabeled": unlabeled}

    def detection(
        self, parts: list[np.ndarray], y: list[int], strong: np.ndarray
    ) -> dict[str, np.ndarray]:
        positive, negative = [], []
        for view, z in enumerate(parts[:4]):  # two weak, then two strong
            out, inside = self.detect(z)
            for i, label in enumerate(y):
                if view < 2:
                    positive.append(-math.log(inside[i, label]))
                negative += [-math.log(out[i, c]) * (c != label) for c in range(C)]
        assert len(positive) == 2 * BATCH and len(negative) == 4 * BATCH * C
        (first, second), learned = (self.detect(z) for z in parts[4:6]), self.detect(strong)[0]
        spread, apart, pseudo = np.zeros(U), np.zeros(U), np.zeros(U)
        for b in range(U):
            for c in range(C):
                for row in (0, 1):
                    p, q = first[row][b, c], second[row][b, c]
                    spread[b] -= (p * math.log(p) + q * math.log(q)) / 2 / C
                    apart[b] += (p - q) ** 2
                if first[1][b, c] <= 0.45:
                    pseudo[b] -= math.log(learned[b, c])  # a sum over classes
                    self.counts[1] += 1
        return {
            "detectors": np.mean(positive) + np.mean(negative),
            "entropy": 0.3 * spread,
            "consistency": 0.7 * apart,
            "pseudo_negatives": pseudo,
        }


@pytest.mark.parametrize("first", [0, AFTER])
def test_terms_of_both_stages_equal_plain_loops_over_several_steps(first: int) -> None:
    toy, counts = ssb(steps=0), np.zeros(2, dtype=int)
    for step in range(first, first + 6):
        plain, batch = Plain(toy), toy.batch(step)
        expected, found = plain.terms(batch), toy.terms(step, batch)
        assert found.keys() == expected.keys()
        for name, term in found.items():
            value = term.detach().numpy()
            assert value == pytest.approx(expected[name], rel=1e-3, abs=1e-5), (step, name)
        counts += plain.counts
        toy.step(step)
    assert 0 < counts[0] < 6 * U  # both masks decided something
    assert first == 0 or 0 < counts[1] < 6 * U * C


def test_pseudo_negatives_choose_by_the_weak_view_and_teach_the_strong_one_only() -> None:
    toy = ssb(steps=12)
    toy.network.eval()
    batch = toy.batch(AFTER)
    views = [*(view.requires_grad_() for view in batch.u_weak), batch.u_strong[0].requires_grad_()]
    term = toy.terms(AFTER, batch)["pseudo_negatives"].sum()
    weak, other, strong = torch.autograd.grad(term, views, allow_unused=True)
    assert strong.any()
    assert all(gradient is None or not gradient.any() for gradient in (weak, other))


def test_bound_of_pseudo_negatives_is_included() -> None:
    toy = ssb(negative_below=0.5)
    for parameter in toy.method.detectors.parameters():
        parameter.data.zero_()  # every detector says one half
    found = toy.terms(AFTER)["pseudo_negatives"]
    assert found.tolist() == pytest.approx([C * math.log(2)] * U, rel=1e-5)


def test_nobody_confident_and_no_pseudo_negative_give_zero_and_finite_gradients() -> None:
    toy = ssb(tau=1.0, negative_below=0.0)
    terms = toy.terms(AFTER)
    for name in ("unlabeled", "pseudo_negatives"):
        assert terms[name].shape == (U,) and not terms[name].any(), name
    parameters = list(toy.network.parameters())
    empty = terms["unlabeled"].mean() + terms["pseudo_negatives"].mean()
    for gradient in torch.autograd.grad(empty, parameters, retain_graph=True):
        assert not gradient.any()  # nor NaN, which is true
    for gradient in torch.autograd.grad(sum(t.mean() for t in terms.values()), parameters):
        assert gradient.isfinite().all()


# --- stages -------------------------------------------------------------------------------------


def test_each_stage_draws_its_own_views() -> None:
    toy = ssb(steps=0)
    stages = [toy.method.settings.phase(clock(step).epoch).drawn for step in (AFTER - 1, AFTER)]
    assert stages[0] == ViewCounts(labeled=1, weak=1, strong=1)
    assert stages[1] == ViewCounts(labeled=2, labeled_strong=2, weak=2, strong=1)


def test_stage_one_leaves_the_detectors_without_gradient_and_bit_equal() -> None:
    toy = ssb(steps=0)
    assert toy.run.train.weight_decay > 0
    before, head = detectors(toy), toy.method.head[0].weight.clone()

    def assert_none() -> None:
        assert all(p.grad is None for p in toy.method.detectors.parameters())

    for step in range(AFTER):
        toy.step(step, assert_none)
    assert not torch.equal(toy.method.head[0].weight, head)
    assert all(torch.equal(p, before[name]) for name, p in detectors(toy).items())
    toy.step(AFTER)
    assert not any(torch.equal(p, before[name]) for name, p in detectors(toy).items())


def test_best_network_is_the_most_accurate_one_of_stage_two() -> None:
    """Other stages, and none: tests/methods/test_selectable.py."""
    progress, selectable = fitted(ssb(steps=0), evaluate_every=2), {8, 10, 12}
    rows = [row for row in progress.history if row["step"] in selectable]
    assert {row["step"] for row in rows} == selectable
    best = max(rows, key=lambda row: row["closed_accuracy"])  # the first of equals
    assert progress.best["step"] == best["step"]
    assert progress.best["closed_accuracy"] == best["closed_accuracy"]


# --- score and rules ----------------------------------------------------------------------------


def test_score_is_the_predicted_classs_inlier_probability_and_kept_are_the_confident() -> None:
    toy = ssb(steps=12, tau=0.8)
    with torch.no_grad(), evaluating(toy.network):
        features = toy.network.encode(toy.pool)
        score, rules = toy.method.score(features), toy.method.rules()
        kept = rules["kept"].accepts(features, torch.arange(POOL))
    plain, z = Plain(toy), features.double().numpy()
    p, inside = softmax(multilayer(toy.method.head, z)), plain.detect(z)[1]
    assert score.numpy() == pytest.approx(inside[np.arange(POOL), p.argmax(axis=1)], abs=1e-5)
    assert kept.tolist() == (p.max(axis=1) >= 0.8).tolist() and 0 < kept.sum() < POOL
    assert rules["published"].threshold(score, score) == 0.5 and rules["published"].accepts is None
