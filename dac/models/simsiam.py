"""SimSiam (Chen & He 2021): two views of an image predict each other, without labels.

Table 6 starts from it and gives no settings: layers, loss and optimizer are those of
facebookresearch/simsiam. One difference between that code and its paper is kept: the hidden layers
of the projector are as wide as the feature (`pretrain.hidden`), where the paper says 2048.
"""

# B batch, d feature width, D projection

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac.config import Pretrain

BASE_BATCH = 256  # base_lr is for this many images


class SimSiam(nn.Module):
    """Encoder f (backbone and projector) and predictor h, Sec. 3."""

    def __init__(self, backbone: nn.Module, settings: Pretrain) -> None:
        super().__init__()
        width = int(backbone.feature_dim)  # type: ignore[arg-type]
        self.backbone = backbone
        self.projector = projector(width, settings.hidden or width, settings.projection)
        self.predictor = predictor(settings.projection, settings.prediction_hidden)

    def forward(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """p1, p2, z1, z2 (each B x D). One pass per view: each has its own norm statistics."""
        z1 = self.projector(self.backbone(x1))
        z2 = self.projector(self.backbone(x2))
        return self.predictor(z1), self.predictor(z2), z1, z2


def projector(width: int, hidden: int, dim: int) -> nn.Sequential:
    """Three layers, each with a norm, the last one without scale and shift."""
    last = nn.Linear(hidden, dim)
    last.bias.requires_grad = False  # the norm after it removes any bias
    return nn.Sequential(
        *(nn.Linear(width, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)),
        *(nn.Linear(hidden, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)),
        *(last, nn.BatchNorm1d(dim, affine=False)),
    )


def predictor(dim: int, hidden: int) -> nn.Sequential:
    """A bottleneck of two layers; a norm at its output would make training unstable."""
    return nn.Sequential(
        *(nn.Linear(dim, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)),
        nn.Linear(hidden, dim),
    )


def distance(p: Tensor, z: Tensor) -> Tensor:
    """Negative cosine of prediction and detached target: B x D, B x D -> scalar in [-1, 1]."""
    p, z = F.normalize(p, dim=1), F.normalize(z.detach(), dim=1)
    return -(p * z).sum(dim=1).mean()  # Eqs. (1), (3)


def symmetric_loss(p1: Tensor, p2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    return distance(p1, z2) / 2 + distance(p2, z1) / 2  # Eq. (4)


def spread(z: Tensor) -> Tensor:
    """Standard deviation of the normalized output, mean over dimensions (Fig. 2, middle).

    About 1 / sqrt(D) if outputs fill the sphere, 0 if all images have collapsed into one point.
    """
    return F.normalize(z.detach(), dim=1).std(dim=0).mean()


def initial_rate(settings: Pretrain) -> float:
    return settings.base_lr * settings.batch / BASE_BATCH


def make_optimizer(model: SimSiam, settings: Pretrain) -> torch.optim.SGD:
    """SGD without Nesterov; weight decay on everything, norms and biases too. Predictor last."""
    encoder = [*model.backbone.parameters(), *model.projector.parameters()]
    return torch.optim.SGD(
        [
            {"params": [p for p in encoder if p.requires_grad]},
            {"params": list(model.predictor.parameters())},
        ],
        lr=initial_rate(settings),
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )


def set_rates(optimizer: torch.optim.SGD, settings: Pretrain, epoch: int) -> float:
    """Set and return the encoder's rate, a cosine over epochs; the predictor's stays (Sec. 4.2)."""
    of_encoder, _ = optimizer.param_groups
    cosine = math.cos(math.pi * epoch / settings.epochs)
    of_encoder["lr"] = initial_rate(settings) * 0.5 * (1 + cosine)
    return float(of_encoder["lr"])
