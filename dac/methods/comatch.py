"""CoMatch (Li et al. 2021): predictions and embeddings teach each other through graphs.

L = L_s + lambda_u L_u + lambda_c L_c. Predictions are aligned and smoothed by similar images in a
queue; a graph of the smoothed predictions pulls embeddings of two strong views together. The
release averages three projections (EPASS) and smooths from epoch 1 on.
"""

# B labeled batch, U unlabeled batch, C known classes, D embedding, M queue

import torch
from torch import Tensor
from torch.nn import functional as F

from dac import losses
from dac.config import CoMatchSettings
from dac.methods.base import Method, Sizes
from dac.methods.parts.alignment import QueueAlignment
from dac.methods.parts.banks import Bank
from dac.methods.parts.graphs import graph_contrast, pseudo_label_graph
from dac.methods.step import Clock, Step
from dac.models.heads import Projections


class CoMatch(Method):
    settings: CoMatchSettings

    def __init__(self, settings: CoMatchSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.projection = Projections(sizes.feature_dim, settings.proj_dim, settings.num_projectors)
        self.alignment = QueueAlignment(settings.alignment_batches, sizes.num_known)
        rows = settings.queue_batches * (sizes.batch + sizes.unlabeled_batch)
        self.queue = Bank(rows, settings.proj_dim, sizes.num_known, generator)

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views, y = self.settings, step.views, step.batch.y
        x = self.logits(torch.cat(views.x))
        weak, strong = self.logits(views.u_weak[0]), self.logits(views.u_strong[0])
        parts = (views.x[0], views.u_weak[0], *views.u_strong)
        z_x, z_weak, *z_strong = self.projection(torch.cat(parts)).split([len(v) for v in parts])
        with torch.no_grad():
            aligned = self.alignment(weak.float().softmax(dim=1))
            p = self.smooth(aligned, z_weak) if self.smooths(step.clock) else aligned
            graph = pseudo_label_graph(p, s.graph_tau)
            self.queue.stage(
                torch.cat([z_weak, z_x]),
                torch.cat([aligned, F.one_hot(y, self.sizes.num_known)]),
            )
        unlabeled = losses.confident_cross_entropy(p, strong, tau=s.tau)
        contrast = graph_contrast(z_strong[0], z_strong[1], graph, s.temperature)
        return {
            "supervised": losses.supervised(x, y),  # Eq. (2)
            "unlabeled": s.lambda_u * step.weigh(unlabeled),  # CoMatch L_u
            "graph": s.lambda_c * step.weigh(contrast),  # CoMatch L_c
        }

    def smooth(self, p: Tensor, z: Tensor) -> Tensor:
        """alpha p + (1 - alpha) a P, a the affinity to the queue: U x C."""
        alpha = self.settings.smoothing
        with losses.full_precision(z):
            affinity = (z @ self.queue.z.T / self.settings.temperature).softmax(dim=1)
            return alpha * p + (1 - alpha) * affinity @ self.queue.q

    def smooths(self, clock: Clock) -> bool:
        """Whether to smooth: not before the queue is full, so its initial content is never read."""
        is_full = clock.step >= self.settings.queue_batches
        return is_full and (self.settings.smoothing_start == "queue" or clock.epoch > 0)

    def embedding(self, features: Tensor) -> Tensor:
        z: Tensor = self.projection(features)
        return z
