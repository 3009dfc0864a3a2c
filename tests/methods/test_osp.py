"""OSP: pruning, matching classes, the filter, and both stages in plain NumPy."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from plain import softmax
from skimage.filters import threshold_otsu
from torch import Tensor, nn
from toy_runs import BATCH, MU, NUM_KNOWN, STEPS_PER_EPOCH, Toy, clock, selected, toy_run

from dac.methods.base import Sizes
from dac.methods.osp import Osp, confident_kl, four_rotations, prune, rotation_loss
from dac.methods.parts.banks import ClassBank
from dac.methods.step import Batch

U = BATCH * MU
STAGE_2 = STEPS_PER_EPOCH  # its first step
SETTINGS = {"kl_tau": 0.55, "kl_temperature": 0.4, "gamma": 0.6, "rampup_epochs": 4}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def alone(num_known: int = 3, pool: int = 8, **differences: Any) -> Osp:
    """The method without a network; features are the logits themselves."""
    sizes = Sizes(
        num_known,
        num_known,
        num_labeled=6,
        pool=pool,
        batch=2,
        unlabeled_batch=4,
        xavier_head=False,
    )
    method = Osp(toy_run("osp", **differences).method, sizes, seeded())
    nn.init.eye_(method.head.weight)
    nn.init.zeros_(method.head.bias)
    return method


# --- pruning ------------------------------------------------------------------------------------


def test_prune_takes_the_component_along_the_partner_away() -> None:
    z, o = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0]])
    assert prune(z, o, 0.5).tolist() == [[1.5, 4.0]]  # the length of o does not matter
    z, o = (torch.randn(20, 7, generator=seeded(s)) for s in (1, 2))
    assert (prune(z, o, 1.0) * o).sum(dim=1).abs().max() < 1e-5
    assert torch.allclose(prune(z, z, 0.6), 0.4 * z, atol=1e-6)
    assert torch.equal(prune(z, torch.zeros_like(z), 0.6), z)  # no division by zero


def test_gradient_of_pruning_does_not_reach_the_partner() -> None:
    method = alone()
    z = torch.randn(4, 3, generator=seeded(1)).requires_grad_()
    # The bank is empty: the partner is z itself, as a constant. d(sum) / dz is 1 - gamma u sum(u).
    unit = (z / z.norm(dim=1, keepdim=True)).detach()
    (found,) = torch.autograd.grad(method.prune(z, torch.arange(4) % 3).sum(), [z])
    assert torch.allclose(found, 1 - 0.6 * unit * unit.sum(dim=1, keepdim=True), atol=1e-5)


# --- classes to match ---------------------------------------------------------------------------


class Recorder(nn.Module):
    """In place of the matching head: keeps what it was asked."""

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        self.classes = classes
        return features.sum(dim=1) * 0


@pytest.mark.parametrize("num_known", [3, 4, 6])
def test_labeled_images_match_their_class_and_two_distinct_wrong_ones(num_known: int) -> None:
    method = alone(num_known)
    method.matching = Recorder()
    logits = torch.randn(200, num_known, generator=seeded(4))
    y = torch.arange(200) % num_known
    loss = method.match(logits, logits, y)
    true, hardest, other = method.matching.classes.view(3, 200)
    assert loss.item() == pytest.approx(math.log(2)) and torch.equal(true, y)
    first, second = logits.topk(2, dim=1).indices.T
    assert torch.equal(hardest, torch.where(first == y, second, first))
    assert (other != y).all() and (other != hardest).all()
    assert other.amin() >= 0 and other.amax() < num_known


@pytest.mark.parametrize(("first", "second"), [(0, 3), (3, 0), (1, 2), (2, 2), (0, 0), (3, 3)])
def test_other_class_is_uniform_over_all_but_the_two(first: int, second: int) -> None:
    pair = torch.tensor([[first], [second]]).expand(2, 4000)
    shares = alone(4).other_class(*pair).bincount(minlength=4) / 4000
    left = [c for c in range(4) if c not in (first, second)]
    expected = [1 / len(left) if c in left else 0.0 for c in range(4)]
    assert shares.tolist() == pytest.approx(expected, abs=0.04)
    assert all(shares[c] == 0 for c in (first, second))


def test_two_known_classes_leave_no_other_wrong_one_and_still_match() -> None:
    method, z = alone(2), torch.randn(6, 2, generator=seeded(1))
    assert method.match(z, z, torch.arange(6) % 2).isfinite()
    assert method.match_entropy(z).isfinite().all()


# --- rotation, agreement ------------------------------------------------------------------------


def test_rotations_are_quarter_turns_in_order_and_their_labels_too() -> None:
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).expand(2, 3, 2, 2)
    found = four_rotations(image)
    turned = [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]
    assert found[::2, 0].tolist() == turned and torch.equal(found[::2], found[1::2])
    right = 50 * torch.eye(4).repeat_interleave(2, dim=0)
    assert rotation_loss(right) < 1e-6 and rotation_loss(right.flip(0)) > 40


def test_confident_kl_by_hand_is_a_mean_over_confident_rows() -> None:
    target = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.2, 0.8]]).log()
    logits = torch.tensor([[0.5, 0.5], [0.1, 0.9], [0.25, 0.75]]).log()
    # T = 1/2 squares: (16, 1) / 17
    sure = [16 / 17, 1 / 17]
    first = sure[0] * math.log(sure[0] / 0.5) + sure[1] * math.log(sure[1] / 0.5)
    third = sure[1] * math.log(sure[1] / 0.25) + sure[0] * math.log(sure[0] / 0.75)
    found = confident_kl(target, logits, tau=0.75, temperature=0.5)
    assert found.item() == pytest.approx((first + third) / 2, rel=1e-5)
    assert confident_kl(target, logits, tau=0.9, temperature=0.5) == 0
    target.requires_grad_()
    assert not confident_kl(target, logits, tau=0.75, temperature=0.5).requires_grad


# --- the filter ---------------------------------------------------------------------------------


def fake_scan(scores: Tensor, features: Tensor) -> Callable[..., Tensor]:
    """Scores of evaluation views, features of weak ones, by the live weights."""

    def scan(read: Any, *, averaged: bool = False, weak: bool = True, index: Any = None) -> Tensor:
        assert not averaged and weak == (index is not None)
        return scores if index is None else read(features[index])

    return scan


@pytest.mark.parametrize(("lowest", "out"), [(0.02, [0, 1]), (0.19, [0])])
def test_filter_by_hand(lowest: float, out: list[int]) -> None:
    scores = torch.tensor([lowest, lowest + 0.02, 0.35, 0.4, 0.9, 0.92, 0.95, 0.93])
    method, theta = alone(fills_bank=False), threshold_otsu(scores.double().numpy())
    method.start_epoch(clock(STAGE_2), fake_scan(scores, torch.zeros(8, 3)))
    assert selected(method, "unlabeled").tolist() == [s > theta for s in scores.double().tolist()]
    bound = min(lowest + 0.2 * (theta - lowest), 0.2)  # 0.2 binds for the second
    assert method.is_out.nonzero().squeeze(1).tolist() == out
    assert torch.equal(method.is_out, scores < bound) and selected(method, "rotated") is None


@pytest.mark.parametrize("fills_bank", [True, False])
def test_bank_takes_unsure_outliers_under_the_class_they_look_like(fills_bank: bool) -> None:
    method = alone(fills_bank=fills_bank, bank_confidence=0.5, filter_every=2)
    scores = torch.tensor([0.01, 0.02, 0.03, 0.3, 0.9, 0.9, 0.9, 0.9])
    features = torch.tensor([[9.0, 0, 0], [0, 0.1, 0.2], [0.3, 0.1, 0]] + [[0, 0.5, 0]] * 5)
    method.start_epoch(clock(STAGE_2 - 1), fake_scan(scores, features))
    assert not method.is_out.any() and not method.bank.counts.any()  # stage 1
    for epoch, scored in ((1, scores), (2, scores.flip(0)), (3, scores.flip(0))):
        method.start_epoch(clock(epoch * STEPS_PER_EPOCH), fake_scan(scored, features))
        counts = [[1, 0, 1], [2, 0, 2], [2, 3, 2]][epoch - 1]  # epoch 2 filters nothing
        assert method.bank.counts.tolist() == (counts if fills_bank else [0, 0, 0])
    if fills_bank:
        assert torch.equal(method.bank.features[2, 0], features[1])


def test_equal_scores_have_no_inliers_or_outliers_and_change_nothing() -> None:
    toy = Toy(toy_run("osp", **SETTINGS))
    toy.method.matching.match[-1].weight.data.zero_()
    assert toy.scan(toy.method.score, weak=False).unique().numel() == 1
    toy.method.inliers.mask[::2] = False
    chosen = toy.method.inliers.mask.clone()
    toy.method.start_epoch(clock(STAGE_2), toy.scan)
    assert torch.equal(toy.method.inliers.mask, chosen) and not toy.method.is_out.any()
    assert not toy.method.bank.counts.any()
    assert all(term.isfinite().all() for term in toy.terms(STAGE_2).values())


def test_threshold_is_just_above_otsus_of_the_pool() -> None:
    method, pool = alone(), torch.rand(100, generator=seeded(2))
    threshold = method.rules()["published"].threshold
    tau = threshold(torch.zeros(5), pool)
    otsu = threshold_otsu(pool.double().numpy())
    assert tau.item() > otsu and tau.item() == pytest.approx(otsu, rel=1e-6)
    equal = torch.full((9,), 0.5)
    assert not (equal >= threshold(equal, equal)).any()  # as the filter's "above"


# --- both stages --------------------------------------------------------------------------------


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    return -np.log(softmax(logits)[np.arange(len(y)), y]).mean()


class Plain:
    """A step of OSP in NumPy loops; the draws to come are those of a copy of the generator."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.bank = toy, toy.method.bank
        self.draw = torch.Generator().set_state(toy.method.generator.get_state())
        state = toy.method.state_dict()
        self.weights = {name: tensor.double().numpy() for name, tensor in state.items()}

    def linear(self, name: str, rows: np.ndarray) -> np.ndarray:
        return rows @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def features(self, *images: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(np.concatenate(images))
        with torch.no_grad():
            return self.toy.network.encode(rows, frozen=True).double().numpy()

    def match(self, z: np.ndarray, classes: list[int], *, running: bool = False) -> np.ndarray:
        """`running`: by the running statistics, as in evaluation."""
        w = self.weights
        label = self.linear("matching.label", np.eye(NUM_KNOWN)[classes])
        hidden = self.linear("matching.match.0", np.concatenate([z, label], axis=1))
        mean, variance = hidden.mean(axis=0), hidden.var(axis=0)
        if running:
            mean, variance = (w[f"matching.match.1.running_{name}"] for name in ("mean", "var"))
        hidden = (hidden - mean) / np.sqrt(variance + 1e-5)
        hidden = hidden * w["matching.match.1.weight"] + w["matching.match.1.bias"]
        return 1 / (1 + np.exp(-self.linear("matching.match.3", np.maximum(hidden, 0))[:, 0]))

    def others(self, excluded: list[set[int]]) -> list[int]:
        uniform = torch.rand(len(excluded), generator=self.draw).tolist()
        left = [[c for c in range(NUM_KNOWN) if c not in each] for each in excluded]
        return [each[int(u * len(each))] for u, each in zip(uniform, left, strict=True)]

    def prune(self, z: np.ndarray, classes: np.ndarray) -> np.ndarray:
        counts, pruned = self.bank.counts.tolist(), z.copy()
        uniform = torch.rand(len(z), generator=self.draw).tolist()
        for i, c in enumerate(classes):
            chosen = c if counts[c] else min(k for k in range(NUM_KNOWN) if counts[k])
            o = self.bank.features[chosen, int(uniform[i] * counts[chosen])].double().numpy()
            pruned[i] -= 0.6 * (z[i] @ o) / (o @ o) * o
        return pruned

    def agreement(self, target: np.ndarray, logits: np.ndarray) -> float:
        p, q, sure = softmax(target / 0.4), softmax(logits), softmax(target).max(axis=1) >= 0.55
        assert sure.any() and (len(sure) == BATCH or not sure.all())
        return 0.5 * (p * np.log(p / q)).sum(axis=1)[sure].mean()

    def terms(self, batch: Batch, grown: float | None) -> dict[str, Any]:
        """`grown`: the ramp in stage 2, None in stage 1."""
        y, turned = batch.y.numpy(), batch.more["rotated"].weak[0].numpy()
        turns = [np.rot90(turned, k, axes=(2, 3)) for k in range(4)]
        parts = [part.numpy() for part in (batch.x[0], *batch.u_weak, *batch.u_strong)]
        z = self.features(*parts, *turns)  # one forward of them all
        x, weak, strong = z[:BATCH], z[BATCH : BATCH + U], z[BATCH + U : BATCH + 2 * U]
        r = z[-4 * BATCH :]
        logits = self.linear("head", x)
        hardest = [
            max({*range(NUM_KNOWN)} - {c}, key=lambda k: row[k])
            for row, c in zip(logits, y, strict=True)
        ]
        other = self.others([{c, h} for c, h in zip(y, hardest, strict=True)])
        matched = self.match(np.concatenate([x] * 3), [*y, *hardest, *other])
        likelihood = np.concatenate([matched[:BATCH], 1 - matched[BATCH:]])
        quarters = np.repeat(np.arange(4), BATCH)
        found: dict[str, Any] = {
            "supervised": cross_entropy(logits, y),
            "matching": -np.log(likelihood).mean(),
            "rotation": cross_entropy(self.linear("rotation", r), quarters),
        }
        if grown is None:
            return found
        pruned = self.linear("head", self.prune(x, y))
        weak, predicted = self.linear("head", weak), self.linear("head", strong).argmax(axis=1)
        assert 0.5 < (logits.argmax(axis=1) != y).mean() < 1  # so the partners tell who chose them
        assert (weak.argmax(axis=1) != predicted).mean() > 0.5
        assert {*y} == {*predicted} == {*range(NUM_KNOWN)}  # those of the empty class too
        pruned_strong = self.linear("head", self.prune(strong, predicted))
        top = self.linear("head", r[:BATCH]).argmax(axis=1)
        m = self.match(np.concatenate([r[:BATCH]] * 2), [*top, *self.others([{c} for c in top])])
        found["supervised"] = (found["supervised"] + cross_entropy(pruned, y)) / 2
        found["match_entropy"] = -grown * (m * np.log(m) + (1 - m) * np.log(1 - m))
        found["unlabeled"] = grown * self.agreement(weak, pruned_strong)
        found["labeled_agreement"] = grown * self.agreement(logits, pruned)
        return found


def trained_toy() -> Toy:
    toy = Toy(toy_run("osp", **SETTINGS))
    for number in range(4):
        toy.step(number)
    return toy


def fill(bank: ClassBank, classes: list[int]) -> None:
    """With vectors that have nothing in common with those of another class."""
    c = torch.tensor(classes)[:, None]
    num_known, _, width = bank.features.shape
    is_own = torch.arange(width) % num_known == c
    bank.write(is_own * torch.rand(len(c), width, generator=seeded()), c.squeeze(1))


@pytest.mark.parametrize(
    ("step", "grown"),  # a ramp of four epochs, from the first step of stage 2
    [(3, None), (STAGE_2 - 1, None), (STAGE_2, 0.0), (STAGE_2 + 10, 0.25), (STAGE_2 + 90, 1.0)],
)
def test_terms_equal_plain_numpy(step: int, grown: float | None) -> None:
    toy = trained_toy()
    fill(toy.method.bank, [0, 1, 3, 1, 3, 3] * 2)  # 2 has none
    batch = toy.batch(step)
    y = torch.arange(BATCH) % NUM_KNOWN  # whatever the images show; strong views show others
    u_strong = [view.roll(1, dims=0) for view in batch.u_strong]
    batch = dataclasses.replace(batch, y=y, u_strong=u_strong)
    plain = Plain(toy)
    expected, found = plain.terms(batch, grown), toy.terms(step, batch)
    assert found.keys() == expected.keys()
    for name, term in expected.items():
        assert found[name].detach().numpy() == pytest.approx(term, rel=2e-3, abs=1e-5), name


def test_score_is_the_match_with_the_predicted_class_by_running_statistics() -> None:
    toy = trained_toy()
    method, plain = toy.network.eval().method, Plain(toy)
    with torch.no_grad():
        z = toy.network.encode(toy.pool)
        found = method.score(z)
        method.matching.match[-1].bias += 0.1
        assert (method.score(z) > found).all()
    predicted = plain.linear("head", z.double().numpy()).argmax(axis=1)
    assert {*predicted} == {*range(NUM_KNOWN)}
    expected = plain.match(z.double().numpy(), predicted.tolist(), running=True)
    assert found.numpy() == pytest.approx(expected, rel=1e-4)


def test_entropy_of_matches_is_differentiated_as_a_whole() -> None:
    method = alone()
    method.matching.eval()
    z = torch.randn(4, 3, generator=seeded(1)).requires_grad_()
    method.generator.manual_seed(7)
    (found,) = torch.autograd.grad(method.match_entropy(z).sum(), [z])
    method.generator.manual_seed(7)
    predicted = z.argmax(dim=1)
    classes = torch.cat([predicted, method.other_class(predicted, predicted)])
    m = method.matching(z.repeat(2, 1), classes).sigmoid()
    entropy = -(m * m.log() + (1 - m) * (1 - m).log()).sum()
    (expected,) = torch.autograd.grad(entropy, [z])
    assert found.any() and torch.allclose(found, expected, atol=1e-6)
