"""What each loss term may move, and that divergent heads leave the encoder alone."""

from collections.abc import Iterable
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from toy_runs import STEPS_PER_EPOCH, Toy, toy_run

from dac.step import Batch

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
DIVERSIFY = ("heads_supervised", "heads_unlabeled", "mutual_information")

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


# --- open-set baselines: what a detached part would cut off -------------------------------------

CLASSIFIER = {"backbone", "head"}
DETECTORS = {"backbone", "detectors"}
MIXED = CLASSIFIER | {"x 0", "u_weak 0", "u_weak 1"}  # whatever is mixed in is learned from
REACHED = {  # every module and every view that a term has a gradient for
    ("openmatch", "supervised"): CLASSIFIER | {"x 0", "x 1"},
    ("openmatch", "detectors"): DETECTORS | {"x 0", "x 1"},
    ("openmatch", "entropy"): DETECTORS | {"u_weak 0", "u_weak 1"},
    ("openmatch", "consistency"): DETECTORS | {"u_weak 0", "u_weak 1"},
    ("openmatch", "unlabeled"): CLASSIFIER | {"inliers.strong 0"},
    ("safe-student", "supervised"): CLASSIFIER | {"x 0"},
    ("safe-student", "seen"): CLASSIFIER | {"seen.strong 0"},
    ("safe-student", "unseen"): CLASSIFIER | {"unseen.strong 0"},
    ("mtcf", "inliers"): {"backbone", "inlier_head", "joint.weak 0"},
    ("mtcf", "supervised"): MIXED,
    ("mtcf", "unlabeled"): MIXED,
}


@cache
def baseline(method: str) -> tuple[Toy, Batch]:
    """After its warm-up. In evaluation mode, or batch statistics would couple all views."""
    toy = Toy(toy_run(method))
    for step in range(AFTER - 5, AFTER + 3):
        toy.step(step)
    toy.network.eval()
    return toy, toy.batch(AFTER + 3)


def modules_of(toy: Toy) -> dict[str, nn.Module]:
    parts = {name: m for name, m in toy.method.named_children() if list(m.parameters())}
    return {"backbone": toy.network.backbone, **parts}


def views_of(batch: Batch) -> dict[str, Tensor]:
    parts = {"x": batch.x, "u_weak": batch.u_weak, "u_strong": batch.u_strong}
    for name, drawn in batch.more.items():
        parts |= {f"{name}.weak": drawn.weak, f"{name}.strong": drawn.strong}
    return {f"{name} {i}": view for name, part in parts.items() for i, view in enumerate(part)}


@pytest.mark.parametrize(("method", "name"), REACHED)
def test_terms_of_baselines_reach_these_modules_and_views_and_no_others(
    method: str, name: str
) -> None:
    toy, batch = baseline(method)
    views = {each: view.requires_grad_() for each, view in views_of(batch).items()}
    terms = toy.terms(AFTER + 3, batch)
    assert terms.keys() == {term for of, term in REACHED if of == method}
    found = {part for part, module in modules_of(toy).items() if reach(terms[name], module) > 0}
    gradients = torch.autograd.grad(terms[name].mean(), list(views.values()), allow_unused=True)
    pairs = zip(views, gradients, strict=True)
    assert found | {view for view, g in pairs if g is not None and g.any()} == REACHED[method, name]


def value_and_gradient(
    toy: Toy, batch: Batch, name: str, module: nn.Module
) -> tuple[float, Tensor]:
    term = toy.terms(AFTER + 3, batch)[name].mean()
    gradients = torch.autograd.grad(term, list(module.parameters()))
    return term.item(), nn.utils.parameters_to_vector(gradients)


# Not of MixMatch's terms: guessed labels are held fixed, though they depend on the weights.
@pytest.mark.parametrize(("method", "name"), [each for each in REACHED if REACHED[each] != MIXED])
def test_gradients_of_baselines_are_the_slopes_of_their_values(method: str, name: str) -> None:
    """Along its gradient a term rises by the gradient's length, unless a part is detached."""
    toy, batch = baseline(method)
    for part in REACHED[method, name] & modules_of(toy).keys():
        module = modules_of(toy)[part]
        weights = nn.utils.parameters_to_vector(module.parameters()).detach()
        _, gradient = value_and_gradient(toy, batch, name, module)
        values = []
        for shift in (1e-3, -1e-3, 0):  # and back
            moved = weights + shift * gradient / gradient.norm()
            nn.utils.vector_to_parameters(moved, module.parameters())
            values.append(value_and_gradient(toy, batch, name, module)[0])
        slope = (values[0] - values[1]) / 2e-3
        assert slope == pytest.approx(gradient.norm().item(), rel=0.05), part


# --- heads do not touch the encoder (docs/protocol.md, "Randomness") ----------------------------


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
