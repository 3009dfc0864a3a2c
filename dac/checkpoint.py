"""Checkpoints that can be trusted: whole or absent, checked by hash, loaded without running code.

A file is `last-<step>-<hash>.pt`: the name carries its own checksum and appears by one rename. The
two newest are kept, so a damaged one falls back to its predecessor.
"""

import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from dac.errors import UserError
from dac.files import canonical_hash, write_bytes
from dac.identity import differences
from dac.logs import say

KEPT = 2
START_OVER = "give another --out folder, or delete this one to start over"
NAME = re.compile(r"last-(\d{9})-([0-9a-f]{16})\.pt")


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_file(path: Path) -> dict[str, Any]:
    """A saved state: tensors and plain containers only; other content is refused, not executed."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"checkpoint {path} does not exist; train first") from None
    except (UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"checkpoint {path} cannot be read ({reason}); delete it and train again"
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get("run"), dict):
        raise UserError(f"{path} is no checkpoint of dac; delete it and train again")
    return state


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write the state of `step` and drop all but the newest two."""
    content = to_bytes(state)
    path = folder / f"last-{step:09d}-{_hash(content)}.pt"
    write_bytes(path, content)
    for old in saved(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def saved(folder: Path) -> list[Path]:
    """Checkpoints of a working folder, newest first."""
    return sorted((p for p in folder.glob("last-*.pt") if NAME.fullmatch(p.name)), reverse=True)


def newest(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is intact; None if there is none. Says what it passes over."""
    for path in saved(folder):
        match = NAME.fullmatch(path.name)
        if match and _hash(path.read_bytes()) == match[2]:
            return from_file(path)
        say(f"checkpoint {path} is damaged (content and name disagree); trying the one before")
    return None


def refuse_other_run(
    state: dict[str, Any], expected: dict[str, Any], path: Path, next_step: str = START_OVER
) -> None:
    """A checkpoint of another task, method, parameter set or split must not be continued."""
    pairs = differences(state["run"], expected)
    if pairs:
        listed = "\n".join(
            f"  {k}: {there!r} there, {asked!r} asked for" for k, (there, asked) in pairs.items()
        )
        raise UserError(f"{path} belongs to another run; these differ:\n{listed}\n{next_step}")


@dataclass(frozen=True)
class RunFolder:
    """Where one run leaves its model and, while it trains, its state.

    The state lies in a folder of the run's own: after other parameters the old ones resume.
    """

    out: Path
    identity: dict[str, Any]
    """What decides the result."""

    @property
    def model(self) -> Path:
        return self.out / "model.pt"

    @property
    def work(self) -> Path:
        return self.out / "work" / canonical_hash(self.identity)[:16]

    def is_finished(self) -> bool:
        """Whether the model is there; that of another run is an error."""
        if not self.model.exists():
            return False
        refuse_other_run(from_file(self.model), self.identity, self.model)
        say(f"{self.model} is finished; nothing to do")
        return True

    def newest(self) -> dict[str, Any] | None:
        state = newest(self.work)
        if state is not None:
            refuse_other_run(state, self.identity, self.work)
        return state

    def save(self, step: int, state: dict[str, Any]) -> None:
        save(self.work, step, state | {"run": self.identity})

    def finish(self, model: dict[str, Any]) -> None:
        """Write the model, which marks the run as finished, and drop the state."""
        write_bytes(self.model, to_bytes(model | {"run": self.identity}))
        for path in saved(self.work):
            path.unlink()


def weights_hash(weights: dict[str, Tensor]) -> str:
    """sha256 of names, types, shapes and values, whatever the file around them."""
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
