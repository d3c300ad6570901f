"""Reads of one group that wait for an answer of its leader, or for entries to be applied."""

from __future__ import annotations

import asyncio


class GroupReads:
    """Reads of one group that wait for the leader's answer, or until they may be answered."""

    def __init__(self) -> None:
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._answered: list[tuple[int, asyncio.Future[bool]]] = []

    def ask(self, context: int) -> asyncio.Future[int]:
        """Return a future of the index to apply first, -1 when there will be none."""
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[context] = asked
        return asked

    def forget(self, context: int) -> None:
        """Wait no longer."""
        self._asked.pop(context, None)

    def answered(self, states: list[tuple[int, int]], lost: list[int]) -> None:
        """Take answers as they come with a Ready."""
        for context, index in states:
            self._settle(context, index)
        for context in lost:
            self._settle(context, -1)

    def reach(self, index: int) -> asyncio.Future[bool]:
        """Return a future that is set once `index` is applied (False: the group is gone)."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answered.append((index, reached))
        return reached

    def applied(self, applied_index: int) -> None:
        """Release reads whose index is applied."""
        if not self._answered:
            return
        waiting, self._answered = self._answered, []
        for index, reached in waiting:
            if index > applied_index:
                self._answered.append((index, reached))
            elif not reached.done():
                reached.set_result(True)

    def close(self) -> None:
        """Let everybody go: the group is gone, or its node has stopped."""
        self.answered([], list(self._asked))
        for _, reached in self._answered:
            if not reached.done():
                reached.set_result(False)
        self._answered = []

    def _settle(self, context: int, index: int) -> None:
        asked = self._asked.pop(context, None)
        if asked is not None and not asked.done():
            asked.set_result(index)
