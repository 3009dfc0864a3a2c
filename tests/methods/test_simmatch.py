"""SimMatch: the bank, its terms by hand and against NumPy, the forward of averaged weights."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from plain import linear, softmax
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, STEPS_PER_EPOCH, Toy, clock, toy_run

from dac.methods.base import Sizes
from dac.methods.network import Network
from dac.methods.simmatch import LabeledBank, SimMatch, modulate
from dac.methods.step import Batch, Step

AFTER = STEPS_PER_EPOCH  # the first step of epoch 1
U = BATCH * MU
Array = NDArray[np.float64]
AVERAGED = {"bank": "averaged", "bank_updates_statistics": False}

# --- instances and classes ----------------------------------------------------------------------


def test_instances_are_modulated_by_the_prediction_of_their_class() -> None:
    q, p = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.6, 0.4]])
    found = modulate(q, p, torch.tensor([0, 1, 1]))  # 0.3, 0.12 and 0.08 over 0.5
    assert found.flatten().tolist() == pytest.approx([0.6, 0.24, 0.16])


def test_modulated_rows_sum_to_one_and_uniform_predictions_change_nothing() -> None:
    draw = torch.Generator().manual_seed(0)
    q, p = (torch.randn(20, n, generator=draw).softmax(dim=1) for n in (12, 5))
    labels = torch.arange(12) % 5
    assert torch.allclose(modulate(q, p, labels).sum(dim=1), torch.ones(20))
    assert torch.allclose(modulate(q, torch.full((20, 5), 0.2), labels), q)
    impossible = modulate(q, torch.tensor([[1.0, 0.0]]).expand(20, 2), torch.ones(12).long())
    assert torch.isfinite(impossible).all()


def bank_of(size: int, dim: int, keep: float = 0.0) -> LabeledBank:
    return LabeledBank(size, dim, torch.Generator().manual_seed(0), keep=keep)


def test_similarity_and_votes_equal_loops_over_the_bank() -> None:
    bank, z = bank_of(9, 4), F.normalize(torch.randn(6, 4, generator=torch.Generator()))
    bank.labels.copy_(torch.arange(9) % 4)
    found = bank.similarity(z, 0.3)
    votes = bank.votes(found.exp(), 5)
    for b, row in enumerate(z.double().numpy()):
        raw = [math.exp(float(row @ g) / 0.3) for g in bank.z.double().numpy()]
        q = [value / sum(raw) for value in raw]
        assert found[b].tolist() == pytest.approx(np.log(q), rel=1e-4)
        of_class = [sum(q[m] for m in range(9) if m % 4 == c) for c in range(5)]
        assert votes[b].tolist() == pytest.approx(of_class, rel=1e-4)
    with torch.autocast("cpu", torch.bfloat16):  # which has three digits
        assert torch.equal(bank.similarity(z, 0.3), found)
        assert torch.equal(bank.votes(found.exp(), 5), votes)


@pytest.mark.parametrize("keep", [0.7, 0.0])
def test_bank_keeps_length_one_and_what_is_not_written(keep: float) -> None:
    bank, draw = bank_of(10, 4, keep), torch.Generator().manual_seed(1)
    for turn in range(50):
        index = torch.randperm(10, generator=draw)[:3]
        z = F.normalize(torch.randn(3, 4, generator=draw))
        before, labels = bank.z.clone(), bank.labels.clone()
        bank.write(index, z, index + turn)
        others = [m for m in range(10) if m not in index]
        assert torch.equal(bank.z[others], before[others])
        assert torch.equal(bank.labels[others], labels[others])
        mixed = keep * before[index] + (1 - keep) * z
        assert torch.allclose(bank.z[index], mixed / mixed.norm(dim=1, keepdim=True), atol=1e-6)
        assert torch.equal(bank.labels[index], index + turn)
        assert torch.allclose(bank.z.norm(dim=1), torch.ones(10))


# --- one step worked out by hand ----------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 1])
def test_losses_worked_out_by_hand(epoch: int) -> None:
    """Two classes and a bank of three instances, in two dimensions; features are embeddings."""
    method = worked_out()
    weak, strong = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    # exp(z g / T) is 2^(z g). Weak: z g = 1, 0, -1, so 2, 1 and 1/2 over 7/2
    q = method.bank.similarity(weak, 1 / math.log(2)).exp()
    assert q.flatten().tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    # The head says (3/4, 1/4), the alignment's mean is (0.6, 0.4): 5/4 and 5/8 over 15/8
    p = torch.tensor([[2 / 3, 1 / 3]])
    # Instances of the classes 0, 1, 0: 8/21, 2/21 and 2/21 over 12/21
    modulated = modulate(q, p, method.bank.labels)
    assert modulated.flatten().tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    # Class 0: 4/7 + 1/7
    assert method.bank.votes(q, 2).flatten().tolist() == pytest.approx([5 / 7, 2 / 7])

    x, y, place = torch.tensor([[0.0, 1.0]]), torch.tensor([1]), torch.tensor([2])
    batch = Batch([x], y, x_index=place, u_weak=[weak], u_strong=[strong], u_index=place)
    shared = method.settings.phase(epoch).shared
    step = Step(batch, clock(epoch * AFTER), as_it_is, shared=shared)
    terms = method.terms(step)
    assert terms["supervised"].item() == pytest.approx(math.log(4 / 3))  # the head gives y 3/4
    if epoch == 0:  # 2/3 is below tau = 0.69, and instances do not count yet
        assert terms["unlabeled"].tolist() == [0] and "instances" not in terms
    else:
        # p^ = 0.3 (2/3, 1/3) + 0.7 (5/7, 2/7) = (0.7, 0.3), which is above tau. The strong view
        # has (1/4, 3/4): L_u = 0.7 log 4 + 0.3 log 4/3, and its gradient at the bias is p - p^
        expected = 0.7 * math.log(4) + 0.3 * math.log(4 / 3)  # 1.0567
        assert terms["unlabeled"].tolist() == pytest.approx([expected], rel=1e-5)
        (gradient,) = torch.autograd.grad(terms["unlabeled"].sum(), method.head.bias)
        assert gradient.tolist() == pytest.approx([1 / 4 - 0.7, 3 / 4 - 0.3], rel=1e-5)
        # Strong: z g = 0, 1, 0, so (1/4, 1/2, 1/4), and
        # L_in = 2/3 log 4 + 1/6 log 2 + 1/6 log 4 = (4/3 + 1/6 + 1/3) log 2
        assert terms["instances"].tolist() == pytest.approx([11 / 6 * math.log(2)], rel=1e-5)
    # Instance 2 becomes 3/7 (-1, 0) + 4/7 (0, 1) over its length 5/7
    method.bank.commit()
    assert method.bank.z[2].tolist() == pytest.approx([-0.6, 0.8])
    assert method.bank.labels.tolist() == [0, 1, 1]


def worked_out() -> SimMatch:
    """Head, projection, bank and alignment with numbers that make fractions."""
    numbers = {"smoothing": 0.3, "tau": 0.69, "temperature": 1 / math.log(2)}
    memory = {"alignment_batches": 2, "bank": "momentum", "bank_momentum": 3 / 7}
    run = toy_run("simmatch", proj_dim=2, lambda_u=1.0, lambda_in=1.0, **numbers, **memory)
    sizes = Sizes(2, 2, num_labeled=3, pool=1, batch=1, unlabeled_batch=1, xavier_head=True)
    method = SimMatch(run.method, sizes, torch.Generator())
    method.load_state_dict(
        {
            "head.weight": math.log(3) * torch.eye(2),  # (1, 0) is of class 0 with 3/4
            "head.bias": torch.zeros(2),
            "projection.each.0.0.weight": torch.eye(2),
            "projection.each.0.0.bias": torch.zeros(2),
            "projection.each.0.2.weight": torch.eye(2),
            "projection.each.0.2.bias": torch.zeros(2),
            # with this step's (0.75, 0.25) the mean is (0.6, 0.4)
            "alignment.means": torch.tensor([[0.45, 0.55], [0.0, 0.0]]),
            "alignment.position": torch.tensor(1),
            "bank.z": torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]),
            "bank.labels": torch.tensor([0, 1, 0]),
        }
    )
    return method


def as_it_is(images: Tensor, *, frozen: bool = False) -> Tensor:
    return images


# --- whole steps against plain NumPy ------------------------------------------------------------


class PlainSimMatch:
    """The step of SimMatch (Sec. 3) in NumPy and loops; only the features are the network's."""

    def __init__(self, toy: Toy) -> None:
        self.toy, self.s = toy, toy.run.method
        self.means: list[Array] = []
        self.bank = [*toy.method.bank.z.double().numpy()]
        self.labels = [0] * len(self.bank)
        self.masked: list[bool] = []

    def terms(self, batch: Batch, step: int) -> dict[str, Any]:
        s, network, head = self.s, self.toy.network, self.toy.method.head
        *x, weak, strong = features(network, [*batch.x, *batch.u_weak, *batch.u_strong])
        z_x, z_weak, z_strong = (embed(network, rows) for rows in (x[0], weak, strong))
        p = self.align(softmax(linear(head, weak)))
        instances = []
        for b in range(U):
            similar, similar_strong = (
                softmax(np.array([z @ g for g in self.bank]) / s.temperature)
                for z in (z_weak[b], z_strong[b])
            )
            labeled = [*zip(similar, self.labels, strict=True)]
            modulated = [q * p[b, label] for q, label in labeled]
            instances.append(-np.dot(modulated, np.log(similar_strong)) / sum(modulated))
            votes = [sum(q for q, label in labeled if label == c) for c in range(NUM_KNOWN)]
            if step >= AFTER:
                p[b] = s.smoothing * p[b] + (1 - s.smoothing) * np.array(votes)
        confident = p.max(axis=1) >= s.tau
        self.masked += [*confident]
        log_x = np.log(softmax(linear(head, np.concatenate(x))))
        log_strong = np.log(softmax(linear(head, strong)))
        if s.bank == "averaged":
            averaged = carrying_the_average(self.toy)
            z_x = embed(averaged, *features(averaged, batch.x[:1]))
        self.write(batch, z_x)
        terms = {
            "supervised": -log_x[np.arange(len(log_x)), np.tile(batch.y, len(x))].mean(),
            "unlabeled": s.lambda_u * confident * -(p * log_strong).sum(axis=1),
        }
        return terms | ({"instances": s.lambda_in * np.array(instances)} if step >= AFTER else {})

    def write(self, batch: Batch, z: Array) -> None:
        old, keep = list(self.bank), self.s.bank_momentum if self.s.bank == "momentum" else 0
        for index, label, row in zip(batch.x_index.tolist(), batch.y.tolist(), z, strict=True):
            mixed = keep * old[index] + (1 - keep) * row  # an image drawn twice: the last stays
            self.bank[index], self.labels[index] = mixed / np.linalg.norm(mixed), label

    def align(self, p: Array) -> Array:
        self.means = [*self.means, p.mean(axis=0)][-self.s.alignment_batches :]
        aligned = p * (1 / NUM_KNOWN + 1e-6) / (sum(self.means) / len(self.means) + 1e-6)
        return aligned / aligned.sum(axis=1, keepdims=True)


