"""A backbone that the stage `pretrain` made, as the start of a run (Table 6)."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from dac.config import PretrainRun
from dac.io.errors import UserError
from dac.runs import checkpoint
from dac.runs.folder import refuse_other_run


@dataclass(frozen=True)
class Pretrained:
    """A backbone that the stage `pretrain` made."""

    path: Path
    weights: dict[str, Tensor]

    @property
    def hash(self) -> str:
        return checkpoint.weights_hash(self.weights)


def load_pretrained(
    source: PretrainRun, folder: Path, places: tuple[object, ...] = ()
) -> Pretrained:
    """The network of `source` below `folder`; another one, or none, is an error.

    `places` are further options of the command that makes it.
    """
    out = folder / source.data_name / source.backbone
    options = ("--data", source.data_name, "--backbone", source.backbone, "--out", out, *places)
    command = " ".join(map(str, ("python -m dac.pretrain", *options)))
    path = out / "model.pt"
    if not path.exists():
        raise UserError(f"the pre-trained network {path} does not exist; run `{command}`")
    state = checkpoint.from_file(path)
    remedy = f"give the --params file that it was made with, or delete {out} and run `{command}`"
    refuse_other_run(state, source.identity(), path, remedy)
    weights = state.get("backbone")
    if not isinstance(weights, dict) or not all(isinstance(w, Tensor) for w in weights.values()):
        raise UserError(f"{path} holds no backbone; delete it and run `{command}`")
    return Pretrained(path, weights)


def load_backbone(backbone: nn.Module, pretrained: Pretrained) -> None:
    """Every tensor, norm statistics included; heads keep their random start."""
    try:
        backbone.load_state_dict(pretrained.weights, strict=True)
    except RuntimeError as error:
        raise UserError(
            f"{pretrained.path} does not hold the tensors of this backbone ({error}); "
            "delete it and pre-train again"
        ) from error
