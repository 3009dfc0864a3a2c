"""Memory that this machine or a GPU still has."""

from pathlib import Path

import torch


def free_memory(device: torch.device) -> int | None:
    """Bytes that a run can still get; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_ram()


def free_ram(root: Path = Path("/")) -> int | None:
    """What Linux considers available, swap included, and no more than a control group allows."""
    lines = [line.split() for line in _text(root / "proc/meminfo").splitlines()]
    kilobytes = {words[0]: int(words[1]) for words in lines if len(words) == 3}
    if "MemAvailable:" not in kilobytes:
        return None
    free = 1024 * (kilobytes["MemAvailable:"] + kilobytes.get("SwapFree:", 0))
    return min([free, *_limits(root)])


def _limits(root: Path) -> list[int]:
    """What the control groups of this process, and those above them, still allow."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        top, limit, used = root / "sys/fs/cgroup", "memory.max", "anon"  # version 2
        if controllers:
            top, limit, used = top / "memory", "memory.limit_in_bytes", "total_rss"
        if not controllers or "memory" in controllers.split(","):
            folder = top / group.lstrip("/")
            above = [one for one in (folder, *folder.parents) if one.is_relative_to(top)]
            found += [_left(_text(one / limit), _text(one / "memory.stat"), used) for one in above]
    return [left for left in found if left is not None]


def _left(limit: str, statistics: str, used: str) -> int | None:
    """The limit of one group without what is used there; caches of files give way."""
    if not limit.strip().isdigit():  # none, or "max"
        return None
    entries = dict(line.split() for line in statistics.splitlines() if len(line.split()) == 2)
    return max(0, int(limit) - int(entries.get(used, 0)))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
