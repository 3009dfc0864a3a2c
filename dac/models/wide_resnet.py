"""WRN-28-2 as the release and IOMatch build it (Zagoruyko & Komodakis 2016).

Convolutions have biases, batch norm has eps 1e-3 and momentum 1e-3, and the shortcut of the first
block of each group reads the activated input. USB and TorchSSL differ in these three.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLOPE = 0.1  # of the leaky ReLU


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, momentum=0.001, eps=0.001)


class Block(nn.Module):
    """Pre-activation residual block."""

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = _norm(width_in)
        self.conv1 = nn.Conv2d(width_in, width, 3, stride=stride, padding=1)
        self.norm2 = _norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(width_in, width, 1, stride=stride) if width_in != width else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.leaky_relu(self.norm1(x), SLOPE, inplace=True)
        residual = F.leaky_relu(self.norm2(self.conv1(active)), SLOPE, inplace=True)
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = self.conv2(residual) + shortcut
        return out


class WideResNet(nn.Module):
    """Images B x 3 x 32 x 32 to pooled features B x 128 (or another side)."""

    xavier_head = True

    def __init__(self) -> None:
        super().__init__()
        blocks = 4  # per group; 28 layers in total
        widths = [16, 32, 64, 128]
        self.feature_dim = widths[-1]
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.groups = nn.Sequential()
        for width_in, width, stride in zip(widths[:-1], widths[1:], (1, 2, 2), strict=True):
            self.groups.append(Block(width_in, width, stride))
            for _ in range(blocks - 1):
                self.groups.append(Block(width, width, 1))
        self.norm = _norm(self.feature_dim)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # biases keep PyTorch's default
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.groups(self.stem(images))
        return torch.mean(F.leaky_relu(self.norm(x), SLOPE, inplace=True), dim=(2, 3))
