"""Processes of a node that has several, as the kernel tells of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SHARD_OPTION: Final = b"--shard"  # by which a supervisor says which process to be
LISTENS: Final = "0A"  # states of sockets in /proc/net/tcp
ENDED: Final = re.compile(r"process (\S+) ended by itself with status (-?\d+)")
KILLED: Final = -9


def children_of(pid: int) -> list[int]:
    """Return the processes that a process started and that have not ended."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def runs(pid: int) -> bool:
    """Return whether a process has not ended; one that waits to be reaped has."""
    return Path(f"/proc/{pid}/exe").exists()


def shard_pids(supervisor: int) -> dict[int, int]:
    """Return a node's processes by the number of the shard."""
    found: dict[int, int] = {}
    for pid in children_of(supervisor):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if SHARD_OPTION in words:  # it is not before it has begun to be itself
            found[int(words[words.index(SHARD_OPTION) + 1])] = pid
    return found


def _sockets(pid: int) -> Iterable[list[str]]:
    """Yield the fields of the TCP sockets in a process's network namespace."""
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        yield line.split()


def listener_count(pid: int, port: int) -> int:
    """Return how many sockets accept at a port in the network namespace of a process."""
    suffix = f":{port:04X}"
    return sum(each[1].endswith(suffix) and each[3] == LISTENS for each in _sockets(pid))


def owner_of(pids: dict[int, int], port: int, client_port: int) -> int | None:
    """Return the number of the shard that a connection on loopback is in, None without one.

    Args:
        pids: of the shards, by number.
        port: of the node, at which all of them accept.
        client_port: of the client.
    """
    here, there = f":{port:04X}", f":{client_port:04X}"
    for shard, pid in pids.items():
        try:
            found = [
                f"socket:[{each[9]}]"
                for each in _sockets(pid)
                if each[1].endswith(here) and each[2].endswith(there)
            ]
            if found and any(_link(each) in found for each in Path(f"/proc/{pid}/fd").iterdir()):
                return shard
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def wrong_endings(log: str, kills: dict[str, int]) -> list[str]:
    """Return which processes ended by themselves, by a node's log.

    Args:
        log: of the supervisor.
        kills: by name of the process how often it was killed alone.
    """
    found: list[str] = []
    left = dict(kills)
    for name, status in ENDED.findall(log):
        if int(status) != KILLED:
            found.append(f"{name} ended by itself with status {status}")
        elif left.get(name, 0) == 0:
            found.append(f"{name} was killed, and not by the test")
        else:
            left[name] -= 1
    return found
