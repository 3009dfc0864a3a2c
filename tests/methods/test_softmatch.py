"""SoftMatch: the weight by hand, the whole term in plain NumPy, what is remembered and saved."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain import softmax
from toy_runs import BATCH, MU, NUM_KNOWN, Toy, toy_run

from dac.methods.softmatch import ConfidenceWeight
from dac.methods.step import Batch

U = BATCH * MU
STATE = ("alignment.mean", "alignment.is_started", "confidence.mean", "confidence.variance")

# --- the weight ---------------------------------------------------------------------------------


def test_confidence_weight_by_hand() -> None:
    weight = ConfidenceWeight(momentum=0.5, num_sigma=2, start=0.25)
    # Mean 0.6 and unbiased variance 0.08 / 2 = 0.04, half way from 0.25 and 1.
    found = weight(torch.tensor([0.4, 0.6, 0.8]))
    assert weight.mean.item() == pytest.approx(0.425)
    assert weight.variance.item() == pytest.approx(0.52)
    assert found.tolist() == pytest.approx([math.exp(-(0.025**2) * 4 / (2 * 0.52)), 1.0, 1.0])
    # Mean 0.3 and variance 0.02: half way from there.
    found = weight(torch.tensor([0.2, 0.4]))
    assert weight.mean.item() == pytest.approx(0.3625)
    assert weight.variance.item() == pytest.approx(0.27)
    assert found.tolist() == pytest.approx([math.exp(-(0.1625**2) * 4 / (2 * 0.27)), 1.0])


def test_weight_starts_nearly_flat_as_the_variance_starts_at_one() -> None:
    weight = ConfidenceWeight(momentum=1.0, num_sigma=2, start=0.5)
    found = weight(torch.tensor([0.2, 0.5, 0.9]))
    assert found.tolist() == pytest.approx([math.exp(-0.3 * 0.3 * 2), 1.0, 1.0])
    assert found[0].item() == pytest.approx(0.835, abs=1e-3)


def test_weight_is_exactly_one_at_and_above_the_running_mean_and_below_one_below() -> None:
    weight = ConfidenceWeight(momentum=1.0, num_sigma=2, start=0.5)
    found = weight(torch.tensor([0.5, 0.5001, 1.0, 0.49]))
    assert found[:3].tolist() == [1, 1, 1] and found[3] < 1


@settings(max_examples=60)
@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=20),
    st.floats(0, 1),
    st.floats(0.5, 4),
)
def test_weight_rises_with_confidence_within_zero_and_one(
    drawn: list[float], momentum: float, num_sigma: float
) -> None:
    confidence = torch.tensor(drawn).sort().values
    weight = ConfidenceWeight(momentum, num_sigma, start=0.25)
    found = weight(confidence)
    assert found.isfinite().all() and (found >= 0).all() and (found <= 1).all()
    assert (found.diff() >= -1e-6).all() and (found[confidence >= weight.mean] == 1).all()


@pytest.mark.parametrize("confidence", [[0.3], [0.3, 0.3]])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_sample_or_equal_ones_have_variance_zero_and_finite_weights(
    confidence: list[float], momentum: float
) -> None:
    weight = ConfidenceWeight(momentum, num_sigma=2, start=0.25)
    for _ in range(3):
        assert weight(torch.tensor(confidence)).isfinite().all()
    assert weight.variance.item() == pytest.approx(momentum**3)


# --- the whole step -----------------------------------------------------------------------------


class PlainSoftMatch:
    """A step of SoftMatch in NumPy loops, with its own running statistics."""

    def __init__(self, momentum: float, num_sigma: float) -> None:
        self.m, self.num_sigma = momentum, num_sigma
        self.p_model: np.ndarray | None = None
        self.mean, self.variance = 1 / NUM_KNOWN, 1.0
        self.moved_argmax = 0

    def weigh(self, p: np.ndarray) -> np.ndarray:
        of_batch = sum(p) / len(p)
        if self.p_model is not None:
            of_batch = self.m * self.p_model + (1 - self.m) * of_batch
        self.p_model = of_batch
        aligned = []
        for row in p:
            scaled = row * (1 / NUM_KNOWN + 1e-6) / (of_batch + 1e-6)
            aligned.append(scaled / sum(scaled))
        confidence = [max(row) for row in aligned]
        center = sum(confidence) / len(p)
        spread = sum((c - center) ** 2 for c in confidence) / (len(p) - 1)
        self.mean = self.m * self.mean + (1 - self.m) * center
        self.variance = self.m * self.variance + (1 - self.m) * spread
        self.moved_argmax += int((np.argmax(aligned, axis=1) != p.argmax(axis=1)).sum())
        below = [min(0.0, c - self.mean) for c in confidence]
        return np.exp([-(b**2) * self.num_sigma**2 / (2 * self.variance) for b in below])

    def terms(
        self, x: np.ndarray, y: np.ndarray, weak: np.ndarray, strong: np.ndarray
    ) -> tuple[float, np.ndarray]:
        weight = self.weigh(softmax(weak))
        pseudo, p = weak.argmax(axis=1), softmax(strong)
        unlabeled = [-w * math.log(p[i, pseudo[i]]) for i, w in enumerate(weight)]
        return -np.log(softmax(x)[np.arange(len(y)), y]).mean(), np.array(unlabeled)


def logits(toy: Toy, batch: Batch) -> list[np.ndarray]:
    """Logits of the labeled, weak and strong views, from one forward of all."""
    images = torch.cat([*batch.x, *batch.u_weak, *batch.u_strong])
    with torch.no_grad():
        rows = toy.method.head(toy.network.encode(images, frozen=True)).double().numpy()
    return np.split(rows, [BATCH, BATCH + U])


@pytest.mark.parametrize("omega", [False, True])
def test_terms_equal_plain_numpy_over_several_steps(omega: bool) -> None:
    toy = Toy(toy_run("softmatch", momentum=0.6, num_sigma=3.0, lambda_u=0.7))
    toy.method.head.bias.data.copy_(torch.tensor([0.4, 0.0, 0.0, -0.4]))  # something to align
    plain = PlainSoftMatch(momentum=0.6, num_sigma=3.0)
    for number in range(6):
        batch = toy.batch()
        x, weak, strong = logits(toy, batch)
        supervised, unlabeled = plain.terms(x, batch.y.numpy(), weak, strong)
        step = toy.at(number, batch)
        if omega:
            step.omega = torch.rand(U, generator=torch.Generator().manual_seed(number))
            unlabeled = unlabeled * step.omega.numpy()
        found = toy.method.terms(step)
        assert found["supervised"].item() == pytest.approx(supervised, rel=1e-5)
        assert found["unlabeled"].detach().numpy() == pytest.approx(0.7 * unlabeled, rel=1e-4)
        sum(term.mean() for term in found.values()).backward()
        toy.optimizer.step()
    assert toy.method.alignment.mean.numpy() == pytest.approx(plain.p_model, rel=1e-5)
    assert toy.method.confidence.mean.item() == pytest.approx(plain.mean, rel=1e-5)
    assert toy.method.confidence.variance.item() == pytest.approx(plain.variance, rel=1e-5)
    assert plain.moved_argmax > 0  # alignment would have chosen other pseudo-labels


def test_pseudo_label_is_the_class_before_alignment() -> None:
    toy = Toy(toy_run("softmatch", momentum=0.9))
    method = toy.method
    method.alignment.mean.copy_(torch.tensor([0.94, 0.02, 0.02, 0.02]))
    method.alignment.is_started.fill_(True)
    method.head.weight.data.zero_()  # everybody says (0.5, 0.3, 0.1, 0.1)
    method.head.bias.data.copy_(torch.tensor([0.5, 0.3, 0.1, 0.1]).log())
    found = toy.terms(0)["unlabeled"]
    # The mean moves to (0.896, 0.048, ...): aligned, class 1 has 0.3 / 0.048 against 0.5 / 0.896.
    shares = [0.5 / 0.896, 0.3 / 0.048, 0.1 / 0.028, 0.1 / 0.028]
    confidence = shares[1] / sum(shares)
    mean, variance = 0.9 * 0.25 + 0.1 * confidence, 0.9
    weight = math.exp(-(min(0.0, confidence - mean) ** 2) * 4 / (2 * variance))
    assert method.confidence.mean.item() == pytest.approx(mean, rel=1e-4)
    assert found.tolist() == pytest.approx([weight * math.log(2)] * U, rel=1e-4)  # not log(10 / 3)


# --- gradients ----------------------------------------------------------------------------------


def test_weak_views_get_no_gradient_through_weight_or_target() -> None:
    toy = Toy(toy_run("softmatch", momentum=0.5))
    toy.network.eval()  # batch statistics would couple all views
    batch = toy.batch()
    views = [batch.u_weak[0].requires_grad_(), batch.u_strong[0].requires_grad_()]
    term = toy.terms(0, batch)["unlabeled"].sum()
    weak, strong = torch.autograd.grad(term, views, allow_unused=True)
    assert weak is None or not weak.any()
    assert strong is not None and strong.any()


def test_head_gets_the_gradient_of_a_weighted_cross_entropy_and_no_other() -> None:
    toy = Toy(toy_run("softmatch", momentum=0.5))
    toy.network.eval()
    batch = toy.batch()
    _, weak, strong = logits(toy, batch)
    weight = PlainSoftMatch(momentum=0.5, num_sigma=2.0).weigh(softmax(weak))
    gap = weight[:, None] * (softmax(strong) - np.eye(NUM_KNOWN)[weak.argmax(axis=1)])
    term = toy.terms(0, batch)["unlabeled"].mean()
    (found,) = torch.autograd.grad(term, [toy.method.head.bias])
    assert found.numpy() == pytest.approx(gap.mean(axis=0), abs=1e-5)


# --- memory -------------------------------------------------------------------------------------


def test_statistics_start_at_one_over_classes_and_one() -> None:
    confidence = Toy(toy_run("softmatch")).method.confidence
    assert confidence.mean.item() == pytest.approx(1 / NUM_KNOWN) and confidence.variance == 1


def test_statistics_are_saved_and_restore_the_run() -> None:
    whole, resumed = Toy(toy_run("softmatch")), Toy(toy_run("softmatch"))
    for step in range(3):
        whole.terms(step)
    state = whole.network.state_dict()
    assert {f"method.{name}" for name in STATE} <= set(state)
    resumed.network.load_state_dict(state)
    batch = whole.batch()
    found = [toy.terms(3, batch)["unlabeled"] for toy in (whole, resumed)]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    ("method", "prefix"), [("softmatch", "method."), ("softmatch+dac", "method.objective.")]
)
def test_statistics_are_left_out_of_the_finished_model_and_the_head_is_not(
    method: str, prefix: str
) -> None:
    network = Toy(toy_run(method)).network
    dropped = {n for n in network.state_dict() if not network.needed_for_evaluation(n)}
    assert {n for n in dropped if n.startswith(prefix)} >= {prefix + name for name in STATE}
    assert network.needed_for_evaluation(f"{prefix}head.weight")
    assert all(name.startswith("method.") for name in dropped)
