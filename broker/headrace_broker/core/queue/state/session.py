"""State of a session and its consumers at a queue."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import NUMBER_MAX
from headrace_broker.core.queue.messages.effect import STATUS_OK, Acquired, PublishRejected
from headrace_broker.model.limits import ANSWERS_KEPT_MAX, REFUSALS_KEPT_MAX
from headrace_broker.model.ranges import Ranges

ATTACHED: Final = 1
DETACHED: Final = 2  # its node is suspected; may attach again
CANCELLED: Final = 3  # gets no more; stays while it has unsettled messages
GETTER: Final = 4  # consumer 0, holder of what GET acquired; never gets a delivery

GET_CONSUMER: Final = 0


@final
class Consumer:
    """A receiver of deliveries, which are numbered 1, 2, 3 and so on."""

    def __init__(self, session: i64, number: i64) -> None:
        self.session = session  # id of its session
        self.number = number  # in the session, from 1; GET_CONSUMER holds what GET acquired
        self.tag = b""  # for listings
        self.prefetch: i64 = 0  # most unsettled messages it may have
        self.exclusive = False  # no other consumer may attach
        # ATTACHED, DETACHED, CANCELLED or GETTER
        self.state: i64 = GETTER if number == GET_CONSUMER else CANCELLED
        self.next_delivery: i64 = 1  # number of its next delivery; goes on after a detachment
        self.unsettled: dict[int, Acquired] = {}  # delivery number -> message, ascending
        self.waiting = False  # has its place in the rotation
        self.fresh: list[Acquired] = []  # that the current command acquired for it
        self.filtered = False  # gets only what ACQUIRE names; never stands in the rotation
        self.priority: i64 = 0  # those with a higher one are served first
        self.prefetch_bytes: i64 = 0  # most bytes unsettled (but for one message), 0 for any
        self.byte_count: i64 = 0  # of the bodies that it has unsettled
        self.timeout_ms: i64 = 0  # most time that a delivery may stay unsettled, 0 for the queue's
        self.arrival: i64 = 0  # number of its attachment; decides who becomes the active one
        self.places: list[tuple[int, bytes]] = []  # groups that are its own, see `groups`; a heap

    def credit(self) -> i64:
        """Return how many messages it may get now, 0 or more."""
        if self.state != ATTACHED or (self.byte_count >= self.prefetch_bytes > 0):
            return 0
        return max(self.prefetch - len(self.unsettled) - len(self.fresh), 0)


@final
class ConsumerInfo:
    """A consumer for listings; see `Consumer` for the fields."""

    def __init__(self, consumer: Consumer) -> None:
        self.session = consumer.session
        self.number = consumer.number
        self.tag = consumer.tag
        self.prefetch = consumer.prefetch
        self.unsettled_count: i64 = len(consumer.unsettled)
        self.priority = consumer.priority
        self.filtered = consumer.filtered
        self.exclusive = consumer.exclusive
        self.attached = consumer.state == ATTACHED


@final
class Answer:
    """Answer to a control command, kept for its repetition."""

    def __init__(self, seq: i64, status: i64, count: i64, delivery: i64) -> None:
        self.seq = seq  # number on the control lane
        self.status = status  # one of the STATUS constants
        self.count = count  # as in `Controlled`
        self.delivery = delivery  # GET: the delivery number, else 0


@final
class DeferredCommand:
    """Messages of one ENQUEUE that wait for their completion."""

    def __init__(self, session: Session, base: i64) -> None:
        self.session = session  # whose publishes
        self.base = base  # number on its publish lane of the message at position 0
        self.seqs = Ranges()  # their numbers


@final
class Session:
    """One channel's conversation with the queue."""

    def __init__(self, number: i64) -> None:
        self.number = number  # the session id
        self.publish_seq: i64 = 0  # number of the last message enqueued
        self.control_seq: i64 = 0  # number of the last control command applied
        self.consumers: dict[int, Consumer] = {}  # by number, in order of attachment
        self.answers: deque[Answer] = deque()  # newest that say more than "ok"
        self.refusals: deque[PublishRejected] = deque()  # newest, REFUSALS_KEPT_MAX at most
        self.deferred: dict[int, DeferredCommand] = {}  # its commands with deferred confirms

    def deferred_from(self, first: i64) -> list[int]:
        """Return deferred confirms from publish `first` on, in rows (see `Ranges.bounds`)."""
        later: list[DeferredCommand] = []
        for command in reversed(self.deferred.values()):  # of thousands mostly the last one
            if command.seqs.bounds[-1] <= first:
                break
            later.append(command)
        rows = Ranges()
        for command in reversed(later):
            seqs = command.seqs.cut(first, NUMBER_MAX)
            for at in range(0, len(seqs), 2):
                rows.append(seqs[at], seqs[at + 1])
        return rows.bounds

    def keep_refusal(self, refusal: PublishRejected) -> None:
        """Remember that publishes were refused, for the repetition of their command."""
        self.refusals.append(refusal)
        if len(self.refusals) > REFUSALS_KEPT_MAX:
            self.refusals.popleft()

    def keep_answer(self, status: i64, count: i64, delivery: i64) -> None:
        """Remember the answer to the command that was just applied."""
        self.answers.append(Answer(self.control_seq, status, count, delivery))
        if len(self.answers) > ANSWERS_KEPT_MAX:
            self.answers.popleft()

    def answer(self, seq: i64) -> Answer:
        """Return the answer to an earlier command; plain "ok" where nothing else is remembered."""
        for answer in self.answers:
            if answer.seq == seq:
                return answer
        return Answer(seq, STATUS_OK, 0, 0)
