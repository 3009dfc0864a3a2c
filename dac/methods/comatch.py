"""CoMatch (Li et al. 2021): predictions and embeddings teach each other through graphs.

L = L_s + lambda_u L_u + lambda_c L_c. Predictions are aligned and smoothed by similar images of a
queue; a graph of the smoothed predictions draws embeddings of two strong views together. The
release averages three projections (EPASS) and smooths from epoch 1 on.
"""

# B labeled batch, U unlabeled batch, C known classes, D embedding, M queue

import torch
from torch import Tensor
from torch.nn import functional as F

from dac import losses
from dac.alignment import QueueAlignment
from dac.banks import Bank
from dac.graphs import graph_contrast, pseudo_label_graph
from dac.methods.base import Method, Sizes
from dac.models.heads import Projections, target_head
from dac.settings import CoMatchSettings
from dac.step import Clock, Step, ViewCounts


class CoMatch(Method):
    def __init__(self, sizes: Sizes, settings: CoMatchSettings, generator: torch.Generator) -> None:
        super().__init__()
        self.settings, self.num_known = settings, sizes.num_known
        self.head = target_head(sizes.feature_dim, sizes.num_known, is_xavier=sizes.xavier_head)
        self.views = ViewCounts(labeled=settings.labeled_views, weak=1, strong=2)
        self.projection = Projections(sizes.feature_dim, settings.proj_dim, settings.num_projectors)
        self.alignment = QueueAlignment(settings.alignment_batches, sizes.num_known)
        rows = settings.queue_batches * (sizes.batch + sizes.unlabeled_batch)
        self.queue = Bank(rows, settings.proj_dim, sizes.num_known, generator)
        self.unwritten: tuple[Tensor, Tensor] | None = None

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
            self.unwritten = (
                torch.cat([z_weak, z_x]),
                torch.cat([aligned, F.one_hot(y, self.num_known)]),
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
        """Not before the queue is full, so that what it starts with is never read."""
        is_full = clock.step >= self.settings.queue_batches
        return is_full and (self.settings.smoothing_start == "queue" or clock.epoch > 0)

    def finish_step(self) -> None:
        if self.unwritten is not None:
            self.queue.write(*self.unwritten)
            self.unwritten = None

    def embedding(self, features: Tensor) -> Tensor:
        z: Tensor = self.projection(features)
        return z
