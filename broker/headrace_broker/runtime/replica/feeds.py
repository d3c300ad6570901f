"""The feeds of a queue that is led here, by session and consumer."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    CANCEL,
    CLOSE,
    NODE_DOWN,
    Cancel,
    Close,
    Command,
    NodeDown,
)
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.model.session import session_boot, session_node
from headrace_broker.runtime.replica.feed import Feed

FEED_ENDING: Final = (CANCEL, CLOSE, NODE_DOWN)  # kinds of commands that end consumers


@final
class Feeds:
    """Feeds of the consumers that are served from here."""

    def __init__(self) -> None:
        self._feeds: dict[int, dict[int, Feed]] = {}

    @property
    def count(self) -> int:
        """Number of consumers that are served."""
        return sum([len(feeds) for feeds in self._feeds.values()])

    @property
    def is_empty(self) -> bool:
        """True without any served consumer."""
        return not self._feeds

    def put(self, session: int, feed: Feed) -> None:
        """Serve a consumer, anew where it was served before."""
        self.drop(session, feed.consumer)
        self._feeds.setdefault(session, {})[int(feed.consumer)] = feed

    def get(self, session: int, consumer: i64) -> Feed | None:
        """Return the feed of a consumer, None if it is not served."""
        feeds = self._feeds.get(session)
        return None if feeds is None else feeds.get(int(consumer))

    def drop(self, session: int, consumer: i64) -> None:
        """Serve a consumer no more."""
        feeds = self._feeds.get(session)
        if feeds is not None:
            feed = feeds.pop(int(consumer), None)
            if feed is not None:
                feed.end()
            if not feeds:
                del self._feeds[session]

    def drop_all(self) -> list[int]:
        """End all feeds; return their sessions."""
        sessions = list(self._feeds)
        for session in sessions:
            self._drop_session(session)
        return sessions

    def drop_ended(self, command: Command, machine: QueueMachine) -> None:
        """Forget the feeds of consumers that a command, applied by now, has ended."""
        if isinstance(command, Close):
            self._drop_session(command.session)
        elif isinstance(command, Cancel):
            if not machine.is_attached(command.session, command.consumer):
                self.drop(command.session, command.consumer)
        elif isinstance(command, NodeDown) and command.boot_keep > 0:
            for session in list(self._feeds):
                boot = session_boot(session)
                if session_node(session) == command.node and boot != command.boot_keep:
                    self._drop_session(session)

    def _drop_session(self, session: int) -> None:
        for feed in self._feeds.pop(session, {}).values():
            feed.end()
