"""OSP (Wang et al. 2023), OOD semantic pruning: remove the outlier component of a feature.

Phase 1: L_x + L_mx + L_r. Phase 2 adds ramp (L_mu + L_u + L_xkl). A matching head predicts whether
an image and a label belong together and finds outliers; their features fill a bank by class,
features are pruned along a partner from it, and predictions before and after must agree. The
release never fills its bank in phase 2 (docs/protocol/baselines.md, "OSP").
"""

# B labeled batch, U unlabeled batch, C known classes, d feature

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dac import losses
from dac.config import OspSettings
from dac.io.device import send
from dac.methods.base import Method, Scan, Sizes
from dac.methods.parts.banks import ClassBank
from dac.methods.parts.mixup import ramp
from dac.methods.parts.rules import Rule, above_otsu_of_pool
from dac.methods.parts.selection import Selection
from dac.methods.step import Clock, Step
from dac.models.heads import MatchingHead
from dac.otsu import otsu_threshold


class Osp(Method):
    is_out: Tensor

    settings: OspSettings

    def __init__(self, settings: OspSettings, sizes: Sizes, generator: torch.Generator) -> None:
        super().__init__(settings, sizes, generator)
        self.matching = MatchingHead(sizes.feature_dim, sizes.num_known, settings.match_dim)
        self.rotation = nn.Linear(sizes.feature_dim, 4)
        self.inliers = Selection("unlabeled", sizes.pool)
        self.register_buffer("is_out", torch.zeros(sizes.pool, dtype=torch.bool))
        self.bank = ClassBank(sizes.num_known, settings.bank_size, sizes.feature_dim)

    def prunes(self, clock: Clock) -> bool:
        """Whether training is in phase 2."""
        return clock.epoch >= self.settings.pruning_epoch

    @torch.no_grad()
    def start_epoch(self, clock: Clock, scan: Scan) -> None:
        s = self.settings
        if not self.prunes(clock):
            return
        if (clock.epoch - s.pruning_epoch) % s.filter_every == 0:
            score = scan(self.score, weak=False)
            tau, low = otsu_threshold(score), score.amin()
            self.inliers.choose(score > tau)
            below = (low + s.out_share * (tau - low)).clamp(max=s.out_below)
            self.is_out.copy_(score < below)
        out = self.is_out.nonzero().squeeze(1)
        if s.fills_bank and len(out):
            features = scan(lambda features: features.float(), index=out)
            confidence, predicted = self.logits(features).softmax(dim=1).max(dim=1)
            is_unsure = confidence < s.bank_confidence
            self.bank.write(features[is_unsure], predicted[is_unsure])

    def terms(self, step: Step) -> dict[str, Tensor]:
        s, y, batch = self.settings, step.batch.y, step.batch
        parts = [batch.x[0], four_rotations(batch.more["rotated"].weak[0])]
        x, turned, *unlabeled = step.encode_all([*parts, *batch.u_weak, *batch.u_strong])
        logits = self.logits(x).float()
        upright = turned[: len(turned) // 4]
        terms = {
            "supervised": F.cross_entropy(logits, y),  # L_x
            "matching": self.match(x, logits.detach(), y),  # L_mx
            "rotation": rotation_loss(self.rotation(turned)),  # L_r
        }
        if not self.prunes(step.clock):
            return terms
        pruned = self.logits(self.prune(x, y)).float()
        terms["supervised"] = (terms["supervised"] + F.cross_entropy(pruned, y)) / 2
        weak, strong = self.logits(unlabeled[0]).float(), unlabeled[1]
        predicted = self.logits(strong).argmax(dim=1)
        pruned_strong = self.logits(self.prune(strong, predicted)).float()
        first = s.pruning_epoch * step.clock.steps_per_epoch
        grown = ramp(step.clock.step - first, s.rampup_epochs * step.clock.steps_per_epoch, 1.0)
        agree = {"tau": s.kl_tau, "temperature": s.kl_temperature}
        return terms | {
            "match_entropy": grown * self.match_entropy(upright),  # L_mu
            "unlabeled": grown * 0.5 * confident_kl(weak, pruned_strong, **agree),  # L_u
            "labeled_agreement": grown * 0.5 * confident_kl(logits, pruned, **agree),  # L_xkl
        }

    def prune(self, z: Tensor, classes: Tensor) -> Tensor:
        """z without a share gamma of its component along an outlier of the same class: B x d."""
        partner = self.bank.draw(z.detach().float(), classes, self.generator)
        return prune(z.float(), partner, self.settings.gamma)

    def match(self, z: Tensor, logits: Tensor, y: Tensor) -> Tensor:
        """The true class matches; the hardest wrong one and another wrong one do not."""
        hardest = logits.scatter(1, y[:, None], -torch.inf).argmax(dim=1)
        other = self.other_class(y, hardest)
        classes = torch.cat([y, hardest, other])
        target = torch.arange(3, device=z.device).repeat_interleave(len(y)) == 0
        found = self.matching(z.repeat(3, 1), classes)
        return F.binary_cross_entropy_with_logits(found.float(), target.float())

    def match_entropy(self, z: Tensor) -> Tensor:
        """Entropy of the matches with the predicted and with another class: 2 B."""
        predicted = self.logits(z).argmax(dim=1)
        classes = torch.cat([predicted, self.other_class(predicted, predicted)])
        found = self.matching(z.repeat(2, 1), classes).float()
        return F.binary_cross_entropy_with_logits(found, found.sigmoid(), reduction="none")

    def other_class(self, first: Tensor, second: Tensor) -> Tensor:
        """Draw a class that is neither of the two (which may be the same); if none is left, as with
        two known classes, the second again."""
        low, high = torch.minimum(first, second), torch.maximum(first, second)
        left = self.sizes.num_known - 1 - (low != high).long()
        uniform = send(torch.rand(len(first), generator=self.generator), first.device)
        drawn = (uniform * left).long().minimum(left - 1).clamp_min(0)
        drawn = drawn + (drawn >= low).long()
        drawn = drawn + ((low != high) & (drawn >= high)).long()
        return torch.where(left > 0, drawn, second)

    def score(self, features: Tensor) -> Tensor:
        """How well an image matches its predicted class."""
        predicted = self.logits(features).argmax(dim=1)
        found: Tensor = self.matching(features, predicted)
        return found.float().sigmoid()

    def rules(self) -> dict[str, Rule]:
        """Otsu's threshold of the pool, as in the filter (docs/protocol/baselines.md, "OSP")."""
        return {"published": above_otsu_of_pool()}


def prune(z: Tensor, partner: Tensor, gamma: float) -> Tensor:
    """z - gamma (z o / |o|^2) o; gamma = 1 leaves nothing along o: B x d."""
    along = (z * partner).sum(dim=1, keepdim=True)
    length = partner.square().sum(dim=1, keepdim=True).clamp_min(losses.LOG_FLOOR)
    return z - gamma * along / length * partner


def four_rotations(images: Tensor) -> Tensor:
    """Rotations by 0, 90, 180 and 270 degrees, in order: B x 3 x H x W -> 4 B x 3 x H x W."""
    return torch.cat([torch.rot90(images, quarter, dims=(2, 3)) for quarter in range(4)])


def rotation_loss(logits: Tensor) -> Tensor:
    """Cross-entropy of the predicted quarter turn: 4 B x 4."""
    turns = torch.arange(4, device=logits.device).repeat_interleave(len(logits) // 4)
    return F.cross_entropy(logits.float(), turns)


def confident_kl(target: Tensor, logits: Tensor, *, tau: float, temperature: float) -> Tensor:
    """Mean of KL(softmax(target / T) || softmax) over confident rows; 0 if there are none."""
    target = target.detach()
    p = (target / temperature).softmax(dim=1)
    is_confident = target.softmax(dim=1).amax(dim=1) >= tau
    each = F.kl_div(logits.log_softmax(dim=1), p, reduction="none").sum(dim=1)
    return (is_confident * each).sum() / is_confident.sum().clamp_min(1)
