"""DAC: its terms against a plain reading of the paper, what it remembers, score and thresholds."""

import math

import pytest
import torch
from skimage.filters import threshold_otsu
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, toy_run

from dac.consensus import consensus
from dac.methods.step import Batch
from dac.otsu import otsu_threshold

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
U = BATCH * MU

# --- values -------------------------------------------------------------------------------------


class PlainDac:
    """The step of DAC (Sec. III, Algorithm 1) written out without blocks, closed forms or reuse."""

    def __init__(self, toy: Toy) -> None:
        method, self.s = toy.method, toy.run.method
        self.toy = toy
        self.bank = list(zip(method.bank.z.clone(), method.bank.q.clone(), strict=True))
        self.raw: dict[int, float] = (
            {} if self.s.score_range == "visited" else dict.fromkeys(range(POOL), 0.0)
        )
        self.score = [0.0] * POOL
        self.seen: set[int] = set()

    def terms(self, batch: Batch, epoch: int) -> dict[str, Tensor]:
        s, method = self.s, self.toy.method
        parts = [torch.cat(batch.x), torch.cat(batch.u_weak), torch.cat(batch.u_strong)]
        features = self.toy.network.encode(torch.cat(parts)).split([len(part) for part in parts])
        y = batch.y.repeat(s.labeled_views)
        x, weak, strong = (method.objective.head(v) for v in features)
        heads_x, heads_weak, heads_strong = (
            method.heads(method.projection(v.detach())) for v in features
        )
        K = s.num_heads
        terms = {"supervised": F.cross_entropy(x, y)}
        each_x = [F.cross_entropy(heads_x[:, i], y) for i in range(K)]
        each_u = [
            self.self_training(heads_weak[:, i], heads_strong[:, i], s.head_tau).mean()
            for i in range(K)
        ]
        terms["heads_supervised"] = torch.stack(each_x).mean()
        terms["heads_unlabeled"] = s.lambda_u_heads * torch.stack(each_u).mean()
        p = heads_weak.softmax(dim=2)
        pairs = [information(p[:, i], p[:, j]) for i in range(K) for j in range(i + 1, K)]
        terms["mutual_information"] = s.lambda_mi * torch.stack(pairs).mean()
        score = self.update_scores(batch.u_index.tolist(), p.detach())
        q = torch.cat([weak.detach().softmax(dim=1) * score[:, None], 1 - score[:, None]], dim=1)
        if epoch >= s.warmup_epochs:
            target = self.toy.run.objective
            per_sample = target.lambda_u * self.self_training(weak, strong, target.tau)
            terms["unlabeled"] = self.omega(score) * per_sample
            z = F.normalize(method.projection(features[2]))
            bank_z, bank_q = (torch.stack(rows) for rows in zip(*self.bank, strict=True))
            aggregated = (z @ bank_z.T / s.kd_temperature).softmax(dim=1) @ bank_q
            terms["distillation"] = -s.lambda_kd * (q * aggregated.log()).sum(dim=1).mean()
        z_weak = F.normalize(method.projection(features[1]).detach())
        self.bank = self.bank[len(q) :] + list(zip(z_weak, q, strict=True))
        return terms

    @staticmethod
    def self_training(weak: Tensor, strong: Tensor, tau: float) -> Tensor:
        p = weak.detach().softmax(dim=1)
        return torch.where(
            p.amax(dim=1) >= tau, F.cross_entropy(strong, p.argmax(dim=1), reduction="none"), 0.0
        )

    def update_scores(self, index: list[int], p: Tensor) -> Tensor:
        s, K = self.s, p.shape[1]
        for item, heads in zip(index, p.double(), strict=True):
            gaps = [(heads[i] - heads[j]).abs() for i in range(K) for j in range(K)]
            if s.score_form == "paper":
                agreement = sum(math.exp(-gap.sum()) for gap in gaps) - K
                self.raw[item] = agreement / (K * (K - 1))
            else:
                self.raw[item] = math.exp(-torch.stack(gaps).mean())
        low, high = min(self.raw.values()), max(self.raw.values())
        for item in index:
            normalised = (self.raw[item] - low) / (high - low + s.minmax_eps)
            self.score[item] = 0.9 * self.score[item] + 0.1 * normalised
        self.seen |= set(index)
        return torch.tensor([self.score[item] for item in index])

    def omega(self, score: Tensor) -> Tensor:
        counted = range(POOL) if self.s.score_range == "all" else sorted(self.seen)
        scores = torch.tensor([self.score[i] for i in counted]).double().numpy()
        tau_open = float(threshold_otsu(scores)) + self.s.otsu_eps
        return torch.tensor(
            [1.0 if v >= tau_open else (v / tau_open) ** 1.5 for v in score.double().tolist()]
        )


