"""Methods by the type of their settings, and the network of a run."""

import torch

from dac.methods.base import Method, Network, Sizes
from dac.methods.comatch import CoMatch
from dac.methods.dac import Dac
from dac.methods.fixmatch import FixMatch
from dac.methods.iomatch import IOMatch
from dac.methods.labeled_only import LabeledOnly
from dac.methods.mixmatch import MixMatch
from dac.methods.mtcf import Mtcf
from dac.methods.openmatch import OpenMatch
from dac.methods.osp import Osp
from dac.methods.safe_student import SafeStudent
from dac.methods.simmatch import SimMatch
from dac.methods.softmatch import SoftMatch
from dac.methods.ssb import Ssb
from dac.methods.uagreg import UAGreg
from dac.models import build_backbone
from dac.params import Run
from dac.seeds import generators, seeded
from dac.settings import (
    CoMatchSettings,
    DacSettings,
    FixMatchSettings,
    IOMatchSettings,
    LabeledOnlySettings,
    MethodSettings,
    MixMatchSettings,
    MtcfSettings,
    Objective,
    OpenMatchSettings,
    OspSettings,
    SafeStudentSettings,
    SimMatchSettings,
    SoftMatchSettings,
    SsbSettings,
    UAGregSettings,
)


def build_method(
    settings: MethodSettings,
    sizes: Sizes,
    generator: torch.Generator,
    objective: Objective | None = None,
) -> Method:
    """`objective`: what DAC stands on."""
    match settings:
        case LabeledOnlySettings():
            return LabeledOnly(sizes, settings)
        case MixMatchSettings():
            return MixMatch(sizes, settings, generator)
        case FixMatchSettings():
            return FixMatch(sizes, settings)
        case CoMatchSettings():
            return CoMatch(sizes, settings, generator)
        case SimMatchSettings():
            return SimMatch(sizes, settings, generator)
        case SoftMatchSettings():
            return SoftMatch(sizes, settings)
        case MtcfSettings():
            return Mtcf(sizes, settings, generator)
        case OpenMatchSettings():
            return OpenMatch(sizes, settings)
        case SafeStudentSettings():
            return SafeStudent(sizes, settings)
        case OspSettings():
            return Osp(sizes, settings, generator)
        case SsbSettings():
            return Ssb(sizes, settings)
        case IOMatchSettings():
            return IOMatch(sizes, settings)
        case UAGregSettings():
            return UAGreg(sizes, settings)
        case DacSettings():
            assert objective is not None
            return Dac(sizes, settings, build_method(objective, sizes, generator), generator)


def build_network(
    run: Run,
    *,
    num_known: int,
    num_labeled: int,
    pool: int,
    streams: dict[str, torch.Generator] | None = None,
) -> Network:
    """The network of a run. Encoder and target head start alike for every method of a seed.

    A method keeps `streams["method"]` for draws inside its steps: training passes the dictionary
    that it also saves, so that such draws go on where they were.
    """
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
        method = build_method(run.method, sizes, streams["method"], run.objective)
    return Network(backbone, method, feature_layernorm=run.method.feature_layernorm)
