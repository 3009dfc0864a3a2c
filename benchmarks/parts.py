"""What a DAC step does besides the backbone, piece by piece, on the modules of a real run."""

# B labeled batch, U unlabeled batch, K heads, C known classes, d feature, D embedding

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.lab import Lab
from benchmarks.timing import Work, medians
from dac import losses
from dac.augment import strong, weak
from dac.consensus import consensus, open_set_targets
from dac.methods.dac import Dac
from dac.methods.step import Encode, Step, Views
from dac.training.loop import make_optimizer
from dac.training.meter import Meter

AUGMENTATION = "augmentation"
TOGETHER = "features to gradients, as one"


@dataclass(frozen=True)
class Material:
    """What each piece reads, made beforehand; gradients stop here."""

    pooled: Tensor  # (views B + 2 U) x d, as from the backbone
    views: Views  # of the normed features, one leaf per view
    head_logits: tuple[Tensor, ...]  # of x, u_weak, u_strong, each rows x K x C
    z: Tensor  # U x D
    open_target: Tensor  # U x (C + 1)
    score: Tensor  # U
    terms: dict[str, Tensor]


def parts_seconds(lab: Lab, repetitions: int) -> dict[str, float]:
    """Median seconds of each part, and of all between features and gradients as one."""
    return medians(parts(lab) | {TOGETHER: together(lab)}, repetitions, lab.device)


def sums(taken: dict[str, float]) -> tuple[float, float]:
    """Seconds outside the backbone, without and with augmentation."""
    whole = sum(seconds for name, seconds in taken.items() if name != TOGETHER)
    return whole - taken[AUGMENTATION], whole


def parts(lab: Lab) -> dict[str, Work]:
    """The pieces by name; together they are the step without the backbone."""
    method = _method(lab)
    made = _material(lab)
    meter, later = Meter(), itertools.count()

    def select() -> None:
        step = lab.run.train.steps_per_epoch + next(later) % lab.run.train.steps_per_epoch
        index, _ = lab.batches.labeled.at(step)
        lab.unlabeled.at(step)
        _ = lab.batches.labels[index]
        torch.cat([*lab.batch.x, *lab.batch.u_weak, *lab.batch.u_strong])

    def write_bank() -> None:
        method.bank.stage(made.z, made.open_target)
        method.bank.commit()

    return {
        "batch selection": select,
        AUGMENTATION: _augmentation(lab),
        **_of_target_head(lab, made),
        **_of_heads(lab, made),
        **_of_scores(lab, made),
        "SGD step": _sgd(lab).step,
        "EMA of the weights": lab.state.ema.update,
        "bank write": write_bank,
        "meter": lambda: meter.add(lab.state.step, made.terms),
    }


def together(lab: Lab) -> Work:
    """A cross-check: all losses at once, from pooled features to the gradients of the heads."""
    made = _material(lab)
    network = lab.state.network

    def work() -> None:
        step = _step(lab, lambda images, *, frozen=False: network.norm(made.pooled))
        _total(network.method.terms(step)).backward()

    return work


def _sgd(lab: Lab) -> torch.optim.SGD:
    """An optimizer that costs what it costs and changes nothing: gradients pile up here."""
    optimizer = make_optimizer(lab.state.network, lab.run.train)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    return optimizer


def _augmentation(lab: Lab) -> Work:
    step, policy, views = lab.state.step, lab.data.policy, lab.phase.drawn
    x, u = lab.batches.labeled.at(step)[1], lab.unlabeled.at(step)[1]
    generator = torch.Generator().manual_seed(0)

    def work() -> None:
        for _ in range(views.labeled):
            weak(x, policy, generator)
        weak(u, policy, generator)
        strong(u, policy, generator)

    return work


def _of_target_head(lab: Lab, made: Material) -> dict[str, Work]:
    norm, objective = lab.state.network.norm, _method(lab).objective
    return {
        "LayerNorm": lambda: norm(made.pooled).sum().backward(),
        "L_s and L_u of the target head": lambda: _total(
            objective.terms(_step_with(lab, made.views))
        ).backward(),
    }


