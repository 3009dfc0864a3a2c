"""Several jobs, several GPUs, no scheduler: each job has one of its own while it lives."""

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

SHOW = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
HOLD = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"


UNSET = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "DAC_SNAKEMAKE")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k not in UNSET}
    return inherited | {"TMPDIR": str(tmp_path)}


def start(code: str, environment: dict[str, str], **more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "dac.on_gpu", sys.executable, "-c", code]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment | more, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def said(process: subprocess.Popen) -> str:
    out, error = process.communicate()
    assert process.returncode == 0, error
    return out.strip()


def test_jobs_at_the_same_time_get_different_gpus(environment: dict[str, str]) -> None:
    jobs = [start(HOLD, environment, CUDA_VISIBLE_DEVICES="0,1,2,3") for _ in range(4)]
    assert sorted(job.stdout.readline().strip() for job in jobs) == ["0", "1", "2", "3"]
    for job in jobs:
        job.communicate()


def test_a_fifth_job_waits_for_a_gpu_that_becomes_free(environment: dict[str, str]) -> None:
    first = start(HOLD, environment, CUDA_VISIBLE_DEVICES="3")
    assert first.stdout.readline().strip() == "3"
    second = start(SHOW, environment, CUDA_VISIBLE_DEVICES="3")
    assert "all 1 GPUs are taken; waiting" in second.stderr.readline()
    first.communicate()
    assert said(second) == "3"


def test_a_killed_job_frees_its_gpu(environment: dict[str, str]) -> None:
    first = start(HOLD, environment, CUDA_VISIBLE_DEVICES="0")
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert said(start(SHOW, environment, CUDA_VISIBLE_DEVICES="0")) == "0"


def test_gpus_are_found_by_nvidia_smi(environment: dict[str, str], tmp_path: Path) -> None:
    fake = tmp_path / "bin/nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nprintf 'GPU-aa\\nGPU-bb\\n'\n")
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{environment['PATH']}"
    assert said(start(SHOW, environment, PATH=path)) == "GPU-aa"


def test_without_a_gpu_the_command_runs_as_it_is(environment: dict[str, str]) -> None:
    assert said(start(SHOW, environment, CUDA_VISIBLE_DEVICES="")) == ""
    assert said(start(SHOW, environment, PATH=str(Path(sys.executable).parent))) == "None"


def test_inside_slurm_the_scheduler_has_chosen(environment: dict[str, str]) -> None:
    holder = start(HOLD, environment, CUDA_VISIBLE_DEVICES="0")
    holder.stdout.readline()
    process = start(SHOW, environment, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID="12")
    out, error = process.communicate()
    assert out.strip() == "0" and "Slurm job 12, GPU 0" in error
    holder.communicate()


def test_jobs_that_share_an_allocation_of_several_gpus_get_one_each(
    environment: dict[str, str],
) -> None:
    devices = {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_ID": "12"}
    jobs = [start(HOLD, environment, **devices) for _ in range(2)]
    assert sorted(job.stdout.readline().strip() for job in jobs) == ["0", "1"]
    for job in jobs:
        job.communicate()


def test_minus_one_means_no_gpu(environment: dict[str, str]) -> None:
    assert said(start(SHOW, environment, CUDA_VISIBLE_DEVICES="-1")) == "-1"


def test_the_exit_code_is_the_commands_own(environment: dict[str, str]) -> None:
    process = start("raise SystemExit(75)", environment, CUDA_VISIBLE_DEVICES="0")
    process.communicate()
    assert process.returncode == 75


@pytest.mark.parametrize(
    ("command", "message"), [([], "no command given"), (["no-such-program"], "cannot be run")]
)
def test_a_bad_command_is_one_message(
    environment: dict[str, str], command: list[str], message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dac.on_gpu", *command],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


# --- the end of the Snakemake that started a job ------------------------------------------------

JOB = """
import os, signal, sys

def save(number, frame):
    print("saved", flush=True)
    os._exit(75)

signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
sys.stdin.readline()
print("alive", flush=True)
"""
PARENT = """
import os, subprocess, sys, threading
from dac.io import environment

environment.apply(starts_jobs={is_main})
command = [*{shell}, sys.executable, "-m", "dac.on_gpu", sys.executable, "-c", {job!r}]
worker = threading.Thread(target=lambda: subprocess.Popen(command).wait())  # as Snakemake does
worker.start()
worker.join()
"""
IN_BETWEEN = ["sh", "-c", '"$@"; exit $?', "sh"]  # a shell that stays


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal")
@pytest.mark.parametrize(
    ("is_main", "shell", "answer"),
    [
        (True, [], "saved"),
        (False, [], "alive"),  # by hand (nohup ... &), or inside a Slurm job, which Slurm ends
        (True, IN_BETWEEN, "alive"),  # the kernel would watch the shell
    ],
)
def test_a_job_of_a_snakemake_that_is_killed_saves_and_leaves(
    environment: dict[str, str], tmp_path: Path, is_main: bool, shell: list[str], answer: str
) -> None:
    inherited = {"DAC_SNAKEMAKE": "1", "CUDA_VISIBLE_DEVICES": ""}
    code, pipe = PARENT.format(is_main=is_main, shell=shell, job=JOB), subprocess.PIPE
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment | inherited,
        stdin=pipe,
        stdout=pipe,
        text=True,
    )
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    parent.wait()
    with suppress(BrokenPipeError):  # it has left already
        parent.stdin.write("\n")
        parent.stdin.flush()
    assert parent.stdout.readline() == f"{answer}\n"


def test_a_job_whose_snakemake_is_already_dead_begins_nothing(environment: dict[str, str]) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    process = start(SHOW, environment, DAC_SNAKEMAKE=str(dead.pid))
    out, error = process.communicate()
    assert (process.returncode, out) == (75, "") and "has ended; nothing was begun" in error


def test_a_job_holds_the_lock_that_the_next_snakemake_waits_for(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".snakemake").mkdir()
    monkeypatch.chdir(tmp_path)
    more = {"DAC_SNAKEMAKE": str(os.getpid()), "CUDA_VISIBLE_DEVICES": "0"}
    job = start(HOLD, environment, **more)
    job.stdout.readline()
    with Path(".snakemake/dac-jobs").open("a") as jobs:
        with pytest.raises(BlockingIOError):
            fcntl.flock(jobs, fcntl.LOCK_EX | fcntl.LOCK_NB)
        job.communicate()
        fcntl.flock(jobs, fcntl.LOCK_EX | fcntl.LOCK_NB)
