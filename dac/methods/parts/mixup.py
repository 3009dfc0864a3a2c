"""MixMatch's guessing and mixing (Berthelot et al. 2019, Sec. 3), shared with MTCF."""

# B labeled batch, U unlabeled batch, C known classes, n = B + 2 U rows

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dac.io.device import send
from dac.methods.base import Method
from dac.methods.step import Step


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p_c^(1/T) divided by its sum, MixMatch Eq. (7): U x C -> U x C."""
    powered = p ** (1 / temperature)
    return powered / powered.sum(dim=1, keepdim=True)


@dataclass(frozen=True)
class Mix:
    """One lambda for the batch and one partner for every row."""

    own: float
    """lambda', a row's own share: at least one half."""
    partner: Tensor  # n

    def __call__(self, rows: Tensor) -> Tensor:
        """own x + (1 - own) x[partner], MixMatch Eqs. (9)-(11)."""
        return self.own * rows + (1 - self.own) * rows[self.partner]


def draw_mix(rows: int, alpha: float, generator: torch.Generator, device: torch.device) -> Mix:
    """lambda ~ Beta(alpha, alpha) by its inverse CDF; lambda' = max(lambda, 1 - lambda)."""
    from scipy.special import betaincinv  # MixMatch and MTCF only

    uniform = float(torch.rand((), generator=generator, dtype=torch.float64))
    drawn = float(betaincinv(alpha, alpha, uniform))
    partner = send(torch.randperm(rows, generator=generator), device)
    return Mix(max(drawn, 1 - drawn), partner)


@torch.no_grad()
def guess(method: Method, step: Step, views: list[Tensor], temperature: float) -> Tensor:
    """Sharpened mean prediction over the views of an image, U x C; statistics stay unchanged."""
    each = [method.logits(step.encode(view, frozen=True)).float().softmax(dim=1) for view in views]
    return sharpen(torch.stack(each).mean(dim=0), temperature)


@dataclass(frozen=True)
class Mixed:
    """Logits and targets of the mixed rows: the labeled ones, then both views of the unlabeled."""

    x: Tensor  # B x C logits
    x_target: Tensor  # B x C
    u: Tensor  # 2 U x C logits
    u_target: Tensor  # 2 U x C
    mix: Mix

    def supervised(self) -> Tensor:
        """L_X, MixMatch Eq. (3)."""
        return F.cross_entropy(self.x.float(), self.x_target)

    def squared_error(self) -> Tensor:
        """L_U, MixMatch Eq. (4), for every row: 2 U."""
        return (self.u.float().softmax(dim=1) - self.u_target).square().mean(dim=1)


def guess_and_mix(
    method: Method, step: Step, generator: torch.Generator, *, interleaved: bool
) -> Mixed:
    """Guess the labels of both weak views, mix everything and run the network on it."""
    s, views, y = method.settings, step.batch.u_weak, step.batch.y
    guessed = guess(method, step, views, s.temperature)  # MixMatch Eqs. (6)-(7)
    rows = len(y) + sum(map(len, views))
    mix = draw_mix(rows, s.alpha, generator, y.device)  # MixMatch Eqs. (8)-(9)
    return forward_mixed(method, step, views, guessed, mix, interleaved=interleaved)


def forward_mixed(
    method: Method,
    step: Step,
    views: list[Tensor],
    guessed: Tensor,
    mix: Mix,
    *,
    interleaved: bool,
) -> Mixed:
    """Mix [x; both views] and run the network in chunks of B, each normalized by itself.

    Only the first chunk updates running statistics, or none if `Step.views` already has.
    `interleaved`: every chunk swaps a part with the first, which then has rows of all.
    """
    x, y = step.batch.x[0], step.batch.y
    target = F.one_hot(y, guessed.shape[1]).to(guessed.dtype)
    images = mix(torch.cat([x, *views]))
    if interleaved:
        order = send(interleaving(len(images) // len(x), len(x)), x.device)
        images = images[order]
    targets = mix(torch.cat([target, *(guessed for _ in views)]))
    logits = torch.cat(
        [
            method.logits(step.encode(chunk, frozen=i > 0 or step.has_views))
            for i, chunk in enumerate(images.split(len(x)))
        ]
    )
    if interleaved:
        logits = logits[order]  # swapping twice changes nothing
    return Mixed(logits[: len(x)], targets[: len(x)], logits[len(x) :], targets[len(x) :], mix)


def interleaving(chunks: int, size: int) -> Tensor:
    """Return the order of rows after swapping the i-th part of chunk i with that of chunk 0."""
    order = torch.arange(chunks * size).view(chunks, size)
    bounds = [size * i // chunks for i in range(chunks + 1)]
    for i in range(1, chunks):
        part = slice(bounds[i], bounds[i + 1])
        order[0, part], order[i, part] = order[i, part].clone(), order[0, part].clone()
    return order.flatten()


def ramp(step: int, steps: int, share: float) -> float:
    """Grow from 0 to 1 over the first `share` of training."""
    return min(1.0, step / (share * steps)) if share > 0 else 1.0
