"""CoMatch: smoothing by the queue, what the queue holds, its terms against plain NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from plain import linear, softmax
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, STEPS_PER_EPOCH, Toy, toy_run

from dac.methods.base import Sizes
from dac.methods.comatch import CoMatch
from dac.methods.parts.banks import Bank
from dac.methods.step import Batch

AFTER = STEPS_PER_EPOCH  # the first step of epoch 1
U = BATCH * MU
Array = NDArray[np.float64]
SMALL = {"proj_dim": 6, "alignment_batches": 4, "smoothing": 0.7, "tau": 0.45, "graph_tau": 0.3}

# --- smoothing ----------------------------------------------------------------------------------


def test_smoothing_worked_out_by_hand() -> None:
    settings = toy_run("comatch", proj_dim=2, queue_batches=1, smoothing=0.8).method
    settings = settings.model_copy(update={"temperature": 1 / math.log(3)})
    sizes = Sizes(2, 2, num_labeled=1, pool=1, batch=1, unlabeled_batch=1, xavier_head=True)
    method = CoMatch(settings, sizes, torch.Generator())
    method.queue.write(torch.eye(2), torch.tensor([[1.0, 0.0], [0.2, 0.8]]))
    smoothed = method.smooth(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
    # affinities 3/4 and 1/4, so the queue says (0.8, 0.2)
    assert smoothed.flatten().tolist() == pytest.approx([0.56, 0.44])


def test_smoothing_equals_loops_over_the_queue() -> None:
    toy = Toy(toy_run("comatch", queue_batches=2, **SMALL))
    queue, s = toy.method.queue, toy.run.method
    draw = torch.Generator().manual_seed(3)
    queue.q.copy_(torch.randn(queue.q.shape, generator=draw).softmax(dim=1))
    p = torch.randn(U, NUM_KNOWN, generator=draw).softmax(dim=1)
    z = F.normalize(torch.randn(U, s.proj_dim, generator=draw))
    found = toy.method.smooth(p, z).numpy()
    entries = [*zip(queue.z.double().numpy(), queue.q.double().numpy(), strict=True)]
    for b, row in enumerate(z.double().numpy()):
        expected = smooth(p[b].double().numpy(), row, entries, s)
        assert found[b] == pytest.approx(expected, rel=1e-4)
    assert found.sum(axis=1) == pytest.approx(np.ones(U), abs=1e-5)
    with torch.autocast("cpu", torch.bfloat16):  # which has three digits
        assert np.array_equal(toy.method.smooth(p, z).numpy(), found)


def smooth(p: Array, z: Array, entries: list[tuple[Array, Array]], s: Any) -> Array:
    affinity = [math.exp(float(z @ of_queue) / s.temperature) for of_queue, _ in entries]
    said = sum(a * q for a, (_, q) in zip(affinity, entries, strict=True)) / sum(affinity)
    return s.smoothing * p + (1 - s.smoothing) * said


@pytest.mark.parametrize(
    ("start", "queue_batches", "first"),
    [("queue", 5, 5), ("queue", 12, 12), ("epoch", 5, AFTER), ("epoch", 12, 12)],
)
def test_smoothing_waits_for_a_full_queue_and_if_so_set_for_epoch_1(
    start: str, queue_batches: int, first: int
) -> None:
    def unlabeled(step: int, smoothing: float) -> Tensor:
        settings = {"smoothing_start": start, "queue_batches": queue_batches, "tau": 0.0}
        return Toy(toy_run("comatch", smoothing=smoothing, **settings)).terms(step)["unlabeled"]

    for step, is_smoothed in ((0, False), (first - 1, False), (first, True), (first + 9, True)):
        kept, replaced = unlabeled(step, 1.0), unlabeled(step, 0.0)
        assert torch.equal(kept, replaced) != is_smoothed


# --- whole steps against plain NumPy ------------------------------------------------------------


class PlainCoMatch:
    """The step of CoMatch (Sec. 3) in NumPy and loops; only the features are the network's."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.s = toy, toy.run.method
        self.means: list[Array] = []
        self.queue: list[tuple[Array, Array]] = []  # embedding and prediction, oldest first
        self.masked, self.edges = [], []  # what happened, to see that every branch had samples

    def terms(self, batch: Batch, step: int) -> dict[str, Any]:
        s, head = self.s, self.toy.method.head
        images = [*batch.x, *batch.u_weak, *batch.u_strong]
        with torch.no_grad():
            features = self.toy.network.encode(torch.cat(images)).double()
        *x, weak, first, second = (v.numpy() for v in features.split([len(i) for i in images]))
        z_x, z_weak, z_first, z_second = map(self.project, (x[0], weak, first, second))
        aligned = self.align(softmax(linear(head, weak)))
        p = aligned
        if step >= s.queue_batches and (s.smoothing_start == "queue" or step >= AFTER):
            rows = zip(aligned, z_weak, strict=True)
            p = np.stack([smooth(row, z, self.queue, s) for row, z in rows])
        onehot = np.eye(NUM_KNOWN)[batch.y]
        entries = zip([*z_weak, *z_x], [*aligned, *onehot], strict=True)
        self.queue = (self.queue + list(entries))[-s.queue_batches * (BATCH + U) :]
        log_x = np.log(softmax(linear(head, np.concatenate(x))))
        log_strong = np.log(softmax(linear(head, first)))
        confident = p.max(axis=1) >= s.tau
        self.masked += [*confident]
        return {
            "supervised": -np.mean((np.tile(onehot, (len(x), 1)) * log_x).sum(axis=1)),
            "unlabeled": s.lambda_u * confident * -(p * log_strong).sum(axis=1),
            "graph": s.lambda_c * self.contrast(p, z_first, z_second),
        }

    def queued(self) -> tuple[Array, Array]:
        """Embeddings, and predictions as they were before smoothing or labels."""
        z, q = zip(*self.queue, strict=True)
        return np.stack(z), np.stack(q)

    def contrast(self, p: Array, first: Array, second: Array) -> Array:
        values = []
        for b in range(U):
            weights = [1.0 if j == b else float(p[b] @ p[j]) for j in range(U)]
            weights = [w if w >= self.s.graph_tau else 0.0 for w in weights]
            self.edges += [w > 0 for j, w in enumerate(weights) if j != b]
            log_similar = np.log(softmax(second @ first[b] / self.s.temperature))
            values.append(-np.dot(weights, log_similar) / sum(weights))
        return np.array(values)

    def project(self, features: Array) -> Array:
        each = [
            linear(last, np.maximum(linear(first, features), 0))
            for first, _, last in self.toy.method.projection.each
        ]
        z = sum(each) / len(each)
        return z / np.linalg.norm(z, axis=1, keepdims=True)

    def align(self, p: Array) -> Array:
        self.means = [*self.means, p.mean(axis=0)][-self.s.alignment_batches :]
        aligned = p * (1 / NUM_KNOWN + 1e-6) / (sum(self.means) / len(self.means) + 1e-6)
        return aligned / aligned.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("method", "settings", "steps"),
    [
        ("comatch", {}, range(10)),
        ("comatch-released", {"labeled_views": 2, "lambda_c": 0.3}, range(AFTER - 4, AFTER + 6)),
    ],
)
def test_terms_and_queue_equal_a_plain_reading_of_comatch(
    method: str, settings: dict[str, Any], steps: range
) -> None:
    toy = Toy(toy_run(method, queue_batches=3, **SMALL, **settings))
    plain = PlainCoMatch(toy)
    for step in steps:
        batch = toy.batch()
        expected, found = plain.terms(batch, step), toy.terms(step, batch)
        assert found.keys() == expected.keys()
        for name, term in found.items():
            values = term.detach().numpy()
            assert values == pytest.approx(expected[name], rel=1e-3, abs=1e-5), (step, name)
        toy.optimizer.zero_grad()
        torch.stack([term.mean() for term in found.values()]).sum().backward()
        toy.optimizer.step()
        toy.network.finish_step()
        held = min(step - steps[0] + 1, 3) * (BATCH + U)
        for rows, written in zip(oldest_first(toy.method.queue), plain.queued(), strict=True):
            assert len(written) == held
            assert rows[-held:] == pytest.approx(written, abs=1e-4)
    assert 0.1 < np.mean(plain.masked) < 0.9
    assert 0.1 < np.mean(plain.edges) < 0.9