def information(p: Tensor, r: Tensor) -> Tensor:
    """Mutual information of two heads' predictions over a batch."""
    joint = torch.einsum("bc,bd->cd", p, r) / len(p)
    return (joint * (joint.log() - p.mean(dim=0).log()[:, None] - r.mean(dim=0).log())).sum()


@pytest.mark.parametrize("method", ["dac", "dac-released"])
def test_terms_of_dac_equal_a_plain_reading_of_the_paper(method: str) -> None:
    # Low thresholds and few heads: every branch has samples, and the plain form stays quick.
    toy = Toy(toy_run(method, num_heads=3, bank_batches=3, tau=0.4, head_tau=0.45))
    plain = PlainDac(toy)
    rejected = 0
    for step in range(AFTER - 4, AFTER + 8):
        batch = toy.batch()
        expected = plain.terms(batch, step // STEPS_PER_EPOCH)
        found = toy.terms(step, batch)
        assert found.keys() == expected.keys()
        for name, term in found.items():
            assert torch.allclose(term, expected[name], rtol=2e-3, atol=2e-5), (step, name)
        gradients = [
            torch.autograd.grad(
                sum(t.mean() for t in terms.values()), list(toy.network.parameters())
            )
            for terms in (found, expected)
        ]
        for ours, theirs in zip(*gradients, strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-2, atol=1e-4)
        for parameter, gradient in zip(toy.network.parameters(), gradients[0], strict=True):
            parameter.grad = gradient
        toy.optimizer.step()
        toy.network.finish_step()
        rejected += int((plain.omega(torch.tensor(plain.score)) < 1).sum())
    assert torch.allclose(toy.method.memory.score, torch.tensor(plain.score), atol=1e-4)
    assert rejected > 0


def test_literal_sums_of_eq_5_are_multiples_of_the_means() -> None:
    K, terms = 4, {}
    for reduction in ("mean", "sum"):
        run = toy_run("dac", num_heads=K, head_reduction=reduction, mi_reduction=reduction)
        terms[reduction] = Toy(run).terms(0)
    factors = {"heads_supervised": K, "heads_unlabeled": K, "mutual_information": K * (K - 1)}
    for name, factor in factors.items():
        expected = factor * terms["mean"][name].item()
        assert terms["sum"][name].item() == pytest.approx(expected, rel=1e-6)
    assert torch.equal(terms["sum"]["supervised"], terms["mean"]["supervised"])


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("lambda_u", "unlabeled"),
        ("lambda_u_heads", "heads_unlabeled"),
        ("lambda_mi", "mutual_information"),
        ("lambda_kd", "distillation"),
    ],
)
def test_each_weight_scales_its_own_term_only(setting: str, name: str) -> None:
    low = {"tau": 0.3, "head_tau": 0.3}
    once, thrice = (Toy(toy_run("dac", **low, **{setting: w})).terms(AFTER) for w in (0.5, 1.5))
    for each, term in once.items():
        factor = 3 if each == name else 1
        assert torch.allclose(thrice[each], factor * term, rtol=1e-5)
    assert once[name].sum() != 0


# --- memory -------------------------------------------------------------------------------------


def test_bank_is_written_by_finish_step_only() -> None:
    toy = Toy(toy_run("dac"))
    bank = toy.method.bank
    before = (bank.z.clone(), bank.q.clone(), bank.position.clone())

    def is_untouched() -> bool:
        now = (bank.z, bank.q, bank.position)
        return all(torch.equal(a, b) for a, b in zip(before, now, strict=True))

    def check() -> None:
        assert is_untouched()

    toy.step(AFTER, between=check)
    assert not is_untouched() and bank.position == U
    assert torch.equal(bank.z[U:], before[0][U:])


def test_bank_receives_unit_embeddings_of_the_weak_views_and_their_targets() -> None:
    toy = Toy(toy_run("dac"))
    toy.network.eval()
    batch = toy.batch()
    toy.terms(0, batch)
    toy.network.finish_step()
    with torch.no_grad():
        features = toy.network.encode(batch.u_weak[0])
        z = F.normalize(toy.method.projection(features))
        p = toy.method.logits(features).softmax(dim=1)
    s = toy.method.memory.score[batch.u_index][:, None]
    assert torch.allclose(toy.method.bank.z[:U], z, atol=1e-5)
    assert torch.allclose(toy.method.bank.q[:U], torch.cat([p * s, 1 - s], dim=1), atol=1e-5)


