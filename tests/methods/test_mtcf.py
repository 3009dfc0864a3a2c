"""MTCF: targets and their history, Otsu's choice, interleaving, and all terms in plain NumPy."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from plain import interleave, is_same, softmax, statistics
from scipy import stats
from skimage.filters import threshold_otsu
from torch import Tensor
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, selected, toy_run

from dac.methods.mtcf import InlierHistory
from dac.methods.parts.mixup import Mix, forward_mixed
from dac.methods.step import Batch, Drawn

U, LABELED = BATCH * MU, 2 * NUM_KNOWN
WARM = STEPS_PER_EPOCH
SETTINGS = {"lambda_u": 3.0, "alpha": 0.75, "rampup": 0.4}


def mtcf(**differences: Any) -> Toy:
    """After a few steps, with targets between 0 and 1 as they are late in training."""
    toy = Toy(toy_run("mtcf", **SETTINGS | differences))
    for step in range(3):
        toy.step(step)
    toy.method.target[:POOL] = torch.rand(POOL, generator=torch.Generator().manual_seed(3))
    return toy


def drawn(toy: Toy, values: Tensor) -> None:
    """A full history in which every image of the pool has the same entry in every epoch."""
    toy.method.history.columns[:POOL] = values[:, None]
    toy.method.history.is_filled.fill_(True)
    toy.method.start_epoch(clock(toy.run.method.history * STEPS_PER_EPOCH), toy.scan)


# --- targets and history ------------------------------------------------------------------------


def test_labeled_images_begin_as_inliers_and_all_others_as_outliers() -> None:
    target = Toy(toy_run("mtcf")).method.target
    assert target.tolist() == [0.0] * POOL + [1.0] * LABELED


@pytest.mark.parametrize("history", [1, 3, 5])
def test_targets_of_the_pool_follow_a_plain_ring_once_it_is_full(history: int) -> None:
    toy, draw = Toy(toy_run("mtcf", history=history)), np.random.default_rng(history)
    columns = np.full((POOL + LABELED, history), np.nan)
    for epoch in range(14):
        toy.method.start_epoch(clock(epoch * STEPS_PER_EPOCH), toy.scan)
        if epoch < history:
            assert not toy.method.target[:POOL].any() and toy.method.inliers.mask.all()
        else:
            drawn = [row[~np.isnan(row)] for row in columns[:POOL]]
            expected = [row.mean() if len(row) else 0.0 for row in drawn]
            assert toy.method.target[:POOL].numpy() == pytest.approx(expected, abs=1e-6)
            tau = threshold_otsu(np.array([row.mean() for row in drawn if len(row)]))
            chosen = [not len(row) or row.mean() >= tau for row in drawn]  # none undrawn left out
            assert toy.method.inliers.mask.tolist() == chosen
        assert (toy.method.target[POOL:] == 1).all()
        for _ in range(6):  # steps, which meet some images twice and some not at all
            index = draw.permutation(POOL + LABELED)[:BATCH]
            value = draw.random(BATCH)
            noted = torch.tensor(value, dtype=torch.float32)
            toy.method.history.note(torch.tensor(index), noted, epoch)
            columns[index, epoch % history] = value


def test_an_image_that_an_epoch_did_not_draw_keeps_its_older_entry() -> None:
    mean, is_drawn = noted("older").mean()
    assert mean.tolist() == pytest.approx([(0.4 + 0.6) / 2, 0.8, 0])
    assert is_drawn.tolist() == [True, True, False]


def test_an_image_that_an_epoch_did_not_draw_counts_as_zero_in_the_benchmark() -> None:
    mean, is_drawn = noted("zero").mean()
    assert mean.tolist() == pytest.approx([(0.4 + 0.6) / 2, 0, 0])  # the 0.8 is overwritten
    assert is_drawn.all()


def noted(undrawn: str) -> InlierHistory:
    """Three epochs that draw the first image, and the second in the first of them."""
    history = InlierHistory(3, epochs=2, undrawn=undrawn)
    for epoch, first in enumerate((0.2, 0.4, 0.6)):
        history.begin(epoch)
        history.note(torch.tensor([0]), torch.tensor([first]), epoch)
        if epoch == 0:
            history.note(torch.tensor([1]), torch.tensor([0.8]), epoch)
    return history


def test_a_step_notes_the_probabilities_of_its_joint_images() -> None:
    toy = mtcf()
    batch = toy.batch(WARM)
    history, column = toy.method.history, WARM // STEPS_PER_EPOCH
    assert not history.is_filled[:, column].any()
    joint = batch.more["joint"]
    with torch.no_grad():
        expected = toy.method.score(toy.network.encode(joint.weak[0], frozen=True))
    toy.terms(WARM, batch)
    assert torch.equal(history.is_filled[:, column].nonzero().squeeze(1), joint.index.unique())
    assert torch.allclose(history.columns[joint.index, column], expected, atol=1e-6)


def test_inlier_loss_by_hand() -> None:
    # logit log 3 is a probability of 3/4; with a target of 1/2 that is -(log 3/4 + log 1/4) / 2
    toy = mtcf()
    toy.method.inlier_head.weight.data.zero_()
    toy.method.inlier_head.bias.data.fill_(np.log(3))
    toy.method.target.fill_(0.5)
    assert toy.terms(0)["inliers"].item() == pytest.approx(-np.log(3 / 16) / 2, rel=1e-5)


# --- the choice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_everything_is_selected_while_targets_are_equal(value: float) -> None:
    toy = mtcf()
    toy.method.inliers.mask.fill_(False)
    drawn(toy, torch.full((POOL,), value))
    assert selected(toy.method, "unlabeled").all() and selected(toy.method, "joint") is None
    assert all(term.isfinite().all() for term in toy.terms(WARM).values())


def test_targets_at_or_above_otsus_threshold_are_selected_kept_and_give_the_threshold() -> None:
    toy = mtcf()
    method, none = toy.method, torch.zeros(0)
    rules = method.rules()
    drawn(toy, method.target[:POOL].clone())
    targets = method.target[:POOL].double().numpy()
    expected = targets >= threshold_otsu(targets)
    assert selected(method, "unlabeled").tolist() == expected.tolist()
    assert 0 < expected.sum() < POOL
    assert rules["kept"].accepts(none, torch.arange(POOL)).tolist() == expected.tolist()
    tau = pytest.approx(threshold_otsu(targets), rel=1e-6)
    assert rules["published"].threshold(none, none).item() == tau
    method.history.columns[POOL:] = 77.0  # labeled ones do not enter
    drawn(toy, method.target[:POOL].clone())
    assert rules["published"].threshold(none, none).item() == tau


def test_score_is_the_inlier_probability() -> None:
    toy = mtcf()
    features = toy.network.encode(toy.pool, frozen=True).detach()
    rows = (features @ toy.method.inlier_head.weight.T + toy.method.inlier_head.bias).double()
    expected = 1 / (1 + np.exp(-rows.detach().numpy()[:, 0]))
    assert toy.method.score(features).detach().numpy() == pytest.approx(expected, rel=1e-4)


def test_interleaved_logits_come_back_in_the_order_of_the_rows() -> None:
    toy = mtcf()
    toy.network.eval()  # rows do not touch each other
    batch, guessed = toy.batch(WARM), torch.eye(NUM_KNOWN)[torch.arange(U) % NUM_KNOWN]
    step = toy.at(WARM, batch)
    mix = Mix(0.8, torch.arange(BATCH + 2 * U).flip(0))
    plain = forward_mixed(toy.method, step, batch.u_weak, guessed, mix, interleaved=False)
    found = forward_mixed(toy.method, step, batch.u_weak, guessed, mix, interleaved=True)
    for name in ("x", "x_target", "u", "u_target"):
        assert torch.allclose(getattr(found, name), getattr(plain, name), atol=1e-5), name


# --- the whole step -----------------------------------------------------------------------------


class Plain:
    """One step of MTCF in NumPy; a copy of the network gives logits chunk by chunk."""

    def __init__(self, toy: Toy) -> None:
        self.network, self.target = copy.deepcopy(toy.network), toy.method.target.double().numpy()
        draw = torch.Generator().set_state(toy.method.generator.get_state())
        drawn = stats.beta.ppf(
            torch.rand((), generator=draw, dtype=torch.float64).item(), 0.75, 0.75
        )
        self.share = max(drawn, 1 - drawn)
        self.partner = torch.randperm(BATCH + 2 * U, generator=draw)
        self.order = interleave(1 + 2 * MU, BATCH)

    def logits(self, head: str, images: Tensor) -> np.ndarray:
        with torch.no_grad():
            features = self.network.encode(images, frozen=True)
            return getattr(self.network.method, head)(features).double().numpy()

    def mix(self, rows: Tensor) -> Tensor:
        return self.share * rows + (1 - self.share) * rows[self.partner]

    def inliers(self, joint: Drawn) -> float:
        p = 1 / (1 + np.exp(-self.logits("inlier_head", joint.weak[0])[:, 0]))
        t = self.target[joint.index.numpy()]
        return -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()

    def mixmatch(self, batch: Batch) -> tuple[float, np.ndarray]:
        q = sum(softmax(self.logits("head", view)) for view in batch.u_weak) ** 2
        q = torch.from_numpy(q / q.sum(axis=1, keepdims=True))  # T = 1/2
        targets = self.mix(torch.cat([torch.eye(NUM_KNOWN).double()[batch.y], q, q])).numpy()
        images = self.mix(torch.cat([batch.x[0], *batch.u_weak]))[self.order]
        rows = np.concatenate([self.logits("head", chunk) for chunk in images.split(BATCH)])
        p = np.empty_like(rows)
        p[self.order] = softmax(rows)
        supervised = -(targets[:BATCH] * np.log(p[:BATCH])).sum(axis=1).mean()
        return supervised, ((p - targets)[BATCH:] ** 2).mean(axis=1)


@pytest.mark.parametrize("step", [WARM, 200, 401])
def test_terms_equal_plain_numpy(step: int) -> None:
    toy = mtcf()
    batch, plain = toy.batch(step), Plain(toy)
    found = toy.terms(step, batch)
    supervised, unlabeled = plain.mixmatch(batch)
    assert found["inliers"].item() == pytest.approx(plain.inliers(batch.more["joint"]), rel=1e-4)
    assert found["supervised"].item() == pytest.approx(supervised, rel=1e-4)
    expected = 3 * min(1, step / 400) * unlabeled
    assert found["unlabeled"].detach().numpy() == pytest.approx(expected, rel=2e-3, abs=1e-6)


def test_joint_forward_moves_running_statistics_in_warm_up_only() -> None:
    toy = mtcf()
    before, batch = copy.deepcopy(toy.network), toy.batch(0)
    before.encode(batch.more["joint"].weak[0])
    assert batch.x == batch.u_weak == [] and set(toy.terms(0, batch)) == {"inliers"}
    assert is_same(statistics(toy.network), statistics(before))
    batch, plain = toy.batch(WARM), Plain(toy)
    mixed = plain.mix(torch.cat([batch.x[0], *batch.u_weak]))
    plain.network.encode(mixed[plain.order][:BATCH])  # the first chunk, after interleaving
    toy.terms(WARM, batch)
    assert is_same(statistics(toy.network), statistics(plain.network))