def features(network: Network, images: list[Tensor]) -> list[Array]:
    with torch.no_grad():
        together = copy.deepcopy(network).encode(torch.cat(images)).double()
    return [view.numpy() for view in together.split([len(view) for view in images])]


def carrying_the_average(toy: Toy) -> Network:
    network = copy.deepcopy(toy.network)
    network.load_state_dict(network.state_dict() | toy.ema.state_dict())
    return network


def simmatch_of(network: Network) -> Any:
    return getattr(network.method, "objective", network.method)


def embed(network: Network, rows: Array) -> Array:
    projections = simmatch_of(network).projection.each
    each = [linear(last, np.maximum(linear(first, rows), 0)) for first, _, last in projections]
    z = sum(each) / len(each)
    return z / np.linalg.norm(z, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("simmatch", {}), ("simmatch", AVERAGED), ("simmatch-released", {"labeled_views": 2})],
)
def test_terms_and_bank_equal_a_plain_reading_of_simmatch(
    method: str, settings: dict[str, Any]
) -> None:
    small = {"proj_dim": 6, "alignment_batches": 4, "smoothing": 0.6, "tau": 0.6, "lambda_in": 0.4}
    toy = Toy(toy_run(method, **small, **settings))
    toy.ema.decay = 0.8  # so that average, start and live weights are all different
    plain = PlainSimMatch(toy)
    for step in range(AFTER - 4, AFTER + 6):
        batch = toy.batch()
        expected, found = plain.terms(batch, step), toy.terms(step, batch)
        assert found.keys() == expected.keys()
        for name, term in found.items():
            values = term.detach().numpy()
            assert values == pytest.approx(expected[name], rel=1e-3, abs=1e-5), (step, name)
        toy.optimizer.zero_grad()
        torch.stack([term.mean() for term in found.values()]).sum().backward()
        toy.optimizer.step()
        toy.ema.update()
        toy.network.finish_step()
        assert toy.method.bank.z.numpy() == pytest.approx(np.stack(plain.bank), abs=1e-4)
        assert toy.method.bank.labels.tolist() == plain.labels
    assert 0.1 < np.mean(plain.masked) < 0.9


