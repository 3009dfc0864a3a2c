"""Waiting for something to happen, with a deadline that is only a guard against hanging."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