def oldest_first(bank: Bank) -> tuple[Array, Array]:
    return tuple(torch.roll(t, -int(bank.position), 0).numpy() for t in (bank.z, bank.q))


def test_queue_is_written_by_finish_step_only() -> None:
    toy = Toy(toy_run("comatch"))
    before = toy.method.queue.z.clone()

    def check() -> None:
        assert torch.equal(toy.method.queue.z, before)

    toy.step(0, between=check)
    assert toy.method.queue.position == BATCH + U
    toy.network.finish_step()  # a second time there is nothing to write
    assert toy.method.queue.position == BATCH + U


# --- gradients and weights ----------------------------------------------------------------------


def test_gradient_reaches_strong_views_only_and_nothing_remembered() -> None:
    toy = Toy(toy_run("comatch", queue_batches=1, **SMALL | {"tau": 0.0}))
    toy.step(0)
    toy.network.eval()  # batch statistics would couple all views
    batch = toy.batch()
    views = [*batch.x, *batch.u_weak, *batch.u_strong]
    for view in views:
        view.requires_grad_()
    terms = toy.terms(AFTER, batch)
    for name, is_reached in {"unlabeled": [0, 0, 1, 0], "graph": [0, 0, 1, 1]}.items():
        gradients = torch.autograd.grad(
            terms[name].sum(), views, retain_graph=True, allow_unused=True
        )
        assert [int(g is not None and bool(g.any())) for g in gradients] == is_reached, name
    assert not any(tensor.requires_grad for tensor in toy.method.queue.staged)
    toy.network.finish_step()
    assert not any(buffer.requires_grad for buffer in toy.network.buffers())


@pytest.mark.parametrize(("setting", "scaled"), [("lambda_u", "unlabeled"), ("lambda_c", "graph")])
def test_a_weight_scales_its_own_term_and_no_other(setting: str, scaled: str) -> None:
    once, thrice = (Toy(toy_run("comatch", tau=0.0, **{setting: w})).terms(0) for w in (1.0, 3.0))
    for name in once:
        assert torch.equal(thrice[name], 3 * once[name] if name == scaled else once[name]), name
        assert once[name].abs().sum() > 0
