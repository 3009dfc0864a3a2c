"""Memory that is free: Linux, control groups, GPUs."""

import pytest
import torch
import toy

from dac.io.free_memory import free_memory, free_ram

SWAP = 1024  # bytes: SwapFree below


def machine(folder, available_kb, groups="", limits=None):
    """The files of /proc and /sys that say how much memory there is."""
    written = {
        "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:  {available_kb} kB\nSwapFree: 1 kB\n"
        "HugePages_Total:   0\n",
        "proc/self/cgroup": groups,
        **(limits or {}),
    }
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_without_limits_it_is_what_linux_calls_available(tmp_path):
    assert free_ram(machine(tmp_path, 1000)) == 1001 * 1024


@pytest.mark.parametrize(
    ("groups", "limits", "free"),
    [
        ("0::/job\n", {"sys/fs/cgroup/job/memory.max": "5000\n"}, 5000 + SWAP),
        ("0::/slurm/job\n", {"sys/fs/cgroup/slurm/memory.max": "6000\n"}, 6000 + SWAP),
        ("0::/job\n", {"sys/fs/cgroup/job/memory.max": "max\n"}, 1001 * 1024),
        (
            "0::/job\n",
            {
                "sys/fs/cgroup/job/memory.max": "5000\n",
                "sys/fs/cgroup/job/memory.stat": "anon 1500\nfile 3000\n",
            },
            3500 + SWAP,
        ),
        (
            "0::/job\n",
            {
                "sys/fs/cgroup/job/memory.max": "5000\n",
                "sys/fs/cgroup/job/memory.swap.max": "100\n",
            },
            5100,
        ),
        ("0::/elsewhere\n", {"sys/fs/cgroup/memory.max": "7000\n"}, 7000 + SWAP),  # in a container
        (
            "4:cpu,memory:/job\n3:pids:/other\n",
            {
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "8000\n",
                "sys/fs/cgroup/memory/memory.stat": "rss 1\ntotal_rss 500\n",
                "sys/fs/cgroup/memory/other/memory.limit_in_bytes": "1\n",
            },
            7500 + SWAP,
        ),
    ],
)
def test_a_control_group_may_allow_less(tmp_path, groups, limits, free):
    assert free_ram(machine(tmp_path, 1000, groups, limits)) == free


def test_a_system_that_does_not_say_refuses_nothing(tmp_path):
    assert free_ram(tmp_path) is None


def test_this_machine_has_some(monkeypatch):
    assert free_memory(toy.CPU) == pytest.approx(free_ram(), rel=0.5)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (11, 22))
    assert free_memory(torch.device("cuda")) == 11
