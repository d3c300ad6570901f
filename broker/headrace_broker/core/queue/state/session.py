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
    """A receiver of deliveries, which are numbered 1, 2, 3 and so on.

    Attributes:
        session: id of its session.
        number: within the session, from 1; GET_CONSUMER for the holder of what GET acquired.
        tag: for listings.
        prefetch: most unsettled messages it may have.
        exclusive: no other consumer may attach.
        state: ATTACHED, DETACHED, CANCELLED or GETTER.
        next_delivery: number of its next delivery; goes on where it was after a detachment.
        unsettled: delivery number -> message, ascending.
        waiting: has its place in the rotation.
        fresh: what the current command acquired for it; empty between commands.
        filtered: gets only what ACQUIRE names; never stands in the rotation.
        priority: those with a higher one are served first.
        prefetch_octets: most octets it may have unsettled (one message may exceed it), 0 for any.
        octets: of the bodies that it has unsettled.
        timeout_ms: most time that a delivery may stay unsettled, 0 for the queue's.
        arrival: counts the queue's attachments; decides who becomes the single active consumer.
        places: groups that are its own, see `groups`; a heap.
    """

    def __init__(self, session: i64, number: i64) -> None:
        self.session = session
        self.number = number
        self.tag = b""
        self.prefetch: i64 = 0
        self.exclusive = False
        self.state: i64 = GETTER if number == GET_CONSUMER else CANCELLED
        self.next_delivery: i64 = 1
        self.unsettled: dict[int, Acquired] = {}
        self.waiting = False
        self.fresh: list[Acquired] = []
        self.filtered = False
        self.priority: i64 = 0
        self.prefetch_octets: i64 = 0
        self.octets: i64 = 0
        self.timeout_ms: i64 = 0
        self.arrival: i64 = 0
        self.places: list[tuple[int, bytes]] = []

    def credit(self) -> i64:
        """Return how many messages it may get now, 0 or more."""
        if self.state != ATTACHED or (self.octets >= self.prefetch_octets > 0):
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
    """Answer to a control command, kept for its repetition.

    Attributes:
        seq: number on the control lane.
        status: one of the STATUS constants.
        count: as in `Controlled`.
        delivery: GET: the delivery number, else 0.
    """

    def __init__(self, seq: i64, status: i64, count: i64, delivery: i64) -> None:
        self.seq = seq
        self.status = status
        self.count = count
        self.delivery = delivery


@final
class WithheldCommand:
    """Messages of one ENQUEUE that wait for their completion.

    Attributes:
        session: whose publishes.
        base: number on its publish lane of the message at position 0.
        seqs: their numbers.
    """

    def __init__(self, session: Session, base: i64) -> None:
        self.session = session
        self.base = base
        self.seqs = Ranges()


@final
class Session:
    """One channel's conversation with the queue.

    Attributes:
        number: the session id.
        publish_seq: number of the last message enqueued.
        control_seq: number of the last control command applied.
        consumers: by number, in the order of their first attachment.
        answers: the newest that say more than "ok"; at most ANSWERS_KEPT_MAX.
        refusals: the newest ranges of publishes that were refused; at most REFUSALS_KEPT_MAX.
        withheld: those of its commands, by log position, of which confirms are withheld.
    """

    def __init__(self, number: i64) -> None:
        self.number = number
        self.publish_seq: i64 = 0
        self.control_seq: i64 = 0
        self.consumers: dict[int, Consumer] = {}
        self.answers: deque[Answer] = deque()
        self.refusals: deque[PublishRejected] = deque()
        self.withheld: dict[int, WithheldCommand] = {}

    def withheld_from(self, first: i64) -> list[int]:
        """Return deferred confirms from publish `first` on, in rows (see `Ranges.bounds`)."""
        later: list[WithheldCommand] = []
        for command in reversed(self.withheld.values()):  # of thousands mostly the last one
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
