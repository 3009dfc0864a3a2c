"""Which modules and views each term of the open-set baselines reaches, and by the right slope."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from toy_runs import STEPS_PER_EPOCH, Toy, reach, toy_run

from dac.methods.step import Batch

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
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
