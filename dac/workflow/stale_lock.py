"""Free the locks that a killed Snakemake left in a project folder.

Snakemake's own locks are plain files without an owner. After `kill -9` or a power cut they stay,
and every start is refused until somebody runs `snakemake --unlock`. A second lock, which the kernel
frees with its process, tells whether the owner is gone. Jobs that it gave to a cluster may go on
without it, so only a Snakemake that runs all its jobs itself says where it runs.
"""

import fcntl
import socket
from pathlib import Path
from typing import TextIO

from dac.io.progress import say


def take_over(locks: Path, owner: Path) -> TextIO | None:
    """Free the `locks` of a Snakemake that was killed on this machine, and take its place.

    The returned file must stay open for as long as Snakemake runs. None: another Snakemake runs,
    the locks are of another machine or of a cluster's jobs, or this file system has no locks. Then
    nothing is changed, and Snakemake's own check decides.
    """
    try:
        owner.parent.mkdir(parents=True, exist_ok=True)
        file = owner.open("a+")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    left = sorted(locks.glob("*.lock"))
    file.seek(0)
    if left and file.read() != socket.gethostname():
        file.close()
        return None
    for path in left:
        path.unlink(missing_ok=True)
    if left:
        say("an earlier Snakemake was killed here; its locks are freed and its work is continued")
    file.truncate(0)
    return file


def say_where(owner: TextIO | None) -> None:
    """Name this machine: whoever finds the locks and no process here may free them."""
    if owner is not None:
        owner.write(socket.gethostname())
        owner.flush()
