"""Backbones by name."""

from torch import nn

from dac.config import Backbone
from dac.models.small_cnn import SmallCNN
from dac.models.wide_resnet import WideResNet


def build_backbone(name: Backbone, *, zero_residuals: bool = False) -> nn.Module:
    """Return a newly initialized encoder; `.feature_dim` is the width of its pooled feature.

    `zero_residuals`: the blocks of the ResNets start as identities (SimSiam).
    """
    match name:
        case "small-cnn":
            return SmallCNN()
        case "wrn-28-2":
            return WideResNet()
        case "resnet18" | "resnet18-released":
            # Importing torchvision takes as long as importing torch; small jobs do without it.
            from dac.models.resnet import ResNet

            return ResNet(bottleneck=name == "resnet18-released", zero_residuals=zero_residuals)
