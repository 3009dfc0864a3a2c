"""Requests to stop. Needs no torch, so that a command can listen before it imports anything."""

import signal
from types import FrameType

from dac.io.errors import Stopped


class StopRequest:
    """Slurm sends SIGUSR1 or SIGTERM before it ends a job; the loop then saves and exits.

    Before the loop has begun there is nothing to save, and the command ends at once.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self.loop_has_begun = False

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._remember)

    def begin(self) -> None:
        """From now on the loop looks at `received` after every step."""
        self.loop_has_begun = True

    def _remember(self, number: int, frame: FrameType | None) -> None:
        is_first, self.received = self.received is None, signal.Signals(number).name
        if is_first and not self.loop_has_begun:
            raise Stopped(f"{self.received} before training began; nothing is lost")
