"""Account that is charged for dead messages: that of the session whose command made them."""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    ACQUIRE,
    CONFIGURE,
    ENQUEUE,
    ENQUEUE_BATCH_OFFSET,
    ENQUEUE_SEQ_OFFSET,
    ENQUEUE_SESSION_OFFSET,
    FORGET,
    NODE_DOWN,
    STAMP_BYTES,
    TICK,
)
from headrace_broker.core.queue.messages.effect import REASON_EXPIRED
from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.limits import DEAD_LETTER_COMMANDS_MAX
from headrace_broker.model.session import tells_deaths

EXPIRY_CAUSE: Final = 1  # instead of a session id: time, or a limit that was lowered


@final
class DeadLetterCauses:
    """Finds the causes of what dies in one queue, at its leader.

    What clients do names its session. What a node publishes is on behalf of others, of whom it
    tells beside the command: that is remembered until the command is applied, and not replicated.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], list[int]] = {}  # by session and number of first message

    def note(self, session: int, data: bytes, causes: list[int]) -> None:
        """Remember the causes of a command without its stamp; beyond the bound, of none older."""
        if not causes or len(data) < ENQUEUE_SEQ_OFFSET:
            return  # it has none; or the machine says what is wrong with it
        key = (session, int(read_i64_be(data, ENQUEUE_SEQ_OFFSET - STAMP_BYTES)))
        self._told.pop(key, None)
        self._told[key] = causes
        if len(self._told) > DEAD_LETTER_COMMANDS_MAX:
            del self._told[next(iter(self._told))]

    def applied(self, data: bytes) -> None:
        """Forget the causes of a command that was applied."""
        if self._told and len(data) >= ENQUEUE_BATCH_OFFSET and data[STAMP_BYTES] == ENQUEUE:
            self._told.pop(_key(data), None)

    def of(self, data: bytes, reason: i64, count: i64) -> list[int]:
        """Return who caused each of so many messages to die: a session, or a *_CAUSE."""
        kind: i64 = data[STAMP_BYTES]
        if reason == REASON_EXPIRED or kind in (TICK, CONFIGURE, ACQUIRE, FORGET):
            return [EXPIRY_CAUSE] * count
        if kind == NODE_DOWN:
            return [NO_CAUSE] * count
        session = int(read_i64_be(data, ENQUEUE_SESSION_OFFSET))
        if kind == ENQUEUE and tells_deaths(session):
            return _spread(self._told.get(_key(data), []), count)
        return [session] * count


def _key(data: bytes) -> tuple[int, int]:
    session = int(read_i64_be(data, ENQUEUE_SESSION_OFFSET))
    return session, int(read_i64_be(data, ENQUEUE_SEQ_OFFSET))


def _spread(runs: list[int], count: i64) -> list[int]:
    """Return the causes of `count` messages that had to go for those of a command.

    The last of those that arrived is charged for the last that went, and so on.
    """
    causes: list[int] = []
    place = len(runs) - 2
    while place >= 0 and len(causes) < count:
        causes.extend([runs[place + 1]] * min(runs[place], int(count) - len(causes)))
        place -= 2
    causes.extend([NO_CAUSE] * (int(count) - len(causes)))
    causes.reverse()
    return causes
