"""IOMatch: the whole step in plain loops, soft targets, masks, gradients, alignment, its rule."""

import copy
import math

import numpy as np
import pytest
import torch
from plain import softmax
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, toy_run

from dac.evaluation.decisions import decisions
from dac.evaluation.inference import Outputs, evaluating
from dac.methods.step import Batch

U, C = BATCH * MU, NUM_KNOWN
AFTER = STEPS_PER_EPOCH  # the open-set head begins
SETTINGS = {"tau": 0.4, "open_tau": 0.5, "lambda_u": 0.7, "lambda_open": 1.3}


def iomatch(steps: int = 5, **differences: float) -> Toy:
    """After some steps; at these thresholds toy samples lie on both sides of every mask."""
    toy = Toy(toy_run("iomatch", **SETTINGS | differences))
    for step in range(steps):
        toy.step(step)
    return toy


def constant(toy: Toy, p: list[float], inside: list[float]) -> Toy:
    """Everybody predicts p, and the detectors say `inside`."""
    toy.method.head.weight.data.zero_()
    toy.method.head.bias.data.copy_(torch.tensor(p).log())
    projection, a = toy.method.projection[-1], torch.tensor(inside)
    projection.weight.data.zero_()
    projection.bias.data.zero_()[0] = 1  # z is the first unit vector
    toy.method.detectors.weight.data.zero_()[:, 0] = torch.cat([(1 - a).log(), a.log()])
    return toy


# --- a plain reading ----------------------------------------------------------------------------


