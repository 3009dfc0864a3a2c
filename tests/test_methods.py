"""Methods: named terms, values against plain equations, gradients, memory, degenerate inputs."""

import copy
import dataclasses
import math
from collections.abc import Iterable

import pytest
import torch
from skimage.filters import threshold_otsu
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F
from toy_runs import BATCH, METHODS, MU, NUM_KNOWN, POOL, STEPS_PER_EPOCH, Toy, clock, toy_run

from dac.consensus import consensus
from dac.methods.base import Batch
from dac.models.ema import Ema
from dac.otsu import otsu_threshold

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
DIVERSIFY = ("heads_supervised", "heads_unlabeled", "mutual_information")
DAC = {"supervised", *DIVERSIFY}
U = BATCH * MU

# --- which terms there are ----------------------------------------------------------------------

TERMS = {  # method -> before and after the warm-up
    "labeled-only": ({"supervised"}, {"supervised"}),
    "fixmatch": ({"supervised", "unlabeled"}, {"supervised", "unlabeled"}),
    "fixmatch-released": ({"supervised", "unlabeled"}, {"supervised", "unlabeled"}),
    "fixmatch-control": ({"supervised"}, {"supervised", "unlabeled"}),
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


@pytest.mark.parametrize("method", TERMS)
def test_terms_are_exactly_those_of_the_method_before_and_after_warm_up(method: str) -> None:
    toy, (before, after) = Toy(toy_run(method)), TERMS[method]
    assert set(toy.terms(0)) == set(toy.terms(AFTER - 1)) == before
    assert set(toy.terms(AFTER)) == after


@pytest.mark.parametrize("method", TERMS)
def test_unlabeled_term_has_one_value_per_sample_and_the_others_are_scalars(method: str) -> None:
    for name, term in Toy(toy_run(method)).terms(AFTER).items():
        assert term.shape == ((U,) if name == "unlabeled" else ())


@pytest.mark.parametrize("method", METHODS)
def test_first_steps_before_and_after_warm_up_are_finite(method: str) -> None:
    for first in (0, AFTER):
        assert_finite_step(Toy(toy_run(method)), first)


def assert_finite_step(toy: Toy, step: int, batch: Batch | None = None) -> dict[str, Tensor]:
    """Terms and the gradient of their sum are finite; returns the terms."""
    terms = toy.terms(step, batch)
    total = torch.stack([term.mean() for term in terms.values()]).sum()
    toy.network.zero_grad()
    total.backward()
    for name, term in terms.items():
        assert term.isfinite().all(), name
    for name, parameter in toy.network.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    toy.method.finish_step()
    for name, buffer in toy.network.named_buffers():
        assert buffer.isfinite().all(), name
    return terms


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
            per_sample = s.lambda_u * self.self_training(weak, strong, s.tau)
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


# --- gradients ----------------------------------------------------------------------------------


def reach(term: Tensor, *modules: nn.Module) -> float:
    """Sum of the absolute gradient of a term over all parameters of some modules."""
    parameters = [p for module in modules for p in module.parameters()]
    gradients = torch.autograd.grad(term.mean(), parameters, retain_graph=True, allow_unused=True)
    return sum(float(g.abs().sum()) for g in gradients if g is not None)


@pytest.fixture(scope="module")
def trained() -> tuple[Toy, dict[str, Tensor]]:
    """Released form, so that there is a LayerNorm; tau so low that every term is active."""
    toy = Toy(toy_run("dac-released", tau=0.3, head_tau=0.3))
    for step in range(AFTER - 5, AFTER + 3):
        toy.step(step)
    return toy, toy.terms(AFTER + 3)


@pytest.mark.parametrize("name", DIVERSIFY)
def test_diversifying_reaches_heads_and_projection_but_not_the_encoder(
    trained: tuple[Toy, dict[str, Tensor]], name: str
) -> None:
    toy, terms = trained
    assert reach(terms[name], toy.network.backbone) == 0
    assert reach(terms[name], toy.network.norm) == 0
    assert reach(terms[name], toy.method.objective) == 0
    assert reach(terms[name], toy.method.projection) > 0
    assert reach(terms[name], toy.method.heads) > 0


@pytest.mark.parametrize("name", DIVERSIFY)
def test_diversifying_heads_only_leaves_the_projection_alone(name: str) -> None:
    toy = Toy(toy_run("dac", diversify="heads", head_tau=0.3))
    term = toy.terms(AFTER)[name]
    assert reach(term, toy.method.projection, toy.network.backbone) == 0
    assert reach(term, toy.method.heads) > 0


def test_distillation_reaches_encoder_and_projection_but_no_head(
    trained: tuple[Toy, dict[str, Tensor]],
) -> None:
    toy, terms = trained
    for module in (toy.network.backbone, toy.network.norm, toy.method.projection):
        assert reach(terms["distillation"], module) > 0
    assert reach(terms["distillation"], toy.method.heads) == 0  # nothing through s
    assert reach(terms["distillation"], toy.method.objective) == 0  # nothing through q


def test_weighted_unlabeled_loss_reaches_the_classifier_and_nothing_through_omega(
    trained: tuple[Toy, dict[str, Tensor]],
) -> None:
    toy, terms = trained
    assert reach(terms["unlabeled"], toy.network.backbone) > 0
    assert reach(terms["unlabeled"], toy.method.objective) > 0
    assert reach(terms["unlabeled"], toy.method.heads, toy.method.projection) == 0


def test_only_strong_views_are_pulled_by_targets_from_weak_views(
    trained: tuple[Toy, dict[str, Tensor]],
) -> None:
    toy, _ = trained
    toy.network.eval()  # batch statistics would couple all views
    batch = toy.batch()
    for view in (*batch.x, *batch.u_weak, *batch.u_strong):
        view.requires_grad_()
    terms = toy.terms(AFTER, batch)
    toy.network.train()
    for name in ("unlabeled", "distillation"):
        weak, strong = torch.autograd.grad(
            terms[name].mean(),
            [batch.u_weak[0], batch.u_strong[0]],
            retain_graph=True,
            allow_unused=True,
        )
        assert weak is None or not weak.any()
        assert strong is not None and strong.abs().sum() > 0


def test_no_memory_carries_a_gradient(trained: tuple[Toy, dict[str, Tensor]]) -> None:
    toy, _ = trained
    assert not any(buffer.requires_grad for buffer in toy.network.buffers())
    assert not any(tensor.requires_grad for tensor in toy.method.unwritten)


# --- heads do not touch the encoder (spec check 15) ---------------------------------------------


def encoder_path(toy: Toy, steps: Iterable[int]) -> list[dict[str, Tensor]]:
    """Encoder, LayerNorm and target head, statistics included, after each of the steps."""
    path = []
    for step in steps:
        toy.step(step)
        target = getattr(toy.method, "objective", toy.method).head
        named = {"backbone": toy.network.backbone, "norm": toy.network.norm, "head": target}
        path.append(
            {
                f"{part}.{name}": tensor.clone()
                for part, module in named.items()
                for name, tensor in module.state_dict().items()
            }
        )
    return path


def same_path(left: list[dict[str, Tensor]], right: list[dict[str, Tensor]]) -> bool:
    return all(
        a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
        for a, b in zip(left, right, strict=True)
    )


STEPS = range(AFTER - 3, AFTER + 6)
ACTIVE = {"tau": 0.4}  # so low that the unlabeled loss matters from the start


@pytest.mark.parametrize(("views", "layernorm"), [(1, False), (2, True)])
def test_encoder_is_the_same_to_the_bit_with_and_without_heads(views: int, layernorm: bool) -> None:
    shared = {"labeled_views": views, "feature_layernorm": layernorm, **ACTIVE}
    heads = Toy(toy_run("dac", rejection=False, lambda_kd=0.0, **shared))
    plain = Toy(toy_run("fixmatch", start_epoch=1, **shared))
    with_heads, without = encoder_path(heads, STEPS), encoder_path(plain, STEPS)
    assert same_path(with_heads, without)
    assert not same_path(with_heads[:1], with_heads[-1:])  # it moved


def test_mutual_information_does_not_touch_the_encoder() -> None:
    heads, diverse = (encoder_path(Toy(toy_run(m)), STEPS) for m in ("dac-heads", "dac-heads-mi"))
    assert same_path(heads, diverse)


@pytest.mark.parametrize("method", ["dac-heads-mi-kd", "dac-heads-mi-rejection", "dac"])
def test_distillation_and_rejection_do_touch_the_encoder(method: str) -> None:
    heads, other = (encoder_path(Toy(toy_run(m, **ACTIVE)), STEPS) for m in ("dac-heads", method))
    warm_up = AFTER - STEPS.start
    assert same_path(heads[:warm_up], other[:warm_up])
    assert not same_path(heads[warm_up:], other[warm_up:])


def test_rejection_temperature_of_zero_is_no_rejection() -> None:
    off = Toy(toy_run("dac", rejection=False, **ACTIVE))
    zero = Toy(toy_run("dac", rejection_temperature=0.0, **ACTIVE))
    assert same_path(encoder_path(off, STEPS), encoder_path(zero, STEPS))


# --- construction -------------------------------------------------------------------------------


def test_encoder_and_target_head_start_alike_for_every_method_of_a_seed() -> None:
    starts = [encoder_path_start(Toy(toy_run(method))) for method in METHODS]
    for start in starts[1:]:
        assert all(torch.equal(start[k], starts[0][k]) for k in starts[0])
    other = encoder_path_start(Toy(toy_run("dac", seed=2)))
    assert not torch.equal(other["weight"], starts[0]["weight"])


def encoder_path_start(toy: Toy) -> dict[str, Tensor]:
    head = getattr(toy.method, "objective", toy.method).head
    return {"weight": head.weight, **toy.network.backbone.state_dict()}


def test_network_is_a_function_of_its_seed() -> None:
    first, second = (Toy(toy_run("dac")).network.state_dict() for _ in range(2))
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_memory_is_in_the_state_dict() -> None:
    names = {f"method.memory.{n}" for n in ("consensus", "score", "visited")}
    names |= {f"method.bank.{n}" for n in ("z", "q", "position")} | {"method.tau_open"}
    assert names <= set(Toy(toy_run("dac")).network.state_dict())


@pytest.mark.parametrize("method", METHODS)
def test_copying_the_state_mid_run_changes_nothing(method: str) -> None:
    whole, resumed = Toy(toy_run(method)), Toy(toy_run(method))
    for step in range(AFTER - 2, AFTER + 2):
        whole.step(step)
    resumed.network.load_state_dict(whole.network.state_dict())
    resumed.optimizer.load_state_dict(copy.deepcopy(whole.optimizer.state_dict()))
    resumed.ema.load_state_dict(whole.ema.state_dict())
    resumed.draw.set_state(whole.draw.get_state())
    for step in range(AFTER + 2, AFTER + 4):
        assert whole.step(step) == resumed.step(step)
    left, right = (
        {**toy.network.state_dict(), **{f"ema {k}": v for k, v in toy.ema.average.items()}}
        for toy in (whole, resumed)
    )
    assert all(torch.equal(left[name], right[name]) for name in left)


# --- order of writes ----------------------------------------------------------------------------


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
    toy.method.finish_step()
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
    toy.method.finish_step()
    toy.method.finish_step()
    assert toy.method.bank.position == U


def test_scores_and_bank_are_filled_during_warm_up() -> None:
    toy = Toy(toy_run("dac"))
    for step in range(3):
        toy.step(step)
    assert toy.method.bank.position == 3 * U
    assert toy.method.memory.visited.sum() > U
    assert toy.method.tau_open == 0  # the threshold comes with the rejection


def test_threshold_is_recomputed_every_so_many_steps_and_at_an_epochs_start() -> None:
    toy = Toy(toy_run("dac", otsu_every=4))
    seen = []
    for step in range(AFTER, 2 * AFTER + 2):
        toy.step(step)
        seen.append(toy.method.tau_open.item())
    changes = [AFTER + i for i in range(1, len(seen)) if seen[i] != seen[i - 1]]
    assert changes == [12, 16, 20]
    assert seen[0] > 0


# --- scores and thresholds ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["labeled-only", "fixmatch", "fixmatch-released"])
def test_closed_set_methods_score_by_confidence_and_reject_below_095(method: str) -> None:
    toy = Toy(toy_run(method))
    features = toy.network.encode(toy.pool[:9])
    expected = toy.method.head(features).softmax(dim=1).max(dim=1).values
    assert torch.equal(toy.method.score(features), expected)
    assert toy.method.threshold(expected).item() == pytest.approx(0.95)
    assert toy.method.agreement(features) is None and toy.method.trained_threshold() is None


@pytest.mark.parametrize("method", ["dac", "dac-released"])
def test_dac_scores_by_raw_consensus_and_thresholds_by_otsu(method: str) -> None:
    toy = Toy(toy_run(method))
    with torch.no_grad():
        features = toy.network.encode(toy.pool)
        probs = toy.method.heads(toy.method.projection(features)).softmax(dim=2)
    scores = toy.method.score(features).detach()
    assert torch.equal(scores, consensus(probs, toy.run.method.score_form))
    assert torch.equal(toy.method.threshold(scores), otsu_threshold(scores))
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
    found = toy.method.trained_threshold()
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


# --- degenerate inputs --------------------------------------------------------------------------

FORMS = ("dac", "dac-released")


@pytest.mark.parametrize("method", FORMS)
def test_one_head_is_finite_and_agrees_with_itself(method: str) -> None:
    toy = Toy(toy_run(method, num_heads=1, **ACTIVE))
    for step in range(AFTER, AFTER + 30):  # long enough to see every item
        assert assert_finite_step(toy, step)["mutual_information"] == 0
    assert torch.equal(toy.method.memory.consensus, torch.ones(POOL))


@pytest.mark.parametrize("method", METHODS)
def test_batch_of_one_is_finite(method: str) -> None:
    toy = Toy(toy_run(method))
    full = toy.batch()
    single = Batch(
        x=[view[:1] for view in full.x],
        y=full.y[:1],
        x_index=full.x_index[:1],
        u_weak=[view[:1] for view in full.u_weak],
        u_strong=[view[:1] for view in full.u_strong],
        u_index=full.u_index[:1],
    )
    for step in (0, AFTER):
        assert_finite_step(toy, step, single)
    if hasattr(toy.method, "memory"):  # all pool items unvisited but one
        assert toy.method.memory.visited.sum() == 1


@pytest.mark.parametrize("method", METHODS)
def test_saturated_softmaxes_are_finite(method: str) -> None:
    toy = Toy(toy_run(method))
    with torch.no_grad():
        for name, parameter in toy.network.method.named_parameters():
            if "head" in name and parameter.ndim == 2:
                parameter.mul_(1e4)
    features = toy.network.encode(toy.pool)
    assert toy.method.logits(features).abs().max() > 1e3
    for step in (AFTER, AFTER + 1):
        assert_finite_step(toy, step)


@pytest.mark.parametrize("method", FORMS)
def test_all_zero_bank_is_finite(method: str) -> None:
    toy = Toy(toy_run(method))
    toy.method.bank.z.zero_()
    toy.method.bank.q.zero_()
    assert_finite_step(toy, AFTER)


def test_threshold_of_zero_is_finite_and_rejects_nobody() -> None:
    toy, free = Toy(toy_run("dac", **ACTIVE)), Toy(toy_run("dac", rejection=False, **ACTIVE))
    toy.method.settings = toy.method.settings.model_copy(update={"otsu_every": 7})
    step = AFTER + 1  # no new threshold is due: tau_open is still zero
    found = assert_finite_step(toy, step)["unlabeled"]
    assert toy.method.tau_open == 0
    assert torch.equal(found, free.terms(step)["unlabeled"])


def test_equal_scores_reject_nobody() -> None:
    toy, free = Toy(toy_run("dac", **ACTIVE)), Toy(toy_run("dac", rejection=False, **ACTIVE))
    for each in (toy, free):
        nn.init.zeros_(each.method.heads.linear.weight)  # all heads say the same of every image
    found, expected = assert_finite_step(toy, AFTER), free.terms(AFTER)
    assert torch.equal(found["unlabeled"], expected["unlabeled"])
    assert toy.method.memory.score[toy.method.memory.visited].unique().numel() == 1


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_steps_are_finite_and_close_to_float32(method: str) -> None:
    # DAC's logarithms and scores need float32 whatever the precision of the network is.
    exact, fast = Toy(toy_run(method)), Toy(toy_run(method))
    for step in (AFTER - 1, AFTER):
        expected = exact.terms(step)
        with torch.autocast("cpu", torch.bfloat16):
            found = assert_finite_step(fast, step)
        exact.method.finish_step()
        for name, term in found.items():
            assert term.dtype == torch.float32, name
            assert term.mean().item() == pytest.approx(expected[name].mean().item(), abs=0.1), name


def test_clock_of_the_toys_counts_epochs() -> None:
    assert clock(AFTER - 1).epoch == 0 and clock(AFTER).epoch == 1
