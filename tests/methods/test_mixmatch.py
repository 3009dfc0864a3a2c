"""MixMatch: the whole loss in plain NumPy, what moves batch norm, gradients, and DAC's weights."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from plain import interleave, is_same, softmax, statistics
from scipy import stats
from torch import nn
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, STEPS_PER_EPOCH, Toy, toy_run

from dac.methods.parts.mixup import guess
from dac.methods.step import Batch

U = BATCH * MU
HALF_WAY, RAMPED = 200, 400  # of 1000 steps, with a ramp over 0.4 of them
SETTINGS = {"lambda_u": 3.0, "alpha": 0.75, "temperature": 0.5, "rampup": 0.4}


def mixmatch(**differences: float) -> Toy:
    """After three steps, so that views differ in their predictions and statistics have moved."""
    toy = Toy(toy_run("mixmatch", **SETTINGS | differences))
    for step in range(3):
        toy.step(step)
    return toy


# --- a plain reading ----------------------------------------------------------------------------


@dataclass
class Plain:
    """One step of MixMatch in NumPy; a copy of the network gives logits chunk by chunk."""

    network: nn.Module
    share: float  # lambda'
    partner: list[int]
    order: list[int]  # of rows in the chunks

    @classmethod
    def before_step(cls, toy: Toy, alpha: float = SETTINGS["alpha"]) -> "Plain":
        """The draws to come are those of a copy of the generator."""
        draw = torch.Generator().set_state(toy.method.generator.get_state())
        uniform = torch.rand((), generator=draw, dtype=torch.float64).item()
        drawn = stats.beta.ppf(uniform, alpha, alpha)
        partner = torch.randperm(BATCH + 2 * U, generator=draw).tolist()
        chunks = 1 + 2 * MU
        is_plain = not toy.run.method.interleaved
        order = list(range(chunks * BATCH)) if is_plain else interleave(chunks, BATCH)
        return cls(copy.deepcopy(toy.network).train(), max(drawn, 1 - drawn), partner, order)

    def logits(self, images: np.ndarray) -> np.ndarray:
        """Normalised by exactly these images."""
        rows = torch.from_numpy(images.astype(np.float32))
        with torch.no_grad():
            return self.network.method.head(self.network.backbone(rows)).double().numpy()

    def mix(self, rows: np.ndarray) -> np.ndarray:
        pairs = enumerate(self.partner)
        return np.stack([self.share * rows[i] + (1 - self.share) * rows[j] for i, j in pairs])

    def guess(self, batch: Batch) -> np.ndarray:
        first, second = (softmax(self.logits(view.numpy())) for view in batch.u_weak)
        squared = ((first + second) / 2) ** 2  # T = 1/2
        return squared / squared.sum(axis=1, keepdims=True)

    def mixed(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Images and targets of all rows."""
        guessed, images = self.guess(batch), [batch.x[0], *batch.u_weak]
        targets = np.concatenate([np.eye(NUM_KNOWN)[batch.y.numpy()], guessed, guessed])
        return self.mix(np.concatenate([view.numpy() for view in images])), self.mix(targets)

    def terms(self, batch: Batch, omega: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """L_X, and every row of L_U without lambda_u and ramp."""
        images, targets = self.mixed(batch)
        in_chunks = [self.order[i : i + BATCH] for i in range(0, len(images), BATCH)]
        p = np.empty_like(targets)
        for rows in in_chunks:
            p[rows] = softmax(self.logits(images[rows]))
        supervised = -(targets[:BATCH] * np.log(p[:BATCH])).sum(axis=1).mean()
        gap = (p - targets)[BATCH:]
        unlabeled = (gap**2).sum(axis=1) / NUM_KNOWN
        if omega is not None:
            weights = [1.0] * BATCH + list(omega) + list(omega)
            for i in range(2 * U):
                row = BATCH + i
                own, other = weights[row], weights[self.partner[row]]
                unlabeled[i] *= self.share * own + (1 - self.share) * other
        return supervised, unlabeled


@pytest.mark.parametrize(
    ("alpha", "labeled_views", "interleaved"), [(0.5, 1, False), (0.75, 2, True), (0.5, 1, True)]
)
def test_terms_equal_plain_numpy_over_several_steps(
    alpha: float, labeled_views: int, interleaved: bool
) -> None:
    differences = {"labeled_views": labeled_views, "interleaved": interleaved}
    toy = mixmatch(alpha=alpha, **differences)  # a second view is not mixed
    for step in (40, HALF_WAY, RAMPED + 1):
        plain, batch = Plain.before_step(toy, alpha), toy.batch()
        supervised, unlabeled = plain.terms(batch)
        found = toy.terms(step, batch)
        expected = 3 * min(1, step / 400) * unlabeled
        assert found["supervised"].item() == pytest.approx(supervised, rel=1e-4)
        assert found["unlabeled"].shape == (2 * U,)
        assert found["unlabeled"].detach().numpy() == pytest.approx(expected, rel=1e-3, abs=1e-6)
        toy.step(step)


def test_omega_is_mixed_like_the_images_and_labeled_rows_weigh_one() -> None:
    toy = mixmatch()
    batch, omega = toy.batch(), torch.linspace(0, 1, U)
    plain = Plain.before_step(toy)
    assert plain.share < 0.95  # the partner matters
    step = toy.at(RAMPED, batch)
    step.omega = omega
    found = toy.method.terms(step)
    supervised, unlabeled = plain.terms(batch, omega.numpy())
    assert found["supervised"].item() == pytest.approx(supervised, rel=1e-4)
    assert found["unlabeled"].detach().numpy() == pytest.approx(3 * unlabeled, rel=1e-3, abs=1e-6)


def test_omega_of_one_changes_nothing() -> None:
    toy, other = mixmatch(), mixmatch()
    batch = toy.batch()
    step = other.at(RAMPED, batch)
    step.omega = torch.ones(U)
    weighed, plain = other.method.terms(step), toy.terms(RAMPED, batch)
    for name, term in plain.items():
        assert torch.allclose(weighed[name], term, rtol=1e-6)


# --- weight and draws ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lambda_u", "step", "factor"),
    [(2.0, RAMPED, 2), (2.0, HALF_WAY, 1), (1.0, 100, 0.25), (1.0, 999, 1), (9.0, 0, 0)],
)
def test_lambda_u_and_ramp_scale_the_unlabeled_term_only(
    lambda_u: float, step: int, factor: float
) -> None:
    reference = Toy(toy_run("mixmatch", **SETTINGS | {"lambda_u": 1.0})).terms(RAMPED)
    found = Toy(toy_run("mixmatch", **SETTINGS | {"lambda_u": lambda_u})).terms(step)
    assert torch.equal(found["supervised"], reference["supervised"])
    assert torch.allclose(found["unlabeled"], factor * reference["unlabeled"], rtol=1e-6)


