"""Errors a user can act on, and the one place that turns them into exit codes.

Every message names the thing, the value found, what was expected and the next step.
"""

import errno
import os
import sys
from collections.abc import Callable

FAILED = 1
BAD_INPUT = 2  # the user must change something
STOPPED = 75  # asked to stop (SIGTERM, SIGUSR1); a restart resumes. EX_TEMPFAIL in sysexits.h

DENIED = frozenset({errno.EACCES, errno.EPERM})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
BAD_PLACE = frozenset(
    {
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EROFS,
    }
)
FOR_THE_USER = DENIED | FULL | BAD_PLACE  # other errors of the system keep their traceback
AGAIN = "run the same command again"


class UserError(Exception):
    """Bad input: reported as one message without a traceback, exit code 2."""


class RunFailed(Exception):
    """A run failed on its own (a loss that is not finite): one message, exit code 1."""


class Stopped(BaseException):
    """The run was asked to stop and has saved everything; starting it again resumes it.

    No `except Exception` may take it for a fault: while a command starts, it can come out of any
    line, also of a library.
    """


def reason(error: BaseException) -> str:
    """Why, in one line, without the path that an OSError repeats."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def remedy(error: BaseException, otherwise: str) -> str:
    """Return the next step after `error`, which made a file unusable.

    `otherwise` is for broken content and for a path that leads to no file. It may cost the file
    ("delete it ..."), so a whole file that the system refuses to open never gets it.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in DENIED:
        return f"fix its permissions and {AGAIN}"
    if number in FULL:
        return f"free some space (or raise the quota) and {AGAIN}"
    if number is None or number in BAD_PLACE:
        return otherwise
    return f"check its disk and {AGAIN}"


def exit_code_of(main: Callable[[], None]) -> int:
    """Run `main` and turn what it raises into a message and an exit code."""
    try:
        main()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except RunFailed as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return FAILED
    except Stopped as stopped:
        print(f"stopped: {stopped}", file=sys.stderr)
        return STOPPED
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output is gone (`... | head`)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - lives until the process ends
        return 141
    except OSError as error:
        if error.errno not in FOR_THE_USER:
            raise
        step = remedy(error, f"give another path or change what is there, and {AGAIN}")
        what = error.filename or "a file"
        print(f"error: {what} cannot be used ({reason(error)}); {step}", file=sys.stderr)
        return BAD_INPUT
    return 0
