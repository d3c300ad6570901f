"""Effects of a queue: plain values, in the order in which they happened.

Every replica computes the same effects; only the leader's host acts on those for sessions.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

STATUS_OK: Final = 0
STATUS_EXCLUSIVE_IN_USE: Final = 1  # this or another consumer is to be the only one
STATUS_ALREADY: Final = 2  # the session has a consumer of that number

LANE_PUBLISH: Final = 1
LANE_CONTROL: Final = 2

REASON_REJECTED: Final = 1
REASON_EXPIRED: Final = 2
REASON_MAXLEN: Final = 3
REASON_DELIVERY_LIMIT: Final = 4

REASON_NAMES: Final = {
    REASON_REJECTED: "rejected",
    REASON_EXPIRED: "expired",
    REASON_MAXLEN: "maxlen",
    REASON_DELIVERY_LIMIT: "delivery_limit",
}

REFUSED_OVERFLOW: Final = 1  # the queue is full
REFUSED_NO_CONSUMER: Final = 2  # of ENQUEUE_NOW: no consumer can take it at once
REFUSED_FENCED: Final = 3  # its publisher has published under a later epoch since


@mypyc_attr(acyclic=True)
@final
class Acquired:
    """One message that is told apart from its batch: taken out of it, or waiting on its own."""

    def __init__(
        self,
        message_id: i64,
        entry_index: i64,
        position: i64,
        byte_count: i64,
        acquired_count: i64,
        delivery_count: i64,
    ) -> None:
        self.message_id = message_id  # ascends in the order of arrival at the queue, from 1
        self.entry_index = entry_index  # log position of the ENQUEUE command that holds its bytes
        self.position = position  # which message of that command's batch, from 0
        self.byte_count = byte_count  # size of its body
        self.acquired_count = acquired_count  # how often it was acquired before this time
        self.delivery_count = delivery_count  # how many of those deliveries failed
        self.arrived_ms: i64 = 0  # time stamp of its ENQUEUE
        self.expires_ms: i64 = 0  # when it stops waiting, 0 for never
        self.priority: i64 = 0  # 0 to PRIORITY_MAX
        self.acquired_ms: i64 = 0  # when it was acquired last, 0 for never
        self.due_ms: i64 = 0  # when it is to become available, 0 for when it came
        self.key = b""  # of the header by which it is kept apart (`QueueSettings`), or b""

    def __repr__(self) -> str:
        return (
            f"Acquired(#{self.message_id} at {self.entry_index}/{self.position}, {self.byte_count}B"
            f", acquired {self.acquired_count}, failed {self.delivery_count})"
        )


@mypyc_attr(acyclic=True)
class Effect:
    """Base of everything that `QueueMachine.apply` returns."""

    def __repr__(self) -> str:
        names = getattr(type(self), "__mypyc_attrs__", None)  # None where it is not compiled
        values = (repr(getattr(self, name)) for name in (vars(self) if names is None else names))
        return f"{type(self).__name__}({', '.join(values)})"


@mypyc_attr(acyclic=True)
@final
class Enqueued(Effect):
    """Every message of the session's publish lane up to and with `seq` is in the queue or was."""

    def __init__(self, session: i64, seq: i64) -> None:
        self.session = session
        self.seq = seq


@mypyc_attr(acyclic=True)
@final
class ConfirmsDeferred(Effect):
    """Defer confirms of these publishes, which the next Enqueued covers: they are in the queue.

    The queue holds too much. Each of them is completed by a Completed, or when the session asks.
    """

    def __init__(self, session: i64, rows: list[int]) -> None:
        self.session = session  # whose publishes
        self.rows = rows  # their numbers as in `Ranges.bounds`, at least one row


@mypyc_attr(acyclic=True)
@final
class Completed(Effect):
    """Publishes that were deferred are complete: they left the queue, or it has drained."""

    def __init__(self, session: i64, rows: list[int]) -> None:
        self.session = session  # whose publishes
        self.rows = rows  # their numbers, as of ConfirmsDeferred but in any order


