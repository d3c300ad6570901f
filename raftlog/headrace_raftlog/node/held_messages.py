"""Messages for groups that this node does not have yet."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.limits import HELD_BYTES_MAX, HELD_GROUP_MESSAGES_MAX, HELD_MESSAGES_MAX
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import Message
from headrace_raftlog.transport.codec import message_bytes


@final
class HeldMessages:
    """Holds messages by group within a bound; whole groups go first that came first.

    A node often hears of a group from its other members before its own application creates it.
    Dropping such messages would be correct but costs an election timeout.
    """

    def __init__(self) -> None:
        self._groups: dict[int, list[Message]] = {}
        self.count: i64 = 0  # messages held
        self.size: i64 = 0  # their bytes, overheads included

    def hold(self, message: Message) -> None:
        """Keep a message, unless its group has too many already."""
        waiting = self._groups.get(message.group)
        if waiting is None:
            waiting = []
            self._groups[message.group] = waiting
        elif len(waiting) >= HELD_GROUP_MESSAGES_MAX:
            return
        waiting.append(message)
        self.count += 1
        self.size += message_bytes(message)
        while self.count > HELD_MESSAGES_MAX or self.size > HELD_BYTES_MAX:
            self.take(next(iter(self._groups)))

    def drop_from(self, node: i64) -> None:
        """Drop what a node sent that is down now.

        Its call for silence, taken after the report that it is down, would silence a group whose
        leader is gone.
        """
        for group in list(self._groups):
            waiting = self.take(group)
            for message in waiting:
                if member_node(message.source) != node:
                    self.hold(message)

    def take(self, group: i64) -> list[Message]:
        """Return the messages held for a group, oldest first, and hold them no longer."""
        waiting = self._groups.pop(group, None)
        if waiting is None:
            return []
        self.count -= len(waiting)
        for message in waiting:
            self.size -= message_bytes(message)
        return waiting