def _of_heads(lab: Lab, made: Material) -> dict[str, Work]:
    method, (x, u_weak, u_strong) = _method(lab), made.head_logits

    def diverge() -> None:
        torch.autograd.backward(list(method.diverge(made.views)[1]), list(made.head_logits))

    def self_training() -> None:
        loss = losses.head_supervised(x, lab.batch.y)
        loss = loss + losses.head_pseudo_label(u_weak, u_strong, tau=method.settings.head_tau)
        loss.backward()

    return {
        "projection and heads": diverge,
        "L_s and L_u of the heads": self_training,
        "mutual information": lambda: losses.mutual_information(u_weak).backward(),
    }


def _of_scores(lab: Lab, made: Material) -> dict[str, Work]:
    method, s = _method(lab), _method(lab).settings

    @torch.no_grad()
    def score() -> None:
        agreed = consensus(made.head_logits[1].softmax(dim=2), s.score_form)
        scores = method.memory.update(lab.batch.u_index, agreed)
        open_set_targets(method.logits(made.views.u_weak[0]).softmax(dim=1), scores)

    def distill() -> None:
        z = F.normalize(method.projection(made.views.u_strong[0]))
        losses.distillation(
            z, made.open_target, method.bank.z, method.bank.q, s.kd_temperature
        ).backward()

    return {
        "consensus, score memory, open-set targets": score,
        "Otsu and omega": lambda: method.omega(made.score),
        "distillation": distill,
    }


def _material(lab: Lab) -> Material:
    """Stand-ins for what flows between the pieces; memory and bank as in mid-training."""
    network, method = lab.state.network, _method(lab)
    stream = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=stream).to(lab.device)

    counts = [len(view) for view in _images(lab)]
    pooled = draw(sum(counts), network.backbone.feature_dim).requires_grad_()  # type: ignore[arg-type]
    normed = network.norm(pooled).detach()
    views = _step(lab, lambda images, *, frozen=False: normed).views
    for view in (*views.x, *views.u_weak, *views.u_strong):
        view.requires_grad_()
    heads = [logits.detach().requires_grad_() for logits in method.diverge(views)[1]]
    U = counts[-1]
    method.memory.consensus.copy_(draw(len(method.memory.score)).sigmoid())
    method.memory.score.copy_(draw(len(method.memory.score)).sigmoid())
    method.memory.visited.fill_(True)
    method.bank.q.copy_(draw(*method.bank.q.shape).softmax(dim=1))
    for parameter in network.parameters():  # the optimizer passes over what has no gradient
        parameter.grad = torch.zeros_like(parameter)
    return Material(
        pooled=pooled,
        views=views,
        head_logits=tuple(heads),
        z=F.normalize(draw(U, method.bank.z.shape[1])),
        open_target=draw(U, method.bank.q.shape[1]).softmax(dim=1),
        score=draw(U).sigmoid(),
        terms={name: draw(1)[0] for name in method.terms(_step_with(lab, views))},
    )


def _method(lab: Lab) -> Dac:
    assert isinstance(lab.state.network.method, Dac)
    return lab.state.network.method


def _images(lab: Lab) -> list[Tensor]:
    return [*lab.batch.x, *lab.batch.u_weak, *lab.batch.u_strong]


def _step(lab: Lab, encode: Encode) -> Step:
    return Step(lab.batch, lab.clock, encode, shared=lab.phase.shared)


def _step_with(lab: Lab, views: Views) -> Step:
    """A step whose features are there already: nothing of the backbone runs in it."""
    step = _step(lab, lab.state.network.encode)
    step.views = views
    return step


def _total(terms: dict[str, Tensor]) -> Tensor:
    return torch.stack([term.mean() for term in terms.values()]).sum()