class Plain:
    """A step of IOMatch in loops, with its own queue; it reads features and weights only."""

    def __init__(self, queue: int) -> None:
        self.queue, self.means = queue, []
        self.counts = np.zeros(4, dtype=int)  # confident, inlier, both, taken for the open head

    def linear(self, z: np.ndarray, name: str) -> np.ndarray:
        bias = self.state.get(f"{name}.bias", np.zeros(1))
        return z @ self.state[f"{name}.weight"].T + bias

    def project(self, z: np.ndarray) -> np.ndarray:
        return self.linear(np.maximum(self.linear(z, "projection.0"), 0), "projection.2")

    def detect(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a_out and a_in."""
        both = self.linear(self.project(z), "detectors")
        out = 1 / (1 + np.exp(both[:, C:] - both[:, :C]))
        return out, 1 - out

    def align(self, p: np.ndarray) -> np.ndarray:
        if not self.queue:
            return p
        self.means = [*self.means, p.mean(axis=0)][-self.queue :]
        scaled = p * (1 / C + 1e-6) / (np.mean(self.means, axis=0) + 1e-6)
        return scaled / scaled.sum(axis=1, keepdims=True)

    def read(self, toy: Toy) -> None:
        state = toy.method.state_dict()
        self.state = {name: t.double().numpy().copy() for name, t in state.items()}
        self.network = copy.deepcopy(toy.network).train()

    def terms(self, toy: Toy, batch: Batch) -> dict[str, np.ndarray]:
        self.read(toy)
        with torch.no_grad():
            images = torch.cat([batch.x[0], batch.u_weak[0], batch.u_strong[0]])
            rows = self.network.backbone(images).double().numpy()
        x, weak, strong = np.split(rows, [BATCH, BATCH + U])
        p, (out, inside) = self.align(softmax(self.linear(weak, "head"))), self.detect(weak)
        closed = softmax(self.linear(strong, "head"))
        opened = softmax(self.linear(self.project(strong), "open_head"))
        unlabeled, open_set = np.zeros(U), np.zeros(U)
        for b in range(U):
            outlier = sum(p[b, c] * out[b, c] for c in range(C))
            q = [p[b, c] * inside[b, c] for c in range(C)] + [outlier]
            is_inlier, is_sure, is_open = outlier < 0.5, max(p[b]) >= 0.4, max(q) >= 0.5
            self.counts += (is_sure, is_inlier, is_sure and is_inlier, is_open)
            if is_inlier and is_sure:
                unlabeled[b] = -0.7 * sum(p[b, c] * math.log(closed[b, c]) for c in range(C))
            if is_open:
                open_set[b] = -1.3 * sum(q[c] * math.log(opened[b, c]) for c in range(C + 1))
        return self.labeled(x, batch.y) | {"unlabeled": unlabeled, "open_set": open_set}

    def labeled(self, x: np.ndarray, y: Tensor) -> dict[str, np.ndarray]:
        p, (out, inside) = softmax(self.linear(x, "head")), self.detect(x)
        supervised, detectors = [], []
        for i, label in enumerate(y.tolist()):
            wrong = [-math.log(out[i, c]) for c in range(C) if c != label]
            detectors.append(-math.log(inside[i, label]) + max(wrong))
            supervised.append(-math.log(p[i, label]))
        return {"supervised": np.mean(supervised), "detectors": np.mean(detectors)}


@pytest.mark.parametrize("queue", [0, 3])
def test_terms_equal_plain_loops_over_several_steps(queue: int) -> None:
    toy, plain = iomatch(0, alignment_batches=queue), Plain(queue)
    toy.method.head.bias.data.copy_(torch.tensor([0.5, 0.0, 0.0, -0.5]))  # something to align
    for step in range(AFTER, AFTER + 8):
        batch = toy.batch(step)
        expected, found = plain.terms(toy, batch), toy.terms(step, batch)
        assert found.keys() == expected.keys()
        for name, term in found.items():
            value = term.detach().numpy()
            assert value == pytest.approx(expected[name], rel=1e-3, abs=1e-5), (step, name)
        toy.optimizer.zero_grad(set_to_none=True)
        sum(term.mean() for term in found.values()).backward()
        toy.optimizer.step()
    confident, inliers, both, opened = plain.counts  # every mask decided something
    assert 0 < both < min(confident, inliers) and max(confident, inliers, opened) < 8 * U


# --- targets and masks --------------------------------------------------------------------------

P, INSIDE = [0.5, 0.3, 0.1, 0.1], [0.9, 0.8, 0.5, 0.4]
Q = [0.45, 0.24, 0.05, 0.04, 0.22]


def test_both_targets_are_soft() -> None:
    toy = constant(iomatch(tau=0.5, open_tau=0.45, lambda_u=1.0, lambda_open=1.0), P, INSIDE)
    terms = toy.terms(AFTER)
    entropy = -sum(p * math.log(p) for p in P)  # the strong view says p too
    assert terms["unlabeled"].tolist() == pytest.approx([entropy] * U, rel=1e-4)
    z = torch.eye(toy.run.method.proj_dim)[:1]
    opened = toy.method.open_head(z).log_softmax(dim=1)[0].tolist()
    expected = -sum(q * said for q, said in zip(Q, opened, strict=True))
    assert terms["open_set"].tolist() == pytest.approx([expected] * U, rel=1e-4)


@pytest.mark.parametrize(
    ("tau", "open_tau", "inside", "learns"),
    [
        (0.5, 0.45, INSIDE, (True, True)),
        (0.51, 0.45, INSIDE, (False, True)),
        (0.5, 0.46, INSIDE, (True, False)),
        (0.5, 0.55, [0.2, 0.9, 0.1, 0.1], (False, True)),  # q_out = 0.61: confident outliers
        (0.5, 0.0, [0.49, 0.6, 0.6, 0.6], (True, True)),  # q_out = 0.455
    ],
)
def test_masks_follow_confidence_inliers_and_open_confidence(
    tau: float, open_tau: float, inside: list[float], learns: tuple[bool, bool]
) -> None:
    toy = constant(iomatch(tau=tau - 1e-4, open_tau=open_tau - 1e-4 * (open_tau > 0)), P, inside)
    terms = toy.terms(AFTER)
    for name, is_on in zip(("unlabeled", "open_set"), learns, strict=True):
        assert ((terms[name] > 0) == is_on).all(), name


def test_masked_terms_keep_their_zeros_so_that_means_divide_by_all_samples() -> None:
    toy = iomatch()
    for name, term in toy.terms(AFTER).items():
        if name in ("unlabeled", "open_set"):
            assert term.shape == (U,) and 0 < (term == 0).sum() < U, name


def test_open_set_head_begins_after_the_first_epoch() -> None:
    toy = iomatch()
    assert "open_set" not in toy.terms(0) and "open_set" not in toy.terms(AFTER - 1)
    assert "open_set" in toy.terms(AFTER) and "unlabeled" in toy.terms(0)


@pytest.mark.parametrize("start", [0, 1, 3])
def test_best_network_is_of_an_epoch_that_trains_the_open_set_head(start: int) -> None:
    toy, first = iomatch(0, open_start_epoch=start), start * STEPS_PER_EPOCH
    for step in (0, max(first - 1, 0), first, first + 1):
        assert toy.method.settings.phase(clock(step).epoch).selectable == (step >= first)
        assert ("open_set" in toy.terms(step)) == (step >= first)


# --- gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["unlabeled", "open_set"])
def test_targets_send_no_gradient_to_the_weak_view_or_the_detectors(name: str) -> None:
    toy = iomatch(tau=0.0, open_tau=0.0)
    toy.network.eval()  # batch statistics would couple all views
    batch = toy.batch(AFTER)
    views = [batch.u_weak[0].requires_grad_(), batch.u_strong[0].requires_grad_()]
    inputs = [*views, toy.method.detectors.weight]
    term = toy.terms(AFTER, batch)[name].sum()
    weak, strong, detectors = torch.autograd.grad(term, inputs, allow_unused=True)
    assert weak is None or not weak.any()
    assert detectors is None and strong.any()


# --- alignment ----------------------------------------------------------------------------------


def test_inliers_and_confidence_are_decided_by_the_aligned_prediction() -> None:
    # Everybody predicts alike; against its own mean that is uniform, and q_out the mean of a_out.
    p, inside = [0.7, 0.1, 0.1, 0.1], [0.9, 0.1, 0.1, 0.1]
    plain = constant(iomatch(tau=0.2), p, inside)
    aligned = constant(iomatch(tau=0.2, alignment_batches=2), p, inside)
    aligned.method.alignment.means.zero_()
    aligned.method.alignment.position.zero_()
    assert (plain.terms(0)["unlabeled"] > 0).all()  # 0.7 0.1 + 0.3 0.9 = 0.34
    assert (aligned.terms(0)["unlabeled"] == 0).all()  # (0.1 + 3 0.9) / 4 = 0.7
    alignment = copy.deepcopy(aligned.method.alignment)
    rows = alignment(torch.rand(9, C, generator=torch.Generator().manual_seed(0)).softmax(dim=1))
    assert torch.allclose(rows.sum(dim=1), torch.ones(9)) and (rows >= 0).all()


# --- score and rules ----------------------------------------------------------------------------


def test_rule_is_the_open_heads_argmax_and_no_threshold_on_the_score() -> None:
    # q_out 0.4 is the argmax, so rejected with a score of 0.6; 0.45 is not, accepted with 0.55.
    toy, features = iomatch(), torch.zeros(2, 64)
    said = torch.tensor([[0.3, 0.3, 0, 0, 0.4], [0.55, 0, 0, 0, 0.45]])
    toy.method.open_set = lambda features: said
    rules, score = toy.method.rules(), toy.method.score(features).numpy()
    accepted = rules["published"].accepts(features, torch.arange(2)).numpy()
    assert rules["published"].threshold is None
    assert score.tolist() == pytest.approx([0.6, 0.55]) and accepted.tolist() == [False, True]
    outputs = Outputs(np.eye(2), score, {"published": accepted, "kept": accepted})
    found = decisions(rules, outputs, outputs)["published"]
    assert found.test.tolist() == found.pool.tolist() == [False, True]


def test_score_embedding_and_kept_images_read_their_heads() -> None:
    toy, plain = iomatch(), Plain(0)
    plain.read(toy)
    with torch.no_grad(), evaluating(toy.network):
        features = toy.network.encode(toy.pool)
        score = toy.method.score(features)
        kept = toy.method.rules()["kept"].accepts(features, torch.arange(POOL))
    z = features.double().numpy()
    opened = softmax(plain.linear(plain.project(z), "open_head"))
    outlier = (softmax(plain.linear(z, "head")) * plain.detect(z)[0]).sum(axis=1)
    assert score.numpy() == pytest.approx(1 - opened[:, -1], abs=1e-5)
    assert kept.tolist() == (outlier < 0.5).tolist() and 0 < kept.sum() < POOL
    expected = F.normalize(torch.from_numpy(plain.project(z)))
    assert torch.allclose(toy.method.embedding(features).double(), expected, atol=1e-5)
