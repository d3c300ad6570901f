"""The alarm that blocks publishers: one value for a node, and the watchers of its changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, final

from mypy_extensions import i64

from headrace_broker.model.flow import NO_LIMIT


@final
class Blocked:
    """The reason for which publishers may not go on. A value: it never changes.

    Attributes:
        reason: for people, "" while nothing blocks.
        limit: a LIMIT constant of `model.flow`, NO_LIMIT while nothing blocks.
        group: the queue behind the limit, 0 for none.
        since_us: when it began, in microseconds of a monotonic clock.
        node: name of the node that is short of something, "" for none.
    """

    def __init__(
        self, reason: str, limit: i64, group: i64 = 0, since_us: i64 = 0, node: str = ""
    ) -> None:
        self.reason = reason
        self.limit = limit
        self.group = group
        self.since_us = since_us
        self.node = node

    @property
    def is_on(self) -> bool:
        """True while publishers are blocked."""
        return self.limit != NO_LIMIT


NOT_BLOCKED: Final = Blocked("", NO_LIMIT)

BlockedWatcher: TypeAlias = Callable[[Blocked, Blocked], None]


@final
class BlockedState:
    """The alarm of a node's cluster that blocks publishers.

    Attributes:
        now: the value.
    """

    def __init__(self) -> None:
        self.now = NOT_BLOCKED
        self._watchers: dict[BlockedWatcher, None] = {}

    def watch(self, watcher: BlockedWatcher) -> None:
        """Call `watcher` with the values before and after each change; it may not block.

        Both are the same object where only what is short of blocking has changed, such as the
        first stage of memory.
        """
        self._watchers[watcher] = None

    def unwatch(self, watcher: BlockedWatcher) -> None:
        """Forget a watcher; one that is not known is ignored."""
        self._watchers.pop(watcher, None)

    def change(self, blocked: Blocked) -> None:
        """Set the value, and call the watchers."""
        before = self.now
        self.now = blocked
        for watcher in list(self._watchers):
            watcher(before, blocked)
