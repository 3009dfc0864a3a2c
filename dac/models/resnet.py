"""The two 224-px networks: ResNet-18, and the bottleneck network released under that name.

torchvision's ResNet has the strides, initialization and norms that both need. The released builder
keeps the default block, Bottleneck, which gives 26 layers, width 2048 and 13.9 M parameters.
"""

from torch import Tensor, nn

from dac.models.torchvision_schemas import torchvision

_resnet = torchvision.models.resnet


class ResNet(nn.Module):
    """Images B x 3 x 224 x 224 to pooled features, B x 512 (basic) or B x 2048 (bottleneck)."""

    xavier_head = False

    def __init__(self, *, bottleneck: bool, zero_residuals: bool = False) -> None:
        super().__init__()
        block = _resnet.Bottleneck if bottleneck else _resnet.BasicBlock
        # Zero residuals: the scale of the last norm in each block starts at 0.
        self.net = _resnet.ResNet(
            block, [2, 2, 2, 2], num_classes=1, zero_init_residual=zero_residuals
        )
        self.feature_dim: int = self.net.fc.in_features
        self.net.fc = nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.net(images)
        return features
