"""A small network for the demo and the tests, with the interface of the large ones."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Images of side 4 or more to pooled features B x 64."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        self.feature_dim = widths[-1]
        self.layers = nn.Sequential()
        width_in = 3
        for width in widths:
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