def test_epoch_0_has_no_instance_term_and_its_predictions_are_not_smoothed() -> None:
    def terms(step: int, smoothing: float) -> dict[str, Tensor]:
        return Toy(toy_run("simmatch", smoothing=smoothing, tau=0.0)).terms(step)

    for step, is_smoothed in ((0, False), (AFTER - 1, False), (AFTER, True), (3 * AFTER, True)):
        kept, replaced = terms(step, 1.0), terms(step, 0.0)
        assert torch.equal(kept["unlabeled"], replaced["unlabeled"]) != is_smoothed
        assert ("instances" in kept) == is_smoothed


# --- gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, AVERAGED])
def test_gradient_reaches_the_strong_view_only(settings: dict[str, Any]) -> None:
    toy = Toy(toy_run("simmatch", tau=0.0, **settings))
    toy.step(0)
    toy.network.eval()  # batch statistics would couple all views
    batch = toy.batch()
    views = [*batch.x, *batch.u_weak, *batch.u_strong]
    for view in views:
        view.requires_grad_()
    terms = toy.terms(AFTER, batch)
    inputs = [*views, toy.method.head.weight, toy.method.projection.each[0][0].weight]
    for name, is_reached in {"unlabeled": [0, 0, 1, 1, 0], "instances": [0, 0, 1, 0, 1]}.items():
        gradients = torch.autograd.grad(
            terms[name].sum(), inputs, retain_graph=True, allow_unused=True
        )
        assert [int(g is not None and bool(g.any())) for g in gradients] == is_reached, name
    assert not any(t.requires_grad for t in (*toy.method.bank.staged, *toy.network.buffers()))


