"""A small network for the demo and the tests, with the interface of the large ones."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Images of side 4 or more to pooled features B x 64."""

    xavier_head = True

    def __init__(self) -> None:
        super().__init__()
        self.feature_dim = 64
        self.layers = nn.Sequential()
        width_in = 3
        for width in (16, 32, 64):
            stride = 1 if width_in == 3 else 2
            self.layers += nn.Sequential(
                nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            )
            width_in = width

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images).mean(dim=(2, 3))
        return features
