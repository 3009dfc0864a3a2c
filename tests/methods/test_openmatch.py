"""OpenMatch: the whole step in plain loops, the choice of inliers, its stages, score and rule."""

import copy
import math

import numpy as np
import pytest
import torch
from plain import softmax
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, selected, toy_run

from dac.evaluation.decisions import decisions
from dac.evaluation.inference import Outputs, evaluating
from dac.methods.step import Batch

U = BATCH * MU
AFTER = STEPS_PER_EPOCH  # FixMatch begins
WEIGHTS = {"lambda_em": 0.3, "lambda_socr": 0.7}


def openmatch(steps: int = 3, **differences: float) -> Toy:
    """After some steps, so that detectors and averaged weights have moved."""
    toy = Toy(toy_run("openmatch", **WEIGHTS | differences))
    for step in range(steps):
        toy.step(step)
    return toy


# --- a plain reading ----------------------------------------------------------------------------


class Plain:
    """A step of OpenMatch in loops; a copy of the network gives features, one call a forward."""

    def __init__(self, toy: Toy) -> None:
        self.network = copy.deepcopy(toy.network).train()
        method = self.network.method
        self.head = method.head.weight.detach().double().numpy()
        self.bias = method.head.bias.detach().double().numpy()
        self.detectors = method.detectors.weight.detach().double().numpy()

    def features(self, images: list[Tensor]) -> list[np.ndarray]:
        with torch.no_grad():
            rows = self.network.backbone(torch.cat(images)).double().numpy()
        return np.split(rows, np.cumsum([len(each) for each in images])[:-1])

    def logits(self, z: np.ndarray) -> np.ndarray:
        return z @ self.head.T + self.bias

    def detect(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """a_out and a_in."""
        both = z @ self.detectors.T
        out = 1 / (1 + np.exp(both[:, NUM_KNOWN:] - both[:, :NUM_KNOWN]))
        return out, 1 - out

    def terms(self, batch: Batch, tau: float = 0.0) -> dict[str, np.ndarray]:
        x, x_other, weak, other = self.features([*batch.x, *batch.u_weak])
        found = self.labeled(np.concatenate([x, x_other]), [*batch.y.tolist()] * 2)
        spread, apart = np.zeros(U), np.zeros(U)
        for first, second in zip(self.detect(weak), self.detect(other), strict=True):
            for b in range(U):
                for c in range(NUM_KNOWN):
                    p, q = first[b, c], second[b, c]
                    spread[b] -= (p * math.log(p) + q * math.log(q)) / 2 / NUM_KNOWN
                    apart[b] += (p - q) ** 2
        found |= {"entropy": 0.3 * spread, "consistency": 0.7 * apart}
        if "inliers" in batch.more:
            drawn = batch.more["inliers"]
            weak, strong = self.features([*drawn.weak, *drawn.strong])  # a forward of its own
            pairs = zip(softmax(self.logits(weak)), softmax(self.logits(strong)), strict=True)
            each = [-math.log(s[q.argmax()]) * (q.max() >= tau) for q, s in pairs]
            found["unlabeled"] = np.array(each)
        return found

    def labeled(self, x: np.ndarray, y: list[int]) -> dict[str, np.ndarray]:
        p, (out, inside) = softmax(self.logits(x)), self.detect(x)
        detectors = []
        for i, label in enumerate(y):
            wrong = [-math.log(out[i, c]) for c in range(NUM_KNOWN) if c != label]
            detectors.append(-math.log(inside[i, label]) + max(wrong))
        supervised = np.mean([-math.log(p[i, label]) for i, label in enumerate(y)])
        return {"supervised": supervised, "detectors": np.mean(detectors)}


def assert_same(found: dict[str, Tensor], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, term in found.items():
        assert term.detach().numpy() == pytest.approx(expected[name], rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("tau", [0.0, 0.6])
def test_terms_equal_plain_loops_in_both_stages(tau: float) -> None:
    toy = openmatch(tau=tau)
    for step in (3, AFTER, AFTER + 1, AFTER + 2):
        plain, batch = Plain(toy), toy.batch(step)
        assert_same(toy.terms(step, batch), plain.terms(batch, tau))
        for name, buffer in toy.network.named_buffers():  # batch norm saw the same forwards
            assert torch.equal(buffer, plain.network.get_buffer(name)), name
        toy.step(step)


def test_inlier_stream_has_a_forward_of_its_own_and_moves_batch_norm_again() -> None:
    toy = openmatch()
    count = next(b for n, b in toy.network.named_buffers() if n.endswith("num_batches_tracked"))
    for step, forwards in ((4, 1), (AFTER, 2)):
        before = int(count)
        toy.terms(step)
        assert int(count) - before == forwards


def test_tau_of_zero_counts_every_sample_with_a_hard_label_from_the_weak_view() -> None:
    toy = openmatch()
    toy.network.eval()  # rows do not depend on each other
    toy.method.head.weight.data.mul_(0.01)  # nobody is confident
    batch = toy.batch(AFTER)
    weak, strong = (batch.more["inliers"].weak[0], batch.more["inliers"].strong[0])
    assert toy.run.method.tau == 0
    with torch.no_grad():
        pseudo = toy.method.logits(toy.network.encode(weak)).argmax(dim=1)
        logits = toy.method.logits(toy.network.encode(strong))
    expected = F.cross_entropy(logits, pseudo, reduction="none")
    found = toy.terms(AFTER, batch)["unlabeled"]
    assert torch.allclose(found, expected, atol=1e-6) and (found > 1).all()


def test_pseudo_labels_send_no_gradient_into_the_weak_view() -> None:
    toy = openmatch()
    toy.network.eval()
    batch = toy.batch(AFTER)
    drawn = batch.more["inliers"]
    views = [drawn.weak[0].requires_grad_(), drawn.strong[0].requires_grad_()]
    term = toy.terms(AFTER, batch)["unlabeled"].sum()
    weak, strong = torch.autograd.grad(term, views, allow_unused=True)
    assert (weak is None or not weak.any()) and strong.any()


# --- stages and the choice of inliers -----------------------------------------------------------


def test_no_inliers_are_drawn_or_learned_from_before_their_epoch() -> None:
    toy = openmatch(steps=0, start_epoch=2)
    for step, is_on in ((0, False), (2 * AFTER - 1, False), (2 * AFTER, True)):
        batch = toy.batch(step)
        assert ("inliers" in batch.more) == is_on == ("unlabeled" in toy.terms(step, batch))


def test_averaged_weights_choose_by_a_weak_view_at_the_start_of_an_epoch() -> None:
    toy = openmatch(steps=6)
    toy.ema.average["method.detectors.weight"].neg_()  # they disagree with the live ones
    state, chosen = toy.draw.get_state(), {}
    for averaged in (False, True):
        toy.draw.set_state(state)
        chosen[averaged] = toy.scan(toy.method.score, averaged=averaged) > 0.5
    after = toy.draw.get_state()
    toy.draw.set_state(state)
    toy.method.start_epoch(clock(AFTER), toy.scan)
    assert torch.equal(selected(toy.method, "inliers"), chosen[True])
    assert not torch.equal(chosen[False], chosen[True]) and chosen[True].any()
    assert torch.equal(toy.draw.get_state(), after)  # one weak view of every image was drawn
    assert selected(toy.method, "unlabeled") is None  # detectors see the whole pool
    assert chosen[True][toy.batch(AFTER).more["inliers"].index].all()


@pytest.mark.parametrize(("start_epoch", "first"), [(0, 1), (1, 1), (3, 3)])
def test_choice_begins_with_its_epoch_and_never_in_the_first(start_epoch: int, first: int) -> None:
    toy = openmatch(steps=6, start_epoch=start_epoch)
    toy.method.detectors.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    toy.ema.follow()
    for epoch in range(first + 1):
        assert selected(toy.method, "inliers").all()
        toy.method.start_epoch(clock(epoch * STEPS_PER_EPOCH), toy.scan)
    assert not selected(toy.method, "inliers").all()


def test_empty_choice_keeps_the_previous_list_and_training_goes_on() -> None:
    toy = openmatch()
    previous = torch.arange(POOL) % 3 == 0
    toy.method.inliers.choose(previous)
    C, mean = NUM_KNOWN, toy.scan(lambda features: features).mean(dim=0)  # features are positive
    for weights in (toy.method.detectors.weight.data, toy.ema.average["method.detectors.weight"]):
        weights.copy_(torch.cat([mean.expand(C, -1), -mean.expand(C, -1)]))
    assert (toy.scan(toy.method.score, averaged=True) <= 0.5).all()
    terms = toy.step(AFTER)
    assert torch.equal(selected(toy.method, "inliers"), previous)
    assert math.isfinite(terms["unlabeled"])


# --- score and rule -----------------------------------------------------------------------------


def test_score_is_the_predicted_classs_inlier_probability() -> None:
    toy = openmatch()
    with torch.no_grad(), evaluating(toy.network):
        features = toy.network.encode(toy.pool)
        found = toy.method.score(features).numpy()
    plain = Plain(toy)
    z = features.double().numpy()
    inside, predicted = plain.detect(z)[1], plain.logits(z).argmax(axis=1)
    assert found == pytest.approx(inside[np.arange(POOL), predicted], abs=1e-5)
    assert (inside.argmax(axis=1) != predicted).any()  # another detector would have said more


def test_images_at_or_above_one_half_are_inliers() -> None:
    scores = np.array([0.1, 0.4999, 0.5, 0.9], dtype=np.float32)
    outputs = Outputs(np.eye(4), scores)
    found = decisions(openmatch(steps=0).method.rules(), outputs, outputs)["published"]
    assert found.threshold == 0.5 and found.test.tolist() == [False, False, True, True]
