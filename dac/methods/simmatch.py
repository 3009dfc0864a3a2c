"""SimMatch (Zheng et al. 2022): semantic and instance similarities, each corrected by the other.

L = L_s + lambda_u L_u + lambda_in L_in. A bank holds the embedding of every labeled image. The
release fills it with the averaged network's embeddings, in a forward pass that updates batch norm
again, and averages three projections (docs/protocol/baselines.md, "SimMatch").
"""

# B labeled batch, U unlabeled batch, C known classes, D embedding, M labeled images

import torch
from torch import Tensor
from torch.nn import functional as F

from dac import losses
from dac.config import SimMatchSettings
from dac.methods.base import Method, Sizes
from dac.methods.parts.alignment import QueueAlignment
from dac.methods.parts.banks import StagedBank
from dac.methods.step import Step
from dac.models.heads import Projections


class SimMatch(Method):
    settings: SimMatchSettings

    def __init__(
        self, settings: SimMatchSettings, sizes: Sizes, generator: torch.Generator
    ) -> None:
        super().__init__(settings, sizes, generator)
        self.projection = Projections(sizes.feature_dim, settings.proj_dim, settings.num_projectors)
        self.alignment = QueueAlignment(settings.alignment_batches, sizes.num_known)
        keep = settings.bank_momentum if settings.bank == "momentum" else 0.0
        self.bank = LabeledBank(sizes.num_labeled, settings.proj_dim, generator, keep=keep)

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, batch, views = self.settings, step.batch, step.views
        z_x = self.averaged_embedding(step) if s.bank == "averaged" else None
        x = self.logits(torch.cat(views.x))
        weak, strong = self.logits(views.u_weak[0]), self.logits(views.u_strong[0])
        parts = (views.x[0], views.u_weak[0], views.u_strong[0])
        z_student, z_weak, z_strong = self.projection(torch.cat(parts)).split([*map(len, parts)])
        with torch.no_grad():
            p = self.alignment(weak.float().softmax(dim=1))
            q = self.bank.similarity(z_weak, s.temperature).exp()
            modulated = modulate(q, p, self.bank.labels)
            if step.clock.epoch > 0:  # by then the bank holds every labeled image
                p = s.smoothing * p + (1 - s.smoothing) * self.bank.votes(q, self.sizes.num_known)
        embedded = z_student.detach() if z_x is None else z_x
        self.bank.stage(batch.x_index, embedded, batch.y)
        unlabeled = losses.confident_cross_entropy(p, strong, tau=s.tau)
        terms = {
            "supervised": losses.supervised(x, batch.y),  # Eq. (2)
            "unlabeled": s.lambda_u * step.weigh(unlabeled),  # SimMatch L_u
        }
        if step.clock.epoch > 0:
            similarity = self.bank.similarity(z_strong, s.temperature)
            instances = -(modulated * similarity).sum(dim=1)
            terms["instances"] = s.lambda_in * step.weigh(instances)  # SimMatch L_in
        return terms

    def averaged_embedding(self, step: Step) -> Tensor:
        """Embeddings of the labeled images by the averaged weights: B x D."""
        with step.averaged():
            frozen = not self.settings.bank_updates_statistics
            z: Tensor = self.projection(step.encode(step.batch.x[0], frozen=frozen))
        return z

    def embedding(self, features: Tensor) -> Tensor:
        z: Tensor = self.projection(features)
        return z


def modulate(q: Tensor, p: Tensor, labels: Tensor) -> Tensor:
    """q_m p[label_m], rows normalized to sum to one: U x M and U x C -> U x M."""
    weighted = q * p[:, labels]
    return weighted / weighted.sum(dim=1, keepdim=True).clamp_min(losses.LOG_FLOOR)


class LabeledBank(StagedBank):
    """The unit-length embedding and the label of every labeled image, by position.

    `keep` is the share of itself that an embedding keeps when its image is drawn again.
    """

    z: Tensor
    labels: Tensor

    def __init__(self, size: int, dim: int, generator: torch.Generator, *, keep: float) -> None:
        super().__init__()
        self.keep = keep
        self.register_buffer("z", F.normalize(torch.randn(size, dim, generator=generator)))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))

    def similarity(self, z: Tensor, temperature: float) -> Tensor:
        """Logarithm of the softmax over the bank of z g_m / t: U x D -> U x M."""
        with losses.full_precision(z):
            return (z @ self.z.T / temperature).log_softmax(dim=1)

    def votes(self, q: Tensor, num_known: int) -> Tensor:
        """The similarity that falls on each class: U x M -> U x C."""
        with losses.full_precision(q):
            return q @ F.one_hot(self.labels, num_known).to(q.dtype)

    @torch.no_grad()
    def write(self, index: Tensor, z: Tensor, labels: Tensor) -> None:
        """normalize(keep g + (1 - keep) z)."""
        keep = self.keep
        self.z[index] = F.normalize(keep * self.z[index] + (1 - keep) * z.to(self.z.dtype))
        self.labels[index] = labels
