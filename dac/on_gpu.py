"""Run a command on a GPU of its own, on a machine without a scheduler.

    python -m dac.on_gpu python -m dac.train ...

Snakemake counts GPUs (`--resources gpu=4`) but does not say which one a job may use. Here every
GPU has a lock; the command gets the first free one as CUDA_VISIBLE_DEVICES and holds its lock until
it ends, however it ends. Without a GPU, or in a Slurm job with one GPU, it runs unchanged.

A job that Snakemake started on this machine gets SIGTERM when Snakemake dies (kill -9): training
saves and leaves, instead of going on where the next start wants to continue.
"""

import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from dac.io.environment import JOBS, SNAKEMAKE
from dac.io.errors import Stopped, UserError, exit_code_of
from dac.io.parent import end_with_parent
from dac.io.progress import say

SECONDS_BETWEEN_TRIES = 1.0


def main() -> None:
    command = sys.argv[1:]
    if command[:1] in (["-h"], ["--help"]):
        print(f"usage: dac on-gpu COMMAND ...\n\n{__doc__.strip()}")
        return
    if not command:
        raise UserError("no command given; write `python -m dac.on_gpu COMMAND ...`")
    environment = dict(os.environ)
    if snakemake := environment.get(SNAKEMAKE):
        join_workflow(int(snakemake))
    job = environment.get("SLURM_JOB_ID")
    names = visible_gpus(environment)
    if names and not (job and len(names) == 1):  # Slurm has already assigned a single GPU
        name, lock = take_one(names, lock_folder(job))
        os.set_inheritable(lock, True)  # the command keeps the lock; the kernel frees it
        environment["CUDA_VISIBLE_DEVICES"] = name
    say(_introduction(environment, job))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise UserError(f"{command[0]} cannot be run ({error.strerror})") from None


def join_workflow(snakemake: int) -> None:
    """Let this process, and the command that it becomes, end with the Snakemake that started it.

    The kernel sends the signal when the thread that started us ends. Snakemake's local executor
    waits for a job in that very thread, so that it cannot end before the job.
    """
    is_child = os.getppid() == snakemake  # or a shell is in between
    if is_child:
        end_with_parent(signal.SIGTERM)
    if os.getppid() != snakemake and (is_child or not _exists(snakemake)):
        # it died before the kernel was asked
        raise Stopped(f"Snakemake (process {snakemake}) has ended; nothing was begun")
    with suppress(OSError):  # not every file system has locks
        jobs = os.open(JOBS, os.O_CREAT | os.O_RDWR)
        os.set_inheritable(jobs, True)  # the next Snakemake waits for the command (stale_lock.py)
        fcntl.flock(jobs, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def visible_gpus(environment: dict[str, str]) -> list[str]:
    """The GPUs in CUDA_VISIBLE_DEVICES; if it is not set, every GPU that nvidia-smi lists."""
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        names = [name.strip() for name in allowed.split(",")]
        return [name for name in names if name and not name.startswith("-")]  # -1 means none
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return listed.stdout.split()


def lock_folder(job: str | None) -> Path:
    """One folder per machine, user and Slurm job: each of these numbers its GPUs from 0."""
    return Path(tempfile.gettempdir()) / f"dac-gpus-{os.getuid()}{f'-{job}' if job else ''}"


def take_one(names: list[str], folder: Path) -> tuple[str, int]:
    """Return the first free GPU and the descriptor that holds its lock; wait if all are taken."""
    folder.mkdir(mode=0o700, exist_ok=True)
    waited = False
    while True:
        for name in names:
            lock = os.open(folder / re.sub(r"\W", "_", name), os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return name, lock
            except BlockingIOError:
                os.close(lock)
        if not waited:
            say(
                f"all {len(names)} GPUs are taken; waiting (--resources gpu={len(names)} avoids it)"
            )
            waited = True
        time.sleep(SECONDS_BETWEEN_TRIES)


def _introduction(environment: dict[str, str], job: str | None) -> str:
    """The first line of every log: where the job runs."""
    where = f"on {environment.get('SLURMD_NODENAME') or os.uname().nodename}"
    devices = environment.get("CUDA_VISIBLE_DEVICES") or "none"
    return f"{where}, {f'Slurm job {job}, ' if job else ''}GPU {devices}"


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
