"""Sessions of channels at a queue: numbers of their lanes, kept answers, deferred confirms."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import NUMBER_MAX
from headrace_broker.core.queue.messages.effect import STATUS_OK, PublishRejected
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.model.limits import ANSWERS_KEPT_MAX, REFUSALS_KEPT_MAX
from headrace_broker.model.ranges import Ranges


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
