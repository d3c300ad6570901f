"""Memory in use, on systems made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace_broker.runtime.alarm.memory_meter import LIMITS_EVERY, PAGE_BYTES, MemoryMeter

MIB = 1 << 20
V2_MOUNT = "30 20 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1_MOUNT = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
V1_CPU = "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"


class System:
    """A root directory with a /proc of a machine of 1000 MiB and a process that uses 70."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: {1000 * 1024} kB\nMemFree: 5 kB\n")
        self.write("proc/self/statm", f"999999 {70 * MIB // PAGE_BYTES} 5 1 0 2 0\n")
        self.groups("0::/", V2_MOUNT)

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(text))

    def groups(self, own: str, *mounts: str) -> None:
        self.write("proc/self/cgroup", own + "\n")
        self.write("proc/self/mountinfo", "\n".join(mounts) + "\n")

    def group(self, path: str, limit: int | str, used: int, **stat: int) -> None:
        """Write a control group of version 2, in MiB."""
        place = f"sys/fs/cgroup/{path}".rstrip("/")
        self.write(f"{place}/memory.max", limit if isinstance(limit, str) else limit * MIB)
        self.write(f"{place}/memory.current", used * MIB)
        lines = [f"{name} {value * MIB}" for name, value in {"anon": used, **stat}.items()]
        self.write(f"{place}/memory.stat", "\n".join(lines))

    def read(self) -> tuple[int, int, str]:
        reading = MemoryMeter(self.root).read()
        return reading.used // MIB, reading.total // MIB, reading.place


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_all_processes_of_a_node_count_together(system: System) -> None:
    parent = os.getppid()
    system.write(f"proc/{parent}/task/{parent}/children", "7 8 9 ")
    for pid, used in ((7, 70), (8, 50)):  # 9 has ended since
        system.write(f"proc/{pid}/statm", f"999999 {used * MIB // PAGE_BYTES} 5 1 0 2 0\n")
    meter = MemoryMeter(system.root, has_siblings=True)
    assert meter.read().used // MIB == 120
    system.group("", 200, 90)
    assert MemoryMeter(system.root, has_siblings=True).read().used // MIB == 90


def test_without_a_limit_resident_memory_counts_against_the_machine(system: System) -> None:
    assert system.read() == (70, 1000, "the machine")
    system.group("", "max", 900)
    assert system.read() == (70, 1000, "the machine")
    system.group("", 1000, 900)
    assert system.read() == (70, 1000, "the machine"), "as much as there is, is no limit"


def test_a_kernel_without_groups_is_one_without_limits(system: System) -> None:
    (system.root / "proc/self/cgroup").unlink()
    (system.root / "proc/self/mountinfo").unlink()
    assert system.read() == (70, 1000, "the machine")


def test_clean_cached_files_do_not_count_and_dirty_ones_do(system: System) -> None:
    system.groups("0::/pod/box", V2_MOUNT)
    cached = {"inactive_file": 100, "active_file": 50, "slab_reclaimable": 7}
    system.group("pod/box", 400, 300, **cached, file_dirty=20, file_writeback=2, shmem=30)
    used, total, place = system.read()
    assert (used, total) == (300 - 157 + 22, 400)
    assert place.endswith("/pod/box")


def test_the_limit_that_is_nearest_counts_wherever_it_is_set(system: System) -> None:
    system.groups("0::/pod/box", V2_MOUNT)
    system.group("pod/box", 400, 100)
    system.group("pod", 500, 450)
    used, total, place = system.read()
    assert (used, total) == (450, 500)
    assert place.endswith("/pod")


def test_memory_high_is_a_limit_too(system: System) -> None:
    system.groups("0::/pod", V2_MOUNT)
    system.group("pod", 400, 100)
    system.write("sys/fs/cgroup/pod/memory.high", 300 * MIB)
    assert system.read()[:2] == (100, 300)


def test_a_mount_that_begins_at_the_own_group_is_understood(system: System) -> None:
    mount = "30 20 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    system.groups("0::/docker/abc", mount)
    system.group("", 400, 100)
    assert system.read()[:2] == (100, 400)
    system.groups("0::/docker/abc/inner", mount)
    system.group("inner", 200, 100)
    assert system.read()[:2] == (100, 200)
    system.groups("0::/../elsewhere", V2_MOUNT)
    assert system.read()[:2] == (100, 400)


def test_version_1_counts_likewise(system: System) -> None:
    system.groups("7:cpu:/a\n4:memory:/box\n0::/", V1_CPU, V1_MOUNT)
    place = "sys/fs/cgroup/memory"
    for path, limit in (("", 1 << 62), ("/box", 400 * MIB)):
        system.write(f"{place}{path}/memory.limit_in_bytes", limit)
        system.write(f"{place}{path}/memory.usage_in_bytes", 300 * MIB)
        cached = {"total_inactive_file": 90, "total_active_file": 10, "inactive_file": 1}
        stat = {**cached, "total_dirty": 5, "total_writeback": 1}
        lines = [f"{name} {value * MIB}" for name, value in stat.items()]
        system.write(f"{place}{path}/memory.stat", "\n".join(lines))
    assert system.read()[:2] == (206, 400)


def test_a_limit_that_changes_is_noticed(system: System) -> None:
    system.groups("0::/pod", V2_MOUNT)
    system.group("pod", 400, 100)
    meter = MemoryMeter(system.root)
    assert meter.read().total == 400 * MIB
    system.group("pod", "max", 100)
    readings = [meter.read() for _ in range(LIMITS_EVERY)]
    assert readings[-1].total == 1000 * MIB


def test_a_system_that_does_not_say_raises(tmp_path: Path, system: System) -> None:
    with pytest.raises(OSError):
        MemoryMeter(tmp_path / "empty")
    meter = MemoryMeter(system.root)
    (system.root / "proc/self/statm").write_text("1 x")
    with pytest.raises(ValueError):
        meter.read()


def test_this_system_is_understood() -> None:
    reading = MemoryMeter().read()
    assert 0 < reading.used < reading.total
