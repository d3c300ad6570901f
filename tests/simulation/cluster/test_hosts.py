"""Processes of simulated hosts: numbers, names and what is theirs on the disk."""

from __future__ import annotations

import pytest

from headrace_simulation.cluster.disk import VirtualDisk
from headrace_simulation.cluster.hosts import host_of, is_data_of, name_of, number_of
from headrace_simulation.cluster.world import World


@pytest.mark.parametrize(
    ("number", "name", "host"), [(2, "n2", 2), (66, "n2:1", 2), (131, "n3:2", 3)]
)
def test_names_are_those_of_production(number: int, name: str, host: int) -> None:
    assert name_of(number) == name
    assert number_of(name) == number
    assert host_of(number) == host


def test_the_disk_of_a_host_loses_what_is_one_process_s_alone() -> None:
    disk = VirtualDisk(World(1), "n1")
    paths = {1: "/data/node.json", 65: "/data/shard-1/node.json", 129: "/data/shard-2/node.json"}
    for path in paths.values():
        disk.put(path, b"x")
    for number, path in paths.items():
        assert [each for each in paths.values() if is_data_of(number, each)] == [path]
    disk.wipe_some(lambda path: is_data_of(65, path))
    assert set(disk.copy()) == {paths[1], paths[129]}
    disk.lose_power()
    assert set(disk.copy()) == {paths[1], paths[129]}
    disk.wipe_some(lambda path: is_data_of(1, path))
    assert set(disk.copy()) == {paths[129]}
