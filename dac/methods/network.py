"""The network of a run: encoder, optional LayerNorm and method, built by name."""

import sys

import torch
from torch import Tensor, nn

from dac.config import MethodSettings, Run
from dac.config.methods import SHIPPED, annotated_class, method_module
from dac.io.errors import UserError
from dac.io.seeds import generators, seeded
from dac.methods.base import Method, Sizes
from dac.methods.parts.banks import StagedBank
from dac.methods.step import Batch, Clock, Step
from dac.models import build_backbone
from dac.models.ema import Ema
from dac.models.statistics import frozen_statistics

RULES_ADVICE = "override `rules` and return `published`, or make the settings from WithConfidence"


class Network(nn.Module):
    """The one module that is trained and saved."""

    def __init__(self, backbone: nn.Module, method: Method, *, feature_layernorm: bool) -> None:
        super().__init__()
        self.backbone = backbone
        dim = int(backbone.feature_dim)  # type: ignore[arg-type]
        # Release only: the target head, the projection and the divergent heads all read its output.
        self.norm: nn.Module = nn.LayerNorm(dim) if feature_layernorm else nn.Identity()
        self.method = method
        self.banks = [module for module in method.modules() if isinstance(module, StagedBank)]

    def encode(self, images: Tensor, *, frozen: bool = False) -> Tensor:
        with frozen_statistics(self.backbone, when=frozen):
            features: Tensor = self.norm(self.backbone(images))
        return features

    def terms(self, batch: Batch, clock: Clock, ema: Ema | None = None) -> dict[str, Tensor]:
        shared = self.method.settings.phase(clock.epoch).shared
        return self.method.terms(Step(batch, clock, self.encode, shared=shared, ema=ema))

    def finish_step(self) -> None:
        """Write what the step has staged into the banks, which the backward pass has now read."""
        for bank in self.banks:
            bank.commit()

    def needed_for_evaluation(self, name: str) -> bool:
        """Whether an entry of the state belongs in a finished model file; banks do not."""
        prefixes = [f"{n}." for n, m in self.named_modules() if getattr(m, "training_only", False)]
        return not name.startswith(tuple(prefixes))


def build_method(settings: MethodSettings, sizes: Sizes, generator: torch.Generator) -> Method:
    """Return the method of these settings."""
    return class_of(settings)(settings, sizes, generator)


def class_of(settings: MethodSettings) -> type[Method]:
    """The class in the file that the entry names; without an entry, in the file of the settings."""
    by_type = {shipped: name for name, shipped in SHIPPED.items()}
    name = settings.method or by_type.get(type(settings))
    module = method_module(name) if name else sys.modules[type(settings).__module__]
    found = annotated_class(module)
    if not issubclass(found, Method):
        raise UserError(
            f"{found.__name__} in {module.__file__} is not a subclass of dac.methods.base.Method; "
            "see docs/add-a-method.md"
        )
    return found


def build_network(
    run: Run,
    *,
    num_known: int,
    num_labeled: int,
    pool: int,
    streams: dict[str, torch.Generator] | None = None,
) -> Network:
    """Return the network of a run. Encoder and target head start the same in all methods of a seed.

    A method keeps `streams["method"]` for draws inside its steps: training passes the dictionary
    that it also saves, so that such draws continue where they were.
    """
    network = assemble_network(
        run, num_known=num_known, num_labeled=num_labeled, pool=pool, streams=streams
    )
    _check_rules(network.method, run.method_name)
    return network


def assemble_network(
    run: Run,
    *,
    num_known: int,
    num_labeled: int,
    pool: int,
    streams: dict[str, torch.Generator] | None = None,
) -> Network:
    """Build, and read nothing of it: on the meta device the network has no values."""
    streams = generators(run.seed) if streams is None else streams
    with seeded(streams["weights"]):
        backbone = build_backbone(run.train.backbone)
    sizes = Sizes(
        feature_dim=int(backbone.feature_dim),  # type: ignore[arg-type]
        num_known=num_known,
        num_labeled=num_labeled,
        pool=pool,
        batch=run.train.batch,
        unlabeled_batch=run.train.mu * run.train.batch,
        xavier_head=bool(backbone.xavier_head),
    )
    with seeded(streams["weights"]):
        method = build_method(run.method, sizes, streams["method"])
    return Network(backbone, method, feature_layernorm=run.method.feature_layernorm)


def _check_rules(method: Method, name: str) -> None:
    """Evaluation needs the published rule; find out before training that there is none."""
    try:
        known = method.rules()
    except AttributeError as error:
        raise UserError(f"the rules of {name} cannot be read ({error}); {RULES_ADVICE}") from error
    if "published" not in known:
        raise UserError(f"the rules of {name} are {', '.join(known) or 'none'}; {RULES_ADVICE}")
