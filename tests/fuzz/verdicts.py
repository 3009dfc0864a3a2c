"""What a case may end with, and how a command is judged."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from toy import called

ACCEPTED, REFUSED = "accepted", "refused"


class Wrong(Exception):
    """A result that was accepted and is not right."""


def judged(main: Callable[[], None], *options: object) -> str:
    """Run a command in this process; only success, or one message and exit code 2, is sound."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = called(main, *options)
    if code == 0:
        return ACCEPTED
    said = err.getvalue()
    if code != 2 or "error: " not in said or "Traceback" in said:
        raise Wrong(f"exit code {code}:\n{out.getvalue()}{said}")
    return REFUSED
