"""Safe-Student (He et al. 2022): a teacher ranks the pool by energy discrepancy.

L = L_s + lambda_seen L_cbe + lambda_unseen L_ucd. Images at the top are considered known and
distilled from the averaged network; those at the bottom are pushed to a flat prediction. As in the
benchmark of DAC's authors; with masks per sample, unlike the original code.
"""

# B labeled batch, U unlabeled batch, C known classes, N pool

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from dac import losses
from dac.config import SafeStudentSettings
from dac.methods.base import Method, Scan, Sizes
from dac.methods.parts.rules import Rule, accepted, at_least, otsu_of_test
from dac.methods.parts.selection import Selection
from dac.methods.step import Clock, Step


class SafeStudent(Method):
    discrepancy: Tensor
    unseen_below: Tensor

    settings: SafeStudentSettings

    def __init__(
        self, settings: SafeStudentSettings, sizes: Sizes, generator: torch.Generator
    ) -> None:
        super().__init__(settings, sizes, generator)
        self.seen, self.unseen = Selection("seen", sizes.pool), Selection("unseen", sizes.pool)
        self.register_buffer("discrepancy", torch.zeros(sizes.pool))  # at the last selection
        self.register_buffer("unseen_below", torch.ones(()))  # theta_u

    def is_warm(self, clock: Clock) -> bool:
        return clock.epoch >= self.settings.warmup_epochs

    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        """Rank the pool by the teacher: the top is seen, the bottom unseen, the rest unused."""
        if self.is_warm(clock):
            self.discrepancy.copy_(scan(self.score, averaged=True))
            order = self.discrepancy.argsort(stable=True)
            rank = torch.empty_like(order)
            rank[order] = torch.arange(len(order), device=order.device)
            first_seen = share_of(len(order), self.settings.seen_from)
            num_unseen = share_of(len(order), self.settings.unseen_below)
            self.seen.choose(rank >= first_seen)
            self.unseen.choose(rank < num_unseen)
            self.unseen_below.copy_(self.discrepancy[order[min(num_unseen, len(order) - 1)]])

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, more = self.settings, step.batch.more
        if not self.is_warm(step.clock):
            return {"supervised": self.supervised(step)}
        with step.averaged():
            teacher = self.logits(step.encode(more["seen"].weak[0], frozen=True)).float()
            t = teacher.softmax(dim=1)
        supervised = self.supervised(step)  # the only forward pass that updates running statistics
        seen = self.logits(step.encode(more["seen"].strong[0], frozen=True)).float()
        unseen = self.logits(step.encode(more["unseen"].strong[0], frozen=True)).float()
        weight = self.unseen_weight(more["unseen"].index)
        return {
            "supervised": supervised,
            "seen": s.lambda_seen * distilled(t, seen),  # L_cbe
            "unseen": s.lambda_unseen * weight * kl_from_uniform(unseen),  # L_ucd
        }

    def supervised(self, step: Step) -> Tensor:
        return losses.supervised(self.logits(torch.cat(step.views.x)), step.batch.y)  # Eq. (2)

    def unseen_weight(self, index: Tensor) -> Tensor:
        """exp(1 - ED / theta_u), 1 at the threshold; within [1, e] (our choice, a setting)."""
        weight = torch.exp(1 - self.discrepancy[index] / self.unseen_below)
        return weight.nan_to_num(nan=1.0).clamp(1, math.e) if self.settings.clamp_weight else weight

    def score(self, features: Tensor) -> Tensor:
        logits = self.logits(features).float()
        if self.settings.score_form == "original":
            return original_discrepancy(logits, self.settings.score_temperature)
        return energy_discrepancy(logits)

    def rules(self) -> dict[str, Rule]:
        """No source has a rule (docs/protocol/baselines.md, "Safe-Student")."""
        return {
            "published": otsu_of_test(),
            "memory": at_least(self.unseen_below),
            "kept": accepted(lambda features, index: self.seen.mask[index]),
        }


def share_of(count: int, share: float) -> int:
    """The integer part of share * count; 0.3 * 10 is 3."""
    return math.floor(share * count + 1e-9)


def energy_discrepancy(logits: Tensor) -> Tensor:
    """LSE(l) (1 - exp(-max l)), high for inliers (the benchmark's form): B x C -> B."""
    lost = torch.exp((-logits.amax(dim=1)).clamp(max=losses.UNDERFLOW))  # inf has no rank
    return logits.logsumexp(dim=1) * (1 - lost)


def original_discrepancy(logits: Tensor, temperature: float) -> Tensor:
    """Energy lost without the top logit, T (LSE(l / T) - LSE of the others / T): B x C -> B."""
    scaled = logits / temperature
    others = scaled.scatter(1, scaled.argmax(dim=1, keepdim=True), -torch.inf)
    return temperature * (scaled.logsumexp(dim=1) - others.logsumexp(dim=1))


def distilled(t: Tensor, logits: Tensor) -> Tensor:
    """CE with the teacher's argmax plus KL(t || p) averaged over classes too: U x C -> U."""
    hard = F.cross_entropy(logits, t.argmax(dim=1), reduction="none")
    soft = F.kl_div(logits.log_softmax(dim=1), t, reduction="none").mean(dim=1)
    return hard + soft


def kl_from_uniform(logits: Tensor) -> Tensor:
    """KL(uniform || p): U x C -> U."""
    return -math.log(logits.shape[1]) - logits.log_softmax(dim=1).mean(dim=1)
