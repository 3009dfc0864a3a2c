"""Diversify and Conquer: the consensus of many divergent heads separates known from unknown.

Paper Sec. III, Eqs. (4)-(14). `dac` and `dac-released` are parameter sets of this one file; where
paper and release differ, each reading is a setting (docs/protocol/dac.md, "DAC: paper and
release"). The target head can learn with any objective (Table 4); FixMatch's is the usual one.
"""

# B labeled batch, U unlabeled batch, K heads, C known classes, d feature, D embedding, M bank

import torch
from torch import Tensor
from torch.nn import functional as F

from dac import losses
from dac.config import DacSettings
from dac.consensus import ScoreMemory, consensus, open_set_targets, pairwise_l1, soft_rejection
from dac.methods.base import Method, Scan, Sizes
from dac.methods.network import build_method
from dac.methods.parts.banks import Bank
from dac.methods.parts.rules import Rule, accepted, at_least, otsu_of_test
from dac.methods.step import Batch, Clock, Step, Views
from dac.models.heads import DivergentHeads, projection
from dac.otsu import otsu_threshold


class Dac(Method):
    settings: DacSettings
    tau_open: Tensor

    def __init__(self, settings: DacSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.objective = build_method(settings.target, sizes, generator)  # f_cls, L_s and L_u
        self.projection = projection(sizes.feature_dim, settings.proj_dim)  # h
        self.heads = DivergentHeads(settings.proj_dim, settings.num_heads, sizes.num_known)  # g_i
        self.memory = ScoreMemory(
            sizes.pool,
            settings.score_momentum,
            visited_only=settings.score_range == "visited",
            eps=settings.minmax_eps,
        )
        self.bank = Bank(
            settings.bank_batches * sizes.unlabeled_batch,
            settings.proj_dim,
            sizes.num_known + 1,
            generator,
        )
        self.register_buffer("tau_open", torch.zeros(()))

    def build_head(self, sizes: Sizes) -> None:
        """The target head is the objective's."""

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, views = self.settings, step.views
        z, head_logits = self.diverge(views)
        with torch.no_grad():
            agreed = consensus(head_logits[1].float().softmax(dim=2), s.score_form)  # Eq. (7)
            score = self.memory.update(step.batch.u_index, agreed)  # Eqs. (8)-(9)
            p = self.logits(views.u_weak[0]).float().softmax(dim=1)
            open_target = open_set_targets(p, score)  # Eq. (10)
        is_warm = step.clock.epoch >= s.warmup_epochs
        if is_warm and s.rejection:
            step.omega = self.omega(score)  # Eq. (13)
        terms = self.objective.terms(step)  # L_s(f), L_u(f, omega)
        if not is_warm:  # Algorithm 1; the objective's memory is up to date from step 0
            terms = {"supervised": terms["supervised"]}
        terms |= self.diversify(head_logits, step.batch)  # L_div
        if is_warm and s.lambda_kd > 0:
            z_strong = F.normalize(self.projection(views.u_strong[0]).float())
            terms["distillation"] = s.lambda_kd * losses.distillation(  # Eqs. (11)-(12)
                z_strong, open_target, self.bank.z, self.bank.q, s.kd_temperature
            )
        self.bank.stage(F.normalize(z[1].detach().float()), open_target)
        return terms

    def diverge(self, views: Views) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return embeddings and head logits of all x, and of the weak and the strong view of u.

        The encoder gets no gradient here.
        """
        parts = (torch.cat(views.x), views.u_weak[0], views.u_strong[0])
        z = self.projection(torch.cat(parts).detach())
        seen_by_heads = z.detach() if self.settings.diversify == "heads" else z
        rows = [len(part) for part in parts]
        return z.split(rows), self.heads(seen_by_heads).split(rows)

    def diversify(self, head_logits: tuple[Tensor, ...], batch: Batch) -> dict[str, Tensor]:
        """L_div, Eq. (5)."""
        s, (x, weak, strong) = self.settings, head_logits
        over_heads = s.num_heads if s.head_reduction == "sum" else 1
        over_pairs = s.num_heads * (s.num_heads - 1) if s.mi_reduction == "sum" else 1
        self_training = losses.head_pseudo_label(weak, strong, tau=s.head_tau)
        terms = {
            "heads_supervised": over_heads * losses.head_supervised(x, batch.y),  # Eq. (5)
            "heads_unlabeled": over_heads * s.lambda_u_heads * self_training,  # Eq. (5)
        }
        if s.lambda_mi > 0:
            terms["mutual_information"] = (  # Eq. (6)
                s.lambda_mi * over_pairs * losses.mutual_information(weak)
            )
        return terms

    def omega(self, score: Tensor) -> Tensor:
        """Soft rejection, Eq. (13), with tau_open by Otsu over the whole memory."""
        threshold = otsu_threshold(self.memory.score, self.memory.counted())
        self.tau_open.copy_(threshold + self.settings.otsu_eps)
        return soft_rejection(score, self.tau_open, self.settings.rejection_temperature)

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        self.objective.start_epoch(clock, scan)

    def logits(self, features: Tensor) -> Tensor:
        return self.objective.logits(features)

    def score(self, features: Tensor) -> Tensor:
        """Consensus before min-max; Eq. (9) smooths in training only (the release's eval.py)."""
        return consensus(self.head_probabilities(features), self.settings.score_form)

    def rules(self) -> dict[str, Rule]:
        """`kept`: images with weight 1 in Eq. (13); all of them while nothing is rejected."""
        kept = accepted(lambda features, index: self.memory.score[index] >= self.tau_open)
        rules = {"published": otsu_of_test(), "kept": kept}
        return rules | {"memory": at_least(self.tau_raw())} if self.settings.rejection else rules

    def tau_raw(self) -> Tensor:
        """tau_open on the scale of `score`: the min-max of Eq. (8) inverted."""
        low, high = self.memory.range()
        return low + self.tau_open * (high - low + self.memory.eps)

    def agreement(self, features: Tensor) -> Tensor | None:
        """exp(-L1) of every head pair, B x K x K (Figs. 2 and 6)."""
        return torch.exp(-pairwise_l1(self.head_probabilities(features)))

    def embedding(self, features: Tensor) -> Tensor:
        """z, B x D (Fig. 5)."""
        return F.normalize(self.projection(features).float(), dim=1)

    def head_probabilities(self, features: Tensor) -> Tensor:
        logits: Tensor = self.heads(self.projection(features))
        return logits.float().softmax(dim=2)
