"""Messages that leave a queue are counted at its leader."""

from __future__ import annotations

from tests.broker.core.conftest import ANNA, QueueLog

from headrace_broker.core.queue.command.command import REJECT
from headrace_broker.core.queue.messages.effect import (
    REASON_DELIVERY_LIMIT,
    REASON_EXPIRED,
    REASON_MAXLEN,
    REASON_REJECTED,
)
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_AT_MOST_ONCE,
    OVERFLOW_REJECT_PUBLISH,
    OVERFLOW_REJECT_PUBLISH_DLX,
)
from headrace_broker.core.queue.state.tally import Tally

PLAIN = (b"\x00\x00", b"12345678")
NONE = {REASON_REJECTED: 0, REASON_EXPIRED: 0, REASON_MAXLEN: 0, REASON_DELIVERY_LIMIT: 0}


def test_a_replica_counts_only_what_is_let_go_while_it_leads(queue: QueueLog) -> None:
    tally = Tally()
    queue.configure(max_length=1)
    queue.publish(PLAIN, PLAIN)
    queue.machine.count_into(tally)
    queue.publish(PLAIN, PLAIN)
    queue.configure(max_length=1, dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    queue.publish(PLAIN)
    queue.configure(max_length=1, dead_letter=DEAD_LETTER_AT_LEAST_ONCE)
    queue.publish(PLAIN)
    queue.machine.count_into(None)
    queue.publish(PLAIN)
    assert tally.dropped == NONE | {REASON_MAXLEN: 2}
    assert tally.lettered == NONE | {REASON_MAXLEN: 2}


def test_each_reason_is_counted_on_its_own(queue: QueueLog) -> None:
    tally = Tally()
    queue.machine.count_into(tally)
    queue.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE, message_ttl_ms=1000)
    queue.attach(ANNA, 1, 1, 1)
    queue.publish(PLAIN, PLAIN, PLAIN)
    queue.settle(ANNA, 2, REJECT, (1, 1, 1))
    queue.tick(after_ms=5000)
    assert tally.lettered == NONE | {REASON_REJECTED: 1, REASON_EXPIRED: 1}


def test_what_is_refused_is_counted_where_it_is_a_dead_letter(queue: QueueLog) -> None:
    tally = Tally()
    queue.machine.count_into(tally)
    dead_letters = {"max_length": 1, "dead_letter": DEAD_LETTER_AT_MOST_ONCE}
    queue.configure(**dead_letters, overflow=OVERFLOW_REJECT_PUBLISH)
    queue.publish(PLAIN, PLAIN)
    assert tally.lettered == tally.dropped == NONE
    queue.configure(**dead_letters, overflow=OVERFLOW_REJECT_PUBLISH_DLX)
    queue.publish(PLAIN, PLAIN)
    assert tally.lettered == NONE | {REASON_MAXLEN: 2}
    queue.machine.count_into(None)
    queue.publish(PLAIN)
    assert tally.lettered == NONE | {REASON_MAXLEN: 2}
    assert tally.dropped == NONE
