"""The level of a node's log: that of all its processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import Question, RpcError


class SetLogLevel(Question[None], frozen=True, tag="log_level"):
    """Set the level of loggers by name, "" for that of all others; 0 is what those have."""

    levels: dict[str, int]


class LogLevels:
    """Sets levels of loggers in the processes of a node, until they stop."""

    def __init__(self, rpc: Rpc, names: Mapping[int, str], processes: Iterable[int]) -> None:
        self._rpc: Final = rpc
        self._names: Final = names  # of nodes, by id
        self._processes: Final = sorted(processes)  # ids of those of this node, its own included
        rpc.serve(SetLogLevel, lambda _, question: _set(question.levels))

    async def set(self, levels: dict[str, int]) -> list[str]:
        """Set levels of loggers by name; return the names of processes that do not answer."""
        question = SetLogLevel(levels)
        done = await asyncio.gather(*(self._reaches(each, question) for each in self._processes))
        return [
            self._names.get(process, str(process))
            for process, reached in zip(self._processes, done, strict=True)
            if not reached
        ]

    async def _reaches(self, process: int, question: SetLogLevel) -> bool:
        try:
            await self._rpc.ask(process, question)
        except RpcError:
            return False
        return True


def _set(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
