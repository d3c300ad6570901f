"""Hosts of a simulated cluster, and the processes on them: the shards of one node.

Processes have the ids and the names that production gives them. With one on each host, the
numbers of hosts and of processes are the same.
"""

from __future__ import annotations

from typing import Final

from headrace_broker.model.shard import SHARD_IDS, shard_id, shard_name

DATA: Final = "/data"  # data directory of a node
_FURTHER: Final = f"{DATA}/shard-"  # likewise, of its further processes


def host_of(number: int) -> int:
    """Return the number of the host of a process."""
    return number % SHARD_IDS


def name_of(number: int) -> str:
    """Return the name of a process."""
    return shard_name(f"n{host_of(number)}", number // SHARD_IDS)


def number_of(name: str) -> int:
    """Return the number of a process by its name."""
    host, _, shard = name.removeprefix("n").partition(":")
    return shard_id(int(host), int(shard or 0))


def is_data_of(number: int, path: str) -> bool:
    """Return whether a file is of a process, and not of another one of its host."""
    shard = number // SHARD_IDS
    if shard:
        return path.startswith(f"{_FURTHER}{shard}/")
    return path.startswith(f"{DATA}/") and not path.startswith(_FURTHER)
