"""Processors by affinity and quota, on systems made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace_broker.config.cores import core_count


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    return tmp_path


def write(system: Path, path: str, text: str) -> None:
    file = system / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 16), ("400000 100000", 4), ("50000 100000", 1), ("3900 1000", 3), ("", 16)],
)
def test_a_quota_counts(system: Path, quota: str, cores: int) -> None:
    write(system, "proc/self/cgroup", "0::/a/b")
    write(system, "sys/fs/cgroup/a/b/cpu.max", quota)
    assert core_count(system) == cores


def test_the_least_of_all_groups_above_counts(system: Path) -> None:
    write(system, "proc/self/cgroup", "0::/a/b")
    write(system, "sys/fs/cgroup/a/b/cpu.max", "800000 100000")
    write(system, "sys/fs/cgroup/a/cpu.max", "600000 100000")
    assert core_count(system) == 6


def test_a_container_sees_its_group_as_the_root(system: Path) -> None:
    write(system, "proc/self/cgroup", "0::/../kubepods/pod1")
    write(system, "sys/fs/cgroup/cpu.max", "200000 100000")
    assert core_count(system) == 2


def test_version_1(system: Path) -> None:
    write(system, "proc/self/cgroup", "9:cpuset:/\n4:cpu,cpuacct:/x\n0::/")
    write(system, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "500000")
    write(system, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000")
    write(system, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(system, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert core_count(system) == 5


def test_without_control_groups_there_is_no_quota(system: Path) -> None:
    assert core_count(system) == 16