def test_every_step_draws_a_new_mix_from_the_methods_stream() -> None:
    toy = mixmatch()
    first, batch = Plain.before_step(toy), toy.batch()
    toy.terms(RAMPED, batch)
    second = Plain.before_step(toy)
    assert first.share != second.share and first.partner != second.partner


# --- batch norm ---------------------------------------------------------------------------------


@pytest.mark.parametrize("interleaved", [False, True])
def test_running_statistics_follow_the_first_chunk_only_to_the_bit(interleaved: bool) -> None:
    toy = mixmatch(interleaved=interleaved)
    plain, batch = Plain.before_step(toy), toy.batch()
    rows, share = torch.cat([*batch.x, *batch.u_weak]), plain.share
    first = (share * rows + (1 - share) * rows[plain.partner])[plain.order[:BATCH]]
    plain.network.backbone(first)
    toy.terms(RAMPED, batch)
    assert is_same(statistics(toy.network), statistics(plain.network))


def test_guessing_touches_no_statistics_and_normalises_by_the_view() -> None:
    toy = mixmatch()
    before, batch = statistics(toy.network), toy.batch()
    step = toy.at(0, batch)
    found = guess(toy.method, step, batch.u_weak, 0.5)
    assert is_same(statistics(toy.network), before)
    assert found.numpy() == pytest.approx(Plain.before_step(toy).guess(batch), abs=1e-5)


def test_on_top_of_dac_statistics_follow_the_unmixed_forward_only() -> None:
    toy = Toy(toy_run("mixmatch+dac"))
    before, batch = copy.deepcopy(toy.network), toy.batch()
    before.encode(torch.cat([batch.x[0], batch.u_weak[0], batch.u_strong[0]]))
    toy.terms(STEPS_PER_EPOCH, batch)
    assert is_same(statistics(toy.network), statistics(before))


# --- gradients ----------------------------------------------------------------------------------


def test_gradient_is_that_of_constant_targets() -> None:
    toy = mixmatch()
    plain, batch = Plain.before_step(toy), toy.batch()
    images, targets = (torch.from_numpy(rows).float() for rows in plain.mixed(batch))
    chunks = images[plain.order].split(BATCH)
    logits = torch.cat([toy.method.head(toy.network.backbone(chunk)) for chunk in chunks])
    logits = logits[torch.tensor(plain.order).argsort()]
    supervised = F.cross_entropy(logits[:BATCH], targets[:BATCH])
    gap = logits[BATCH:].softmax(dim=1) - targets[BATCH:]
    expected = {"supervised": supervised, "unlabeled": 3 * gap.square().mean(dim=1)}
    found = toy.terms(RAMPED, batch)
    parameters = list(toy.network.parameters())
    for name, term in found.items():
        ours = torch.autograd.grad(term.mean(), parameters, retain_graph=True)
        theirs = torch.autograd.grad(expected[name].mean(), parameters, retain_graph=True)
        for one, other in zip(ours, theirs, strict=True):
            assert other.any() and torch.allclose(one, other, rtol=1e-2, atol=1e-4), name


def test_guessed_labels_carry_no_gradient() -> None:
    toy = mixmatch()
    batch = toy.batch()
    step = toy.at(0, batch)
    views = [view.requires_grad_() for view in batch.u_weak]
    assert not guess(toy.method, step, views, 0.5).requires_grad


def test_guessing_under_autocast_leaves_every_weight_its_gradient() -> None:
    toy = mixmatch()  # casts that autocast kept from the guess would have none
    with torch.autocast("cpu", torch.bfloat16):
        total = sum(term.mean() for term in toy.terms(RAMPED).values())
    for gradient in torch.autograd.grad(total, list(toy.network.parameters())):
        assert gradient.any()
