"""Processors that a process may use.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
from pathlib import Path

_UNLIMITED = float("inf")


def core_count(root: Path = Path("/")) -> int:
    """Return the processors that this process may run on, within the quota of its control groups.

    A quota is rounded down, but to one at least.

    Args:
        root: where the kernel's file systems are; another directory for tests.
    """
    quota = min((_quota(each) for each in _groups(root)), default=_UNLIMITED)
    return int(max(1, min(len(os.sched_getaffinity(0)), quota)))


def _groups(root: Path) -> list[Path]:
    """Return the directories of this process's control groups, and of those above them."""
    found: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        is_v1 = "cpu" in controllers.split(",")
        if number != "0" and not is_v1:
            continue
        top = root / "sys/fs/cgroup" / ("cpu" if is_v1 else "")
        own = top / path.strip("/")  # within a container it may not be there: then `top` is its own
        found += [each for each in (own, *own.parents) if each.is_relative_to(top)]
    return found


def _quota(group: Path) -> float:
    """Return how many processors a control group may use at once."""
    quota, period = [*_text(group / "cpu.max").split(), "", ""][:2]
    if not quota:
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
    if not quota.strip().isdecimal() or not int(period or 0):
        return _UNLIMITED  # "max", -1, or nothing
    return int(quota) / int(period)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
