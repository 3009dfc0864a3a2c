"""A process that ends with the one that started it."""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with_parent(number: signal.Signals) -> None:
    """Ask the kernel for a signal when the thread that started this process ends; kept across exec.

    Linux only; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