def test_finishing_twice_writes_once() -> None:
    toy = Toy(toy_run("dac"))
    toy.terms(0)
    toy.network.finish_step()
    toy.network.finish_step()
    assert toy.method.bank.position == U


def test_scores_and_bank_are_filled_during_warm_up() -> None:
    toy = Toy(toy_run("dac"))
    for step in range(3):
        toy.step(step)
    assert toy.method.bank.position == 3 * U
    assert toy.method.memory.visited.sum() > U
    assert toy.method.tau_open == 0  # the threshold comes with the rejection


def test_threshold_follows_the_scores_at_every_step() -> None:
    toy = Toy(toy_run("dac"))
    seen = set()
    for step in range(AFTER, AFTER + 5):
        toy.step(step)
        seen.add(toy.method.tau_open.item())
    assert len(seen) == 5 and min(seen) > 0


@pytest.mark.parametrize("otsu_eps", [0.0, 0.25])
def test_threshold_is_otsus_over_the_new_scores_plus_its_eps(otsu_eps: float) -> None:
    toy = Toy(toy_run("dac", otsu_eps=otsu_eps))
    toy.terms(AFTER)  # scores are updated first
    memory = toy.method.memory
    expected = otsu_threshold(memory.score[memory.visited]) + otsu_eps
    assert toy.method.tau_open.item() == pytest.approx(expected.item(), rel=1e-6)


# --- scores and rules ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dac", "dac-released"])
def test_dac_scores_by_raw_consensus_and_thresholds_by_otsu(method: str) -> None:
    toy = Toy(toy_run(method))
    with torch.no_grad():
        features = toy.network.encode(toy.pool)
        probs = toy.method.heads(toy.method.projection(features)).softmax(dim=2)
    scores = toy.method.score(features).detach()
    assert torch.equal(scores, consensus(probs, toy.run.method.score_form))
    published = toy.method.rules()["published"]
    assert torch.equal(published.threshold(scores, scores), otsu_threshold(scores))
    agreement = toy.method.agreement(features)
    K = toy.run.method.num_heads
    assert agreement.shape == (POOL, K, K)
    assert torch.equal(agreement.diagonal(dim1=1, dim2=2), torch.ones(POOL, K))
    if method == "dac":  # Eq. (7) is the mean of what Figs. 2 and 6 show
        mean = (agreement.sum(dim=(1, 2)) - K) / (K * (K - 1))
        assert torch.allclose(mean, scores, atol=1e-6)


@pytest.mark.parametrize("method", ["dac", "dac-released"])
def test_trained_threshold_is_tau_open_on_the_scale_of_the_raw_consensus(method: str) -> None:
    toy = Toy(toy_run(method))
    for step in range(AFTER, AFTER + 12):
        toy.step(step)
    memory = toy.method.memory
    tau_open = otsu_threshold(memory.score, memory.counted())
    rules = toy.method.rules()
    assert rules.keys() == {"published", "memory", "kept"}
    found = rules["memory"].threshold(memory.score, memory.score)
    assert memory.normalize(found).item() == pytest.approx(tau_open.item(), abs=1e-4)
    low, high = memory.range()
    assert low < found < high


@pytest.mark.parametrize("step", [0, AFTER])
@pytest.mark.parametrize("rejection", [False, True])
def test_training_keeps_what_it_weighs_with_one(step: int, rejection: bool) -> None:
    toy = Toy(toy_run("dac", rejection=rejection))
    for each in range(step, step + 8):
        toy.step(each)
    rules = toy.method.rules()
    kept = rules["kept"].accepts(torch.empty(0), torch.arange(POOL))
    rejects = rejection and step == AFTER
    omega = toy.method.omega(toy.method.memory.score) if rejects else torch.ones(POOL)
    assert torch.equal(kept, omega == 1)
    assert (0 < kept.sum() < POOL) == rejects
    assert ("memory" in rules) == rejection


def test_consensus_of_dac_comes_to_rank_inliers_above_outliers() -> None:
    toy = Toy(toy_run("dac"))
    for step in range(AFTER, AFTER + 80):
        toy.step(step)
    is_inlier = (toy.pool_labels < NUM_KNOWN).numpy()
    toy.network.eval()
    with torch.no_grad():
        scores = toy.method.score(toy.network.encode(toy.pool))
    assert roc_auc_score(is_inlier, toy.method.memory.score.numpy()) > 0.85
    assert roc_auc_score(is_inlier, scores.numpy()) > 0.7  # without Eq. (9) one step can be odd
