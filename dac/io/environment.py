"""The environment that every job of the workflow inherits."""

import os
import sys
from pathlib import Path

# Keeps large buffers mapped between steps, which doubles the speed of training on a CPU.
ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
# The process id of the Snakemake that starts jobs on this machine, and the file that these lock.
SNAKEMAKE = "DAC_SNAKEMAKE"
JOBS = Path(".snakemake/dac-jobs")


def apply(*, starts_jobs: bool = False) -> None:
    """Make `python` the interpreter that runs Snakemake (an activated conda environment still comes
    first); variables that the user has set stay as they are.

    `starts_jobs`: this is the Snakemake that a user started, whose jobs end with it. One inside a
    Slurm job is ended by Slurm, together with its job.
    """
    os.environ.pop(SNAKEMAKE, None)
    if starts_jobs:
        os.environ[SNAKEMAKE] = str(os.getpid())
    path = os.environ.get("PATH", os.defpath)
    here = str(Path(sys.executable).parent)
    if path.split(os.pathsep)[0] != here:
        os.environ["PATH"] = here + os.pathsep + path
    for name, value in ALLOCATOR.items():
        os.environ.setdefault(name, value)
