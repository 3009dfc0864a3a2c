"""Networks: sizes, structure against independent forms, initialisation."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.models import build_backbone
from dac.models.heads import target_head
from dac.models.resnet import ResNet
from dac.models.small_cnn import SmallCNN
from dac.models.torchvision_schemas import torchvision
from dac.models.wide_resnet import WideResNet


def size(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


# --- WRN-28-2 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_known", "parameters"), [(6, 1_469_126), (20, 1_470_932), (50, 1_474_802)]
)
def test_wide_resnet_with_its_head_has_the_releases_size(num_known: int, parameters: int) -> None:
    with torch.device("meta"):  # sizes need no values
        backbone, head = WideResNet(), target_head(128, num_known, is_xavier=True)
    assert backbone.feature_dim == 128
    assert size(backbone, head) == parameters


def plain_wide_resnet(images: Tensor, weights: dict[str, Tensor], *, training: bool) -> Tensor:
    """WRN-28-2 written out from its description, reading the weights by name."""

    def norm(name: str, x: Tensor) -> Tensor:
        w = {k: weights[f"{name}.{k}"] for k in ("weight", "bias", "running_mean", "running_var")}
        if training:
            mean, var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=False)
        else:
            mean, var = w["running_mean"], w["running_var"]
        shape = (1, -1, 1, 1)
        x = (x - mean.view(shape)) / torch.sqrt(var.view(shape) + 0.001)
        return x * w["weight"].view(shape) + w["bias"].view(shape)

    def active(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 0.1 * x)

    def convolve(name: str, x: Tensor, stride: int) -> Tensor:
        weight = weights[f"{name}.weight"]
        padding = weight.shape[-1] // 2
        return F.conv2d(x, weight, weights[f"{name}.bias"], stride=stride, padding=padding)

    x = convolve("stem", images, 1)
    for block in range(12):  # three groups of four
        name, is_first = f"groups.{block}", block % 4 == 0
        stride = 2 if block in (4, 8) else 1
        entry = active(norm(f"{name}.norm1", x))
        residual = convolve(f"{name}.conv1", entry, stride)
        residual = convolve(f"{name}.conv2", active(norm(f"{name}.norm2", residual)), 1)
        x = residual + (convolve(f"{name}.shortcut", entry, stride) if is_first else x)
    return active(norm("norm", x)).mean(dim=(2, 3))


@pytest.mark.parametrize("training", [True, False])
def test_wide_resnet_equals_its_description(training: bool) -> None:
    torch.manual_seed(0)
    network = WideResNet().double().train(training)
    for name, tensor in network.state_dict().items():  # statistics and affine terms that matter
        if "norm" in name and tensor.ndim == 1:
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    expected = plain_wide_resnet(images, weights, training=training)
    assert torch.allclose(network(images), expected, rtol=1e-9, atol=1e-11)


def test_wide_resnet_halves_the_image_twice_and_has_four_blocks_a_group() -> None:
    with torch.device("meta"):
        network = WideResNet()
    strides = [block.conv1.stride[0] for block in network.groups]
    widths = [block.conv1.out_channels for block in network.groups]
    assert strides == [1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]
    assert widths == [32] * 4 + [64] * 4 + [128] * 4


def test_wide_resnet_norms_have_the_releases_constants() -> None:
    with torch.device("meta"):
        norms = [m for m in WideResNet().modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 25
    assert all(m.eps == 0.001 and m.momentum == 0.001 for m in norms)


def test_wide_resnet_weights_are_kaiming_normal_over_the_fan_out() -> None:
    torch.manual_seed(0)
    convolutions = [m for m in WideResNet().modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 1 + 2 * 12 + 3 and all(m.bias is not None for m in convolutions)
    for conv in convolutions:
        fan_out = conv.out_channels * conv.kernel_size[0] ** 2
        fan_in = conv.in_channels * conv.kernel_size[0] ** 2
        spread = math.sqrt(2 / fan_out)
        assert conv.weight.std().item() == pytest.approx(spread, rel=0.15)
        assert conv.weight.abs().max() > 2 * spread  # a uniform draw ends at 1.73 spreads
        assert conv.bias.abs().max() <= 1 / math.sqrt(fan_in)
        assert conv.bias.abs().max() > 0


# --- the 224-px networks ------------------------------------------------------------------------


def test_resnet18_and_the_released_bottleneck_have_their_sizes() -> None:
    with torch.device("meta"):
        basic, bottleneck = ResNet(bottleneck=False), ResNet(bottleneck=True)
        head = target_head(2048, 20, is_xavier=True)
    assert (size(basic), basic.feature_dim) == (11_176_512, 512)
    assert (size(bottleneck), bottleneck.feature_dim) == (13_946_176, 2048)
    assert size(bottleneck, head) == 13_987_156


def test_resnet18_equals_torchvisions_up_to_the_classifier() -> None:
    torch.manual_seed(0)
    reference = torchvision.models.resnet18(weights=None).eval()
    ours = ResNet(bottleneck=False).eval()
    weights = {f"net.{k}": v for k, v in reference.state_dict().items() if not k.startswith("fc.")}
    ours.load_state_dict(weights)
    reference.fc = nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(ours(images), reference(images))


def test_bottleneck_puts_its_stride_on_the_3x3_convolution() -> None:
    network = ResNet(bottleneck=True)
    blocks = [m for m in network.modules() if hasattr(m, "conv3")]
    assert len(blocks) == 8
    assert [block.conv2.stride[0] for block in blocks] == [1, 1, 2, 1, 2, 1, 2, 1]
    assert all(block.conv1.stride[0] == block.conv3.stride[0] == 1 for block in blocks)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(m.eps == 1e-5 and m.momentum == 0.1 and (m.weight == 1).all() for m in norms)


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "side", "kind"),
    [
        ("small-cnn", 16, SmallCNN),
        ("wrn-28-2", 16, WideResNet),
        ("resnet18", 64, ResNet),
        ("resnet18-released", 64, ResNet),
    ],
)
def test_backbone_gives_features_of_its_stated_width(name: str, side: int, kind: type) -> None:
    backbone = build_backbone(name)  # type: ignore[arg-type]
    assert isinstance(backbone, kind)
    assert backbone(torch.randn(2, 3, side, side)).shape == (2, backbone.feature_dim)


@pytest.mark.parametrize("side", [8, 16, 28, 33])
def test_small_network_accepts_any_side_from_eight(side: int) -> None:
    assert SmallCNN()(torch.randn(2, 3, side, side)).shape == (2, 64)
