"""The folder of a run: its model when it is finished, its state while it trains."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dac.io.errors import UserError
from dac.io.files import canonical_hash, write_bytes
from dac.io.progress import say
from dac.runs import checkpoint
from dac.runs.identity import differences

START_OVER = "give another --out folder, or delete this one to start over"


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
    """Where a run leaves its model and, during training, its state.

    States of different parameters are kept apart, so that each can be resumed.
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
        """Whether the model exists; a model of another run is an error."""
        if not self.model.exists():
            return False
        refuse_other_run(checkpoint.from_file(self.model), self.identity, self.model)
        checkpoint.drop(self.work)
        say(f"{self.model} is finished; nothing to do")
        return True

    def newest(self) -> dict[str, Any] | None:
        state = checkpoint.newest(self.work)
        if state is not None:
            refuse_other_run(state, self.identity, self.work)
        return state

    def save(self, step: int, state: dict[str, Any]) -> None:
        checkpoint.save(self.work, step, state | {"run": self.identity})

    def finish(self, model: dict[str, Any]) -> None:
        """Write the model, which marks the run as finished, and drop the state."""
        write_bytes(self.model, checkpoint.to_bytes(model | {"run": self.identity}))
        checkpoint.drop(self.work)
