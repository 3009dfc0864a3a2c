"""Methods: named terms, values against a plain reading of the equations, scores, training."""

import dataclasses
import math

import pytest
import torch
from skimage.filters import threshold_otsu
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F
from toy_runs import BATCH, METHODS, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, toy_run

from dac.consensus import consensus
from dac.models.ema import Ema
from dac.otsu import otsu_threshold
from dac.step import Batch

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
DIVERSIFY = ("heads_supervised", "heads_unlabeled", "mutual_information")
DAC = {"supervised", *DIVERSIFY}
UNLABELED = {"supervised", "unlabeled"}
OPENMATCH = {"supervised", "detectors", "entropy", "consistency"}
OSP, PRUNED = (
    {"supervised", "matching", "rotation"},
    {"unlabeled", "match_entropy", "labeled_agreement"},
)
UAGREG = UNLABELED | {"open_supervised", "outliers", "graph"}
PER_SAMPLE = ("unlabeled", "graph", "instances", "entropy", "consistency", "seen", "unseen")
PER_SAMPLE += ("open_set", "pseudo_negatives")
U = BATCH * MU

# --- which terms there are ----------------------------------------------------------------------

TERMS = {  # method -> before and after the warm-up
    "labeled-only": ({"supervised"}, {"supervised"}),
    "fixmatch": (UNLABELED, UNLABELED),
    "fixmatch-released": (UNLABELED, UNLABELED),
    "fixmatch-control": ({"supervised"}, UNLABELED),
    "fixmatch-control-released": ({"supervised"}, UNLABELED),
    "mixmatch": (UNLABELED, UNLABELED),
    "mixmatch-released": (UNLABELED, UNLABELED),
    "comatch": (UNLABELED | {"graph"}, UNLABELED | {"graph"}),
    "comatch-released": (UNLABELED | {"graph"}, UNLABELED | {"graph"}),
    "simmatch": (UNLABELED, UNLABELED | {"instances"}),
    "simmatch-released": (UNLABELED, UNLABELED | {"instances"}),
    "softmatch": (UNLABELED, UNLABELED),
    "softmatch-released": (UNLABELED, UNLABELED),
    "mtcf": ({"inliers"}, UNLABELED | {"inliers"}),
    "openmatch": (OPENMATCH, OPENMATCH | {"unlabeled"}),
    "safe-student": ({"supervised"}, {"supervised", "seen", "unseen"}),
    "osp": (OSP, OSP | PRUNED),
    "osp-released": (OSP, OSP | PRUNED),
    "ssb": (UNLABELED, UNLABELED | OPENMATCH | {"pseudo_negatives"}),
    "iomatch": (UNLABELED | {"detectors"}, UNLABELED | {"detectors", "open_set"}),
    "iomatch-aligned": (UNLABELED | {"detectors"}, UNLABELED | {"detectors", "open_set"}),
    "uagreg": (UAGREG, UAGREG),
    "uagreg-original": (UAGREG, UAGREG),
    "mixmatch+dac": (DAC, DAC | {"unlabeled", "distillation"}),
    "simmatch+dac": (DAC, DAC | {"unlabeled", "instances", "distillation"}),
    "softmatch+dac": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac-released": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac-heads": (
        DAC - {"mutual_information"},
        DAC - {"mutual_information"} | {"unlabeled"},
    ),
    "dac-heads-mi": (DAC, DAC | {"unlabeled"}),
    "dac-heads-mi-kd": (DAC, DAC | {"unlabeled", "distillation"}),
    "dac-heads-mi-rejection": (DAC, DAC | {"unlabeled"}),
}


def test_every_method_of_params_yaml_has_its_terms_written_down() -> None:
    assert set(TERMS) == set(METHODS)


@pytest.mark.parametrize("method", TERMS)
def test_terms_are_exactly_those_of_the_method_before_and_after_warm_up(method: str) -> None:
    toy, (before, after) = Toy(toy_run(method)), TERMS[method]
    assert set(toy.terms(0)) == set(toy.terms(AFTER - 1)) == before
    assert set(toy.terms(AFTER)) == after


@pytest.mark.parametrize("method", TERMS)
def test_unlabeled_terms_have_one_value_per_sample_and_the_others_are_scalars(method: str) -> None:
    rows = 2 * U if "mixmatch" in method or method == "mtcf" else U  # both views are mixed
    names = [name for name in PER_SAMPLE if not method.startswith("osp")]  # OSP divides by its own
    for name, term in Toy(toy_run(method)).terms(AFTER).items():
        if name != "match_entropy":
            assert term.shape == ((rows,) if name in names else ())


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
        toy.method.finish_step()
        rejected += int((plain.omega(torch.tensor(plain.score)) < 1).sum())
    assert torch.allclose(toy.method.memory.score, torch.tensor(plain.score), atol=1e-4)
    assert rejected > 0


