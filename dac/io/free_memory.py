"""Memory that this machine or a GPU still has."""

from pathlib import Path

import torch


def free_memory(device: torch.device) -> int | None:
    """Bytes that a run can still get; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_ram()


def free_ram(root: Path = Path("/")) -> int | None:
    """What Linux considers available and no more than a control group allows, swap included."""
    lines = [line.split() for line in _text(root / "proc/meminfo").splitlines()]
    kilobytes = {words[0]: int(words[1]) for words in lines if len(words) == 3}
    if "MemAvailable:" not in kilobytes:
        return None
    swap = 1024 * kilobytes.get("SwapFree:", 0)
    return min([1024 * kilobytes["MemAvailable:"] + swap, *_limits(root, swap)])


def _limits(root: Path, swap: int) -> list[int]:
    """What the control groups of this process, and those above them, still allow at most."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        top, limit, used = root / "sys/fs/cgroup", "memory.max", "anon"  # version 2
        if controllers:
            top, limit, used = top / "memory", "memory.limit_in_bytes", "total_rss"
        if not controllers or "memory" in controllers.split(","):
            folder = top / group.lstrip("/")
            for one in [one for one in (folder, *folder.parents) if one.is_relative_to(top)]:
                if (memory := _number(one / limit)) is not None:
                    most = _number(one / "memory.swap.max")  # version 2 only
                    in_use = _statistics(one).get(used, 0)  # caches of files give way
                    left = max(0, memory - in_use)
                    found.append(left + (swap if most is None else min(swap, most)))
    return found


def _number(path: Path) -> int | None:
    """The number in a file; None for another word ("max"), or no file."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _statistics(group: Path) -> dict[str, int]:
    lines = [line.split() for line in _text(group / "memory.stat").splitlines()]
    return {words[0]: int(words[1]) for words in lines if len(words) == 2}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
