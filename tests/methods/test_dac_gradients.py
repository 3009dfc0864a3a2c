"""What each term of DAC may move, and that divergent heads leave the encoder alone."""

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor
from toy_runs import STEPS_PER_EPOCH, Toy, reach, toy_run

AFTER = STEPS_PER_EPOCH  # the first step after one epoch of warm-up
DIVERSIFY = ("heads_supervised", "heads_unlabeled", "mutual_information")

# --- gradients ----------------------------------------------------------------------------------


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
    assert not any(tensor.requires_grad for tensor in toy.method.bank.staged)


# --- heads do not touch the encoder (docs/protocol/training.md, "Randomness") -------------------


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