@pytest.mark.parametrize("hard_label", [True, False])
def test_fixmatch_is_its_two_equations(hard_label: bool) -> None:
    toy = Toy(toy_run("fixmatch", tau=0.3, hard_label=hard_label, lambda_u=0.7))
    batch = toy.batch()
    terms = toy.terms(0, batch)
    features = toy.network.encode(torch.cat([*batch.x, *batch.u_weak, *batch.u_strong]))
    x, weak, strong = toy.method.head(features).split([BATCH, U, U])
    p = weak.softmax(dim=1)
    target = F.one_hot(p.argmax(dim=1), NUM_KNOWN) if hard_label else p
    expected = 0.7 * (p.amax(dim=1) >= 0.3) * -(target * strong.log_softmax(dim=1)).sum(dim=1)
    assert terms["supervised"].item() == pytest.approx(F.cross_entropy(x, batch.y).item(), rel=1e-5)
    assert torch.allclose(terms["unlabeled"], expected, rtol=1e-4, atol=1e-6)


def test_second_labeled_view_counts_as_much_as_the_first() -> None:
    toy = Toy(toy_run("labeled-only", labeled_views=2))
    toy.network.eval()  # running statistics: views do not touch each other
    batch = toy.batch()
    both = toy.terms(0, batch)["supervised"].item()
    each = [toy.terms(0, dataclasses.replace(batch, x=[view]))["supervised"] for view in batch.x]
    assert both == pytest.approx(sum(each).item() / 2, rel=1e-5)
    assert each[0] != each[1]


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


# --- scores and thresholds ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["labeled-only", "fixmatch", "fixmatch-released"])
def test_closed_set_methods_score_by_confidence_and_reject_below_095(method: str) -> None:
    toy = Toy(toy_run(method))
    features = toy.network.encode(toy.pool[:9])
    expected = toy.method.head(features).softmax(dim=1).max(dim=1).values
    assert torch.equal(toy.method.score(features), expected)
    assert toy.method.threshold(expected, expected).item() == pytest.approx(0.95)
    assert toy.method.agreement(features) is None and toy.method.trained_thresholds() == {}


@pytest.mark.parametrize("method", ["dac", "dac-released"])
def test_dac_scores_by_raw_consensus_and_thresholds_by_otsu(method: str) -> None:
    toy = Toy(toy_run(method))
    with torch.no_grad():
        features = toy.network.encode(toy.pool)
        probs = toy.method.heads(toy.method.projection(features)).softmax(dim=2)
    scores = toy.method.score(features).detach()
    assert torch.equal(scores, consensus(probs, toy.run.method.score_form))
    assert torch.equal(toy.method.threshold(scores, scores), otsu_threshold(scores))
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
    (found,) = toy.method.trained_thresholds().values()
    assert memory.normalize(found).item() == pytest.approx(tau_open.item(), abs=1e-4)
    low, high = memory.range()
    assert low < found < high


# --- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_training_lowers_the_loss(method: str) -> None:
    toy = Toy(toy_run(method))
    totals = [sum(toy.step(step).values()) for step in range(AFTER, AFTER + 40)]
    assert sum(totals[-5:]) < 0.7 * sum(totals[:5])


@pytest.mark.parametrize("seed", [1, 2])
def test_consensus_of_dac_comes_to_rank_inliers_above_outliers(seed: int) -> None:
    toy = Toy(toy_run("dac", seed))
    for step in range(AFTER, AFTER + 120):
        toy.step(step)
    is_inlier = (toy.pool_labels < NUM_KNOWN).numpy()
    toy.network.eval()
    with torch.no_grad():
        scores = toy.method.score(toy.network.encode(toy.pool))
    assert roc_auc_score(is_inlier, toy.method.memory.score.numpy()) > 0.85
    assert roc_auc_score(is_inlier, scores.numpy()) > 0.7  # without Eq. (9) one step can be odd


def test_average_of_a_method_covers_its_heads() -> None:
    toy = Toy(toy_run("dac"))
    assert set(Ema(toy.network, 0.9).average) == {n for n, _ in toy.network.named_parameters()}
    assert "method.heads.linear.weight" in toy.ema.average
