"""SimSiam's equations by hand, where gradients flow, its layers and its optimizer."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from toy_runs import PARAMS

from dac.config import Pretrain
from dac.models import build_backbone
from dac.models.simsiam import (
    SimSiam,
    distance,
    make_optimizer,
    projector,
    set_rates,
    spread,
    symmetric_loss,
)

OFFICIAL = PARAMS.pretrain("semi-inat-2021", "resnet18").settings
DIGITS = PARAMS.pretrain("digits", "small-cnn").settings


def model(settings: Pretrain = DIGITS) -> SimSiam:
    torch.manual_seed(0)
    return SimSiam(build_backbone("small-cnn"), settings).train()


def pair(count: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2 * count, 3, 16, 16, generator=generator)
    return x[:count], 3 * x[count:] + 1


# --- loss -------------------------------------------------------------------------------------


def test_loss_by_hand() -> None:
    p1, z2 = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[4.0, 3.0], [0.0, 2.0]])
    p2, z1 = torch.tensor([[1.0, 1.0], [2.0, 0.0]]), torch.tensor([[5.0, 5.0], [-1.0, 0.0]])
    assert float(distance(p1, z2)) == pytest.approx(-(24 / 25 + 0) / 2)
    assert float(distance(p2, z1)) == pytest.approx(-(1 - 1) / 2, abs=1e-6)
    assert float(symmetric_loss(p1, p2, z1, z2)) == pytest.approx(-0.24)


def test_loss_equals_the_official_cosine_similarity() -> None:
    p1, p2, z1, z2 = torch.randn(4, 32, 16, generator=torch.Generator().manual_seed(0))
    cosine = nn.CosineSimilarity(dim=1)
    official = -(cosine(p1, z2).mean() + cosine(p2, z1).mean()) * 0.5
    torch.testing.assert_close(symmetric_loss(p1, p2, z1, z2), official)


def test_views_that_predict_each_other_have_the_least_loss() -> None:
    z = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    assert float(symmetric_loss(2 * z, 0.1 * z, z, z)) == pytest.approx(-1)
    assert float(symmetric_loss(-z, -z, z, z)) == pytest.approx(1)


def test_gradients_reach_the_encoder_only_through_the_prediction() -> None:
    network = model()
    p1, p2, z1, z2 = network(*pair())
    found = torch.autograd.grad(
        symmetric_loss(p1, p2, z1, z2), network.backbone.parameters(), retain_graph=True
    )
    stopped = symmetric_loss(p1, p2, z1.clone().detach(), z2.clone().detach())
    expected = torch.autograd.grad(stopped, network.backbone.parameters(), retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert any(bool(gradient.abs().max() > 0) for gradient in found)
    through_targets = torch.autograd.grad(
        symmetric_loss(p1.detach(), p2.detach(), z1, z2) + 0 * z1.sum(),
        network.backbone.parameters(),
    )
    assert all(bool((gradient == 0).all()) for gradient in through_targets)


def test_spread_by_hand_and_on_the_sphere() -> None:
    z = torch.tensor([[2.0, 0.0], [0.0, 5.0]])  # normalised: (1, 0) and (0, 1)
    assert float(spread(z)) == pytest.approx(math.sqrt(0.5))
    assert float(spread(torch.ones(9, 4))) == 0, "all images in one point"
    sphere = torch.randn(4000, 64, generator=torch.Generator().manual_seed(0))
    assert float(spread(sphere)) == pytest.approx(1 / 8, rel=0.02)


# --- layers -----------------------------------------------------------------------------------


def test_layers_are_those_of_the_official_code() -> None:
    network = SimSiam(build_backbone("resnet18", zero_residuals=True), OFFICIAL)
    shapes = {name: tuple(p.shape) for name, p in network.projector.named_parameters()}
    assert shapes == {
        "0.weight": (512, 512),
        **{"1.weight": (512,), "1.bias": (512,)},
        "3.weight": (512, 512),
        **{"4.weight": (512,), "4.bias": (512,)},
        **{"6.weight": (2048, 512), "6.bias": (2048,)},
    }
    shapes = {name: tuple(p.shape) for name, p in network.predictor.named_parameters()}
    assert shapes == {
        "0.weight": (512, 2048),
        **{"1.weight": (512,), "1.bias": (512,)},
        **{"3.weight": (2048, 512), "3.bias": (2048,)},
    }
    frozen = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert frozen == {"projector.6.bias"}


def test_hidden_width_is_a_parameter() -> None:
    wide = model(DIGITS.model_copy(update={"hidden": 100}))
    assert [m.out_features for m in wide.projector if isinstance(m, nn.Linear)] == [100, 100, 128]


def test_projection_is_normalised_without_scale_and_shift() -> None:
    z = projector(8, 16, 32).train()(torch.randn(64, 8))
    torch.testing.assert_close(z.mean(dim=0), torch.zeros(32), atol=1e-5, rtol=0)
    torch.testing.assert_close(z.var(dim=0, correction=0), torch.ones(32), atol=1e-2, rtol=0)


@pytest.mark.parametrize(("name", "last"), [("resnet18", "bn2"), ("resnet18-released", "bn3")])
def test_residual_blocks_start_as_identities(name, last) -> None:
    scales = {
        key: tensor
        for key, tensor in build_backbone(name, zero_residuals=True).state_dict().items()
        if key.endswith(f"{last}.weight")
    }
    assert len(scales) == 8 and all(bool((scale == 0).all()) for scale in scales.values())
    plain = build_backbone(name).state_dict()
    assert all(bool((plain[key] == 1).all()) for key in scales)


def test_each_view_has_a_forward_and_norm_statistics_of_its_own() -> None:
    x1, x2 = pair()
    network, alone = model(), model()
    p1, p2, z1, z2 = network(x1, x2)
    z_alone = [alone.projector(alone.backbone(x)) for x in (x1, x2)]
    p_alone = [alone.predictor(z) for z in z_alone]
    for found, expected in zip((z1, z2, p1, p2), (*z_alone, *p_alone), strict=True):
        assert torch.equal(found, expected)
    together = model()
    mixed = together.projector(together.backbone(torch.cat((x1, x2))))
    assert not torch.allclose(mixed[: len(x1)], z1, atol=1e-2)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert all(int(norm.num_batches_tracked) == 2 for norm in norms)


# --- optimizer --------------------------------------------------------------------------------


def test_the_encoder_follows_a_cosine_by_epochs_and_the_predictor_keeps_its_rate() -> None:
    optimizer = make_optimizer(model(), OFFICIAL)
    of_encoder, of_predictor = optimizer.param_groups
    assert OFFICIAL.epochs == 100 and of_encoder["lr"] == of_predictor["lr"] == 0.05
    rates = [set_rates(optimizer, OFFICIAL, epoch) for epoch in range(100)]
    assert rates[0] == 0.05 and rates[50] == pytest.approx(0.025)
    assert rates[25] == pytest.approx(0.05 * (1 + math.sqrt(0.5)) / 2)
    assert rates == sorted(rates, reverse=True) and rates[-1] > 0
    assert (of_encoder["lr"], of_predictor["lr"]) == (rates[-1], 0.05)


def test_the_rate_grows_with_the_batch() -> None:
    optimizer = make_optimizer(model(), OFFICIAL.model_copy(update={"batch": 512}))
    assert {group["lr"] for group in optimizer.param_groups} == {0.1}


def test_everything_that_learns_is_decayed_without_nesterov() -> None:
    network = model()
    groups = make_optimizer(network, DIGITS).param_groups
    assert all(group["weight_decay"] == 1e-4 for group in groups)
    assert all(group["momentum"] == 0.9 and not group["nesterov"] for group in groups)
    names = {id(p): name for name, p in network.named_parameters() if p.requires_grad}
    of_encoder, of_predictor = ([names[id(p)] for p in group["params"]] for group in groups)
    assert all(name.startswith("predictor.") for name in of_predictor)
    assert sorted(of_encoder + of_predictor) == sorted(names.values())
    assert "backbone.layers.1.bias" in of_encoder, "norms and biases too"


def test_one_step_equals_sgd_by_hand() -> None:
    network = model()
    optimizer = make_optimizer(network, DIGITS)
    set_rates(optimizer, DIGITS, epoch=DIGITS.epochs // 2)
    weights = network.predictor[3].bias, network.backbone.layers[1].weight
    before = [w.detach().clone() for w in weights]
    symmetric_loss(*network(*pair())).backward()
    gradients = [w.grad.clone() for w in weights]
    optimizer.step()
    for w, old, gradient, rate in zip(weights, before, gradients, (0.025, 0.0125), strict=True):
        torch.testing.assert_close(w.detach(), old - rate * (gradient + 1e-4 * old))


def test_f_normalize_and_cosine_similarity_agree_on_tiny_vectors() -> None:
    p = torch.full((2, 4), 1e-6)
    torch.testing.assert_close(distance(p, p), -F.cosine_similarity(p, p).mean())
