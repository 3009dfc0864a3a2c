"""Free the locks that a killed Snakemake left in a project folder.

Snakemake's own locks are plain files without an owner. After `kill -9` or a power cut they stay,
and every start is refused until somebody runs `snakemake --unlock`. So every Snakemake says in a
file where its jobs run and holds a lock on it, which the kernel frees with the process. Jobs that
were given to a cluster may go on without their Snakemake, whose locks therefore stay.
"""

import fcntl
import logging
import socket
import time
from pathlib import Path
from typing import TextIO

from dac.io.environment import JOBS
from dac.io.progress import say

OWNER = "dac-owner"
ELSEWHERE = "elsewhere"  # a line of the owner file: jobs of a cluster, or nobody knows
PATIENCE = 60.0  # seconds for the jobs of a killed Snakemake to save their state
ADVICE = (
    "If it runs on no machine: snakemake --unlock; then run the same command again, which "
    "continues from the last checkpoints."
)


def take_over(folder: Path, *, is_local: bool) -> TextIO | None:
    """Free the locks in `folder` of a Snakemake that was killed here; say where this one runs.

    The returned file must stay open for as long as Snakemake runs. Locks of one that runs, or whose
    jobs may run elsewhere, stay, and Snakemake's own check decides. None: the file system has no
    locks, or refuses the file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / OWNER).open("a+")
    except OSError:
        return None
    try:
        is_alone = _lock(file, fcntl.LOCK_EX)
        if is_alone:
            _free(folder / "locks", file)
        if not _lock(file, fcntl.LOCK_SH, seconds=5):  # others hold it exclusively for a moment
            file.close()
            return None
        file.write(f"{socket.gethostname() if is_local else ELSEWHERE}\n")
        file.flush()
        if is_alone:
            _wait_for_jobs(folder / JOBS.name)
    except OSError:
        file.close()
        return None
    return file


def _free(locks: Path, owner: TextIO) -> None:
    left = sorted(locks.glob("*.lock"))
    owner.seek(0)
    if left and set(owner.read().split()) != {socket.gethostname()}:
        owner.write(f"{ELSEWHERE}\n")  # else the lines of this start would claim them
        return
    for path in left:
        path.unlink(missing_ok=True)
    if left:
        say("an earlier Snakemake was killed here; its locks are freed and its work is continued")
    owner.truncate(0)


def _wait_for_jobs(path: Path) -> None:
    """Wait for jobs that outlive their Snakemake; each holds the lock (dac/on_gpu.py)."""
    with path.open("a") as jobs:
        if not _lock(jobs, fcntl.LOCK_EX):
            most = f"at most {PATIENCE:.0f} s"
            say(f"jobs of a Snakemake that was killed here are still saving; waiting, {most}")
            _lock(jobs, fcntl.LOCK_EX, seconds=PATIENCE)


def _lock(file: TextIO, kind: int, seconds: float = 0.0) -> bool:
    """Whether the lock could be had in time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        else:
            return True


def advise(record: logging.LogRecord) -> bool:
    """A filter for Snakemake's logger: when a lock stops it, add what to do."""
    if getattr(record, "exception", None) == "LockException":
        record.msg = f"{record.msg}\n{ADVICE}"
    return True