@final
class PublishRejected(Effect):
    """Messages `first` to `last` of the session's publish lane were refused and are not here.

    Comes before the Enqueued that covers them, again when their command is repeated.
    """

    def __init__(self, session: i64, first: i64, last: i64, why: i64) -> None:
        self.session = session  # whose publishes
        self.first = first  # number of the first one
        self.last = last  # of the last one, inclusive
        self.why = why  # a REFUSED constant


@mypyc_attr(acyclic=True)
@final
class DeadLettered(Effect):
    """Messages leave the queue for its dead-letter exchange, at most once.

    Their bodies are to be read now: an EntryDead may follow.
    """

    def __init__(self, messages: list[Acquired], reason: i64) -> None:
        self.messages = messages  # at least one
        self.reason = reason  # a REASON constant

    def __repr__(self) -> str:
        return f"DeadLettered({self.messages!r}, {REASON_NAMES[int(self.reason)]})"


@mypyc_attr(acyclic=True)
@final
class DeadLetterKept(Effect):
    """Messages are to go to the dead-letter exchange and are kept until FORGET; as DeadLettered."""

    def __init__(self, messages: list[Acquired], reason: i64) -> None:
        self.messages = messages
        self.reason = reason

    def __repr__(self) -> str:
        return f"DeadLetterKept({self.messages!r}, {REASON_NAMES[int(self.reason)]})"


@final
class TimedOut(Effect):
    """A consumer left a delivery unsettled for too long: it was cancelled, its messages are back.

    Consumer 0 stands for what GET acquired.
    """

    def __init__(self, session: i64, consumer: i64) -> None:
        self.session = session
        self.consumer = consumer


@mypyc_attr(acyclic=True)
@final
class Controlled(Effect):
    """A control command is applied."""

    def __init__(self, session: i64, seq: i64, status: i64, count: i64) -> None:
        self.session = session  # whose command
        self.seq = seq  # its number on the control lane; 0 for CLOSE, which has none
        self.status = status  # one of the STATUS constants
        # SETTLE: messages settled; CANCEL: messages still unsettled; PURGE: messages removed;
        # CLOSE: messages released; otherwise 0. For a repeated SETTLE, ATTACH or CANCEL: 0.
        self.count = count


@mypyc_attr(acyclic=True)
@final
class Deliver(Effect):
    """Messages acquired for one consumer, numbered from `first` without a gap; at least one."""

    def __init__(self, session: i64, consumer: i64, first: i64, messages: list[Acquired]) -> None:
        self.session = session
        self.consumer = consumer
        self.first = first
        self.messages = messages


@mypyc_attr(acyclic=True)
@final
class Got(Effect):
    """The answer to a GET."""

    def __init__(
        self, session: i64, seq: i64, message: Acquired | None, delivery: i64, ready_left: i64
    ) -> None:
        self.session = session  # who asked
        self.seq = seq  # number of the GET on the control lane
        self.message = message  # what was acquired for consumer 0 of the session, or None
        self.delivery = delivery  # its delivery number, 0 for none
        self.ready_left = ready_left  # messages left in the ready list


@final
class Gap(Effect):
    """Report a gap before this command of `lane`; the session resends from number `expected`."""

    def __init__(self, session: i64, lane: i64, expected: i64) -> None:
        self.session = session
        self.lane = lane
        self.expected = expected


@final
class Detached(Effect):
    """A consumer of a suspected node was given up; it may attach again under its number."""

    def __init__(self, session: i64, consumer: i64) -> None:
        self.session = session
        self.consumer = consumer


@mypyc_attr(acyclic=True)
@final
class EntryDead(Effect):
    """Report that nothing of the log entry `index` is needed any more, exactly once per entry."""

    def __init__(self, index: i64) -> None:
        self.index = index


class GroupAnswer(Effect):
    """Base of what a queue answers to groups."""

    def __init__(self, request: i64) -> None:
        self.request = request  # of the command, names who asked


@final
class Unused(Effect):
    """The last consumer, attached or detached, has gone (for queues that delete themselves)."""


@final
class Rejected(Effect):
    """The entry could not be understood and changed nothing; `reason` is for people."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
