"""Several jobs, several GPUs, no scheduler: each job has one of its own while it lives."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
HOLD = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID")
    }
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
