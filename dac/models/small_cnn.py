"""A small network for the demo and the tests, with the interface of the large ones."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Images of side 8 or more to pooled features B x 64."""

    def __init__(self, widths: tuple[int, int, int] = (16, 32, 64)) -> None:
        super().__init__()
        self.feature_dim = widths[-1]
        layers: list[nn.Module] = []
        width_in = 3
        for width in widths:
            layers += [
                nn.Conv2d(width_in, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
            width_in = width
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images).mean(dim=(2, 3))
        return features