# --- the forward of averaged weights ------------------------------------------------------------

STANDING = pytest.mark.parametrize("method", ["simmatch", "simmatch+dac"])  # there views come first
PRECISION = pytest.mark.parametrize("is_bf16", [False, True])  # autocast remembers weights it cast


def trained(method: str, **settings: Any) -> tuple[Toy, Any, Batch]:
    """A toy whose average differs from its live weights, its SimMatch, and a batch."""
    toy = Toy(toy_run(method, **AVERAGED | {"tau": 0.0} | settings))
    for step in range(AFTER, AFTER + 3):
        toy.step(step)
    return toy, simmatch_of(toy.network), toy.batch()


@STANDING
@PRECISION
def test_bank_receives_embeddings_by_the_averaged_weights(method: str, is_bf16: bool) -> None:
    toy, simmatch, batch = trained(method)
    found = []
    with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
        toy.terms(AFTER, batch)
        for network in (carrying_the_average(toy), copy.deepcopy(toy.network)):
            with torch.no_grad():
                found.append(simmatch_of(network).projection(network.encode(batch.x[0])))
    index, z, y = simmatch.bank.staged
    assert torch.equal(z, found[0]) and not torch.allclose(z, found[1], atol=1e-3)
    assert torch.equal(index, batch.x_index) and torch.equal(y, batch.y)


@STANDING
@PRECISION
def test_averaged_forward_does_not_disturb_the_gradients(method: str, is_bf16: bool) -> None:
    gradients = []
    for is_left_out in (False, True):
        toy, simmatch, batch = trained(method)
        if is_left_out:
            simmatch.averaged_embedding = lambda step: torch.zeros(BATCH, 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
            terms = toy.terms(AFTER, batch)
        torch.stack([term.float().mean() for term in terms.values()]).sum().backward()
        gradients.append({name: p.grad for name, p in toy.network.named_parameters()})
    for name, gradient in gradients[0].items():
        rounding = 0.01 * gradient.abs().max() if is_bf16 else 0  # cast anew, so summed apart
        assert (gradient - gradients[1][name]).abs().max() <= rounding, name
        assert gradient.any(), name


@pytest.mark.parametrize(
    ("method", "updates"), [("simmatch", False), ("simmatch", True), ("simmatch+dac", False)]
)
def test_averaged_forward_leaves_weights_and_unless_so_set_statistics_alone(
    method: str, updates: bool
) -> None:
    toy, _, batch = trained(method, bank_updates_statistics=updates)
    live = {name: p.detach().clone() for name, p in toy.network.named_parameters()}
    average = {name: p.clone() for name, p in toy.ema.average.items()}
    expected = copy.deepcopy(toy.network)
    expected.encode(torch.cat([*batch.x, *batch.u_weak, *batch.u_strong]))
    if updates:
        expected.load_state_dict(expected.state_dict() | average)
        expected.encode(batch.x[0])
    toy.terms(AFTER, batch)
    for name, parameter in toy.network.named_parameters():
        assert torch.equal(parameter, live[name]), name
        assert torch.equal(toy.ema.average[name], average[name]), name
        assert not torch.equal(parameter, average[name]), name
    for name, buffer in toy.network.backbone.named_buffers():
        assert torch.equal(buffer, expected.backbone.get_buffer(name)), name
