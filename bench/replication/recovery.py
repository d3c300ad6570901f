"""Start time of a node with a long log."""

from __future__ import annotations

import asyncio
import os
from array import array
from pathlib import Path
from time import perf_counter
from typing import Final

import uvloop

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.node.node import NodeOptions, RaftNode
from replication.raftlog_worker import IdleHandler

ADDRESS: Final = "127.0.0.1:21090"
GROUPS: Final = 100
LOG_BYTES: Final = 1 << 30
BYTES_AT_ONCE: Final = 8 << 20  # proposed and not yet applied


class KeepingHandler(IdleHandler):
    """An application that is never done with an entry."""

    def __init__(self) -> None:
        self.applied = 0

    def apply(self, entries: list[Entry]) -> None:
        """Keep their indexes."""
        self.applied = entries[-1].index

    def snapshot(self) -> tuple[bytes, array[int]]:
        """Return all indexes."""
        return b"", array("Q", range(1, self.applied + 1))


def measure(directory: Path, size: int, rounds: int) -> tuple[list[float], list[float], int]:
    """Write a log of entries of `size` bytes and start a node with it again and again.

    Returns:
        Seconds of each start with nothing of the log cached; the same with all of it cached; bytes
        of the log's files.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_fill(directory, size))
        cold: list[float] = []
        warm: list[float] = []
        for _ in range(rounds):
            _forget(directory)
            cold.append(runner.run(_start(directory)))
            warm.append(runner.run(_start(directory)))
    return cold, warm, sum(path.stat().st_size for path in directory.iterdir())


def _node(directory: Path) -> RaftNode:
    return RaftNode(NodeOptions("bench", 1, {1: ADDRESS}, str(directory)))


async def _fill(directory: Path, size: int) -> None:
    node = _node(directory)
    await node.start()
    await node.wait_formed()
    handlers = [KeepingHandler() for _ in range(GROUPS)]
    for group, handler in enumerate(handlers, 1):
        node.create_group(group, (1,), (), handler, True)
    while not all(node.serving(group) for group in range(1, GROUPS + 1)):
        await asyncio.sleep(0.01)
    command = os.urandom(size)
    at_once = max(BYTES_AT_ONCE // size // GROUPS, 1)
    last = 0
    for _ in range(LOG_BYTES // size // GROUPS // at_once):
        for group in range(1, GROUPS + 1):
            for _ in range(at_once):
                last = node.propose(group, command)
        while handlers[-1].applied < last:
            await asyncio.sleep(0.001)
    await node.stop()


async def _start(directory: Path) -> float:
    """Return the seconds until a node has its log and its groups back."""
    began = perf_counter()
    node = _node(directory)
    await node.start()
    await node.wait_formed()
    for group in range(1, GROUPS + 1):
        node.create_group(group, (1,), (), KeepingHandler(), True)
    took = perf_counter() - began
    await node.stop()
    return took


def _forget(directory: Path) -> None:
    """Take the files of a directory out of the system's cache."""
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
