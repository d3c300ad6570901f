"""Confirms that a queue defers, and when it gives them."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, BERT, QueueLog, batch, properties, rich_batch

from headrace_broker.core.queue.command import command, leader_command
from headrace_broker.core.queue.command.command import ACCEPT, REJECT, RELEASE
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Completed, ConfirmsDeferred, Effect, Enqueued
from headrace_broker.core.queue.messages.settings import (
    QueueSettings,
    decode_settings,
    encode_settings,
)
from headrace_broker.model.limits import DEFERRED_MESSAGES_MAX

Told = list[tuple[str, int, list[int]]]


def publish(queue: QueueLog, session: int, seq: int, *sizes: int) -> list[Effect]:
    """Enqueue messages of a publisher that waits for confirms."""
    return queue.apply(command.encode_enqueue(session, seq, batch(*map(bytes, sizes)), True))


def told(effects: list[Effect]) -> Told:
    """Return effects on confirms: ("deferred" | "enqueued" | "completed", session, numbers)."""
    found: Told = []
    for effect in effects:
        if isinstance(effect, Enqueued):
            found.append(("enqueued", effect.session, [effect.seq]))
        elif isinstance(effect, ConfirmsDeferred | Completed):
            name = "deferred" if isinstance(effect, ConfirmsDeferred) else "completed"
            rows = zip(effect.rows[::2], effect.rows[1::2], strict=True)
            found.append((name, effect.session, sorted(n for row in rows for n in range(*row))))
    return found


def marks(queue: QueueLog) -> tuple[bool, int]:
    """Return whether the queue is saturated, and the number of ready messages."""
    return queue.machine.saturated, queue.machine.deferred_count


@pytest.fixture
def marked(queue: QueueLog) -> QueueLog:
    """A queue that may hold 3 messages, and gives confirms again at 1; ANNA can take 100."""
    queue.configure(high_watermark=3, low_watermark=1)
    queue.attach(ANNA, 1, 1, 100)
    return queue


def test_what_exceeds_the_mark_is_deferred_message_by_message(marked: QueueLog) -> None:
    assert told(publish(marked, BERT, 1, 0, 0)) == [("enqueued", BERT, [2])]
    effects = publish(marked, BERT, 3, 0, 0, 0)
    assert told(effects) == [("deferred", BERT, [4, 5]), ("enqueued", BERT, [5])]
    assert marked.machine.saturated
    assert marked.machine.deferred_count == 2
    assert told(publish(marked, BERT, 6, 0)) == [("deferred", BERT, [6]), ("enqueued", BERT, [6])]


def test_what_leaves_is_complete_while_the_queue_stays_saturated(marked: QueueLog) -> None:
    publish(marked, BERT, 1, *[0] * 8)
    assert told(marked.settle(ANNA, 2, ACCEPT, (1, 5, 5), (1, 7, 7))) == [
        ("completed", BERT, [5, 7])
    ]
    assert told(marked.settle(ANNA, 3, ACCEPT, (1, 1, 2))) == []  # they were confirmed before
    assert marks(marked) == (True, 3)
    assert told(marked.settle(ANNA, 4, ACCEPT, (1, 3, 4), (1, 6, 6))) == [
        ("completed", BERT, [4, 6, 8])
    ]
    assert marks(marked) == (False, 0)


def test_each_session_is_told_of_its_own(marked: QueueLog) -> None:
    publish(marked, BERT, 1, 0, 0, 0, 0)
    publish(marked, ANNA, 1, 0)
    publish(marked, BERT, 5, 0)
    effects = marked.settle(ANNA, 2, ACCEPT, (1, 1, 5))
    assert told(effects) == [("completed", BERT, [4, 5]), ("completed", ANNA, [1])]


def test_message_that_comes_back_is_not_complete(marked: QueueLog) -> None:
    publish(marked, BERT, 1, *[0] * 4)
    assert told(marked.settle(ANNA, 2, RELEASE, (1, 1, 4))) == []
    assert marked.machine.deferred_count == 1


def test_bytes_count_as_messages_do(queue: QueueLog) -> None:
    queue.configure(high_watermark_bytes=100, low_watermark_bytes=40)
    queue.attach(ANNA, 1, 1, 100)
    assert told(publish(queue, BERT, 1, 60, 40, 1, 0)) == [
        ("deferred", BERT, [3, 4]),
        ("enqueued", BERT, [4]),
    ]
    assert told(queue.settle(ANNA, 2, ACCEPT, (1, 1, 1))) == []
    assert told(queue.settle(ANNA, 3, ACCEPT, (1, 3, 3))) == [("completed", BERT, [3, 4])]


def test_both_marks_have_to_be_kept(queue: QueueLog) -> None:
    queue.configure(
        high_watermark=4, low_watermark=2, high_watermark_bytes=100, low_watermark_bytes=60
    )
    queue.attach(ANNA, 1, 1, 100)
    publish(queue, BERT, 1, 90, 5, 5, 5)
    assert queue.machine.saturated
    queue.settle(ANNA, 2, ACCEPT, (1, 1, 1))
    assert queue.machine.saturated  # three messages are too many still
    assert told(queue.settle(ANNA, 3, ACCEPT, (1, 2, 2))) == [("completed", BERT, [4])]


def test_publisher_without_confirms_saturates_the_queue_and_hears_nothing(marked: QueueLog) -> None:
    assert told(marked.enqueue(BERT, 1, 9)) == [("enqueued", BERT, [9])]
    assert (marked.machine.saturated, marked.machine.deferred_count) == (True, 0)
    effects = publish(marked, ANNA, 1, 0)
    assert told(effects) == [("deferred", ANNA, [1]), ("enqueued", ANNA, [1])]


def test_repeated_command_is_told_again_what_is_deferred_of_it_now(marked: QueueLog) -> None:
    publish(marked, BERT, 1, 0, 0)
    publish(marked, BERT, 3, 0, 0, 0)
    again = [("deferred", BERT, [4, 5]), ("enqueued", BERT, [5])]
    assert told(publish(marked, BERT, 3, 0, 0, 0)) == again
    assert told(publish(marked, BERT, 1, 0, 0)) == again  # it is answered for all
    # With one more message behind those that are known.
    effects = publish(marked, BERT, 4, 0, 0, 0)
    assert told(effects) == [("deferred", BERT, [4, 5, 6]), ("enqueued", BERT, [6])]
    marked.settle(ANNA, 2, ACCEPT, (1, 4, 4))
    assert told(publish(marked, BERT, 3, 0, 0, 0)) == [
        ("deferred", BERT, [5, 6]),
        ("enqueued", BERT, [6]),
    ]
    assert marked.machine.deferred_of(BERT) == (6, [5, 7])


def test_session_that_is_not_known_has_nothing_deferred(marked: QueueLog) -> None:
    assert marked.machine.deferred_of(BERT) == (command.NUMBER_MAX, [])


def test_queue_drained_by_expiry_before_the_publish_comes_defers_nothing(marked: QueueLog) -> None:
    marked.configure(message_ttl_ms=10)
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    publish(marked, BERT, 1, *[0] * 5)
    marked.now_ms += 20
    assert told(publish(marked, BERT, 6, 0)) == [
        ("enqueued", BERT, [6]),
        ("completed", BERT, [4, 5]),
    ]


def test_expired_messages_are_complete(marked: QueueLog) -> None:
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    block = properties(expiration=10)
    old, new = (b"\x00\x00", b""), (block, b"")
    encoded = command.encode_enqueue(BERT, 1, rich_batch(old, old, old, old, new, new), True)
    assert told(marked.apply(encoded))[0] == ("deferred", BERT, [4, 5, 6])
    assert told(marked.tick(20)) == [("completed", BERT, [5, 6])]


def test_oldest_that_a_full_queue_drops_is_complete(marked: QueueLog) -> None:
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    marked.configure(max_length=5)
    publish(marked, BERT, 1, *[0] * 5)
    effects = publish(marked, BERT, 6, 0, 0, 0, 0)  # 1 to 4 go
    assert told(effects) == [
        ("deferred", BERT, [6, 7, 8, 9]),
        ("enqueued", BERT, [9]),
        ("completed", BERT, [4]),
    ]


def test_queue_that_drops_its_oldest_below_the_mark_is_never_saturated(marked: QueueLog) -> None:
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    marked.configure(max_length=2)
    assert told(publish(marked, BERT, 1, *[0] * 9)) == [("enqueued", BERT, [9])]
    assert not marked.machine.saturated


def test_refused_publishes_are_not_deferred(marked: QueueLog) -> None:
    marked.configure(max_length=5, overflow=1)
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    effects = publish(marked, BERT, 1, *[0] * 9)
    assert told(effects) == [("deferred", BERT, [4, 5]), ("enqueued", BERT, [9])]


def test_duplicate_that_is_dropped_is_not_deferred(marked: QueueLog) -> None:
    marked.configure(deduplicate=True, dedup_count=100)
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    publish(marked, BERT, 1, 0, 0, 0)
    names = [(properties(headers={b"x-deduplication-header": n}), b"") for n in (1, 1, 2)]
    effects = marked.apply(command.encode_enqueue(BERT, 4, rich_batch(*names), True))
    assert told(effects) == [("deferred", BERT, [4, 6]), ("enqueued", BERT, [6])]


def test_replaced_value_is_complete(marked: QueueLog) -> None:
    marked.configure(last_value_key=b"last")
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    publish(marked, BERT, 1, 0, 0, 0)
    value = (properties(headers={b"last": 1}), b"")
    encoded = command.encode_enqueue(BERT, 4, rich_batch(value, value), True)
    assert told(marked.apply(encoded))[0] == ("deferred", BERT, [5])
    encoded = command.encode_enqueue(BERT, 6, rich_batch(value), True)
    assert told(marked.apply(encoded)) == [
        ("deferred", BERT, [6]),
        ("enqueued", BERT, [6]),
        ("completed", BERT, [5]),
    ]


def test_delayed_message_is_held(marked: QueueLog) -> None:
    late = (properties(headers={b"x-delay": 50}), b"")
    encoded = command.encode_enqueue(BERT, 1, rich_batch(*[late] * 5), True)
    assert told(marked.apply(encoded))[0] == ("deferred", BERT, [4, 5])
    assert told(marked.tick(60)) == []  # they are delivered now
    assert told(marked.settle(ANNA, 2, ACCEPT, (1, 5, 5))) == [("completed", BERT, [5])]


def test_dead_letter_that_is_kept_is_held_until_it_arrived(marked: QueueLog) -> None:
    marked.configure(dead_letter=2, overflow=1)
    publish(marked, BERT, 1, *[0] * 5)
    assert told(marked.settle(ANNA, 2, REJECT, (1, 1, 5))) == []
    assert marked.machine.saturated
    forget = leader_command.encode_forget
    assert told(marked.apply(forget([5]))) == [("completed", BERT, [5])]
    assert told(marked.apply(forget([1, 2, 3]))) == [("completed", BERT, [4])]


@pytest.mark.parametrize("left", [1, 4])
def test_purge_completes_what_it_removes(marked: QueueLog, left: int) -> None:
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    for number in range(left):
        publish(marked, ANNA, number + 1, 0)
        marked.apply(command.encode_get(ANNA, number + 3))
    publish(marked, BERT, 1, *[0] * 7)
    deferred = list(range(4 - left if left < 4 else 1, 8))
    effects = marked.apply(command.encode_purge(ANNA, left + 3))
    assert told(effects) == [("completed", BERT, deferred)]
    assert marked.machine.saturated == (left == 4)


def test_removed_messages_are_complete(marked: QueueLog) -> None:
    marked.apply(command.encode_cancel(ANNA, 2, 1))
    publish(marked, BERT, 1, *[0] * 6)
    assert told(marked.apply(command.encode_remove(ANNA, 3, [1, 6]))) == [("completed", BERT, [6])]


def test_session_that_ends_waits_for_nothing(marked: QueueLog) -> None:
    publish(marked, BERT, 1, *[0] * 6)
    assert told(marked.apply(command.encode_close(BERT))) == []
    assert (marked.machine.saturated, marked.machine.deferred_count) == (True, 0)
    assert told(marked.settle(ANNA, 2, ACCEPT, (1, 1, 6))) == []
    assert not marked.machine.saturated


def test_suspected_node_may_come_back_for_its_confirms(marked: QueueLog) -> None:
    publish(marked, BERT, 1, *[0] * 6)
    marked.apply(command.encode_node_down(2, 0))
    assert marked.machine.deferred_of(BERT) == (6, [4, 7])
    marked.apply(command.encode_node_down(2, 9))
    assert marked.machine.deferred_count == 0


def test_marks_that_change_count_at_once(queue: QueueLog) -> None:
    publish(queue, BERT, 1, *[0] * 5)
    assert told(queue.configure(high_watermark=3, low_watermark=2)) == []
    assert queue.machine.saturated
    publish(queue, BERT, 6, 0)
    assert queue.machine.deferred_count == 1
    assert told(queue.configure(high_watermark=100, low_watermark=5)) == []  # 6 are above 5
    assert told(queue.configure(high_watermark=100, low_watermark=6)) == [("completed", BERT, [6])]
    queue.configure(high_watermark=3, low_watermark=2)
    publish(queue, BERT, 7, 0)
    assert told(queue.configure(high_watermark=0, low_watermark=0)) == [("completed", BERT, [7])]
    assert not queue.machine.saturated


def test_oldest_are_complete_when_too_many_wait(marked: QueueLog) -> None:
    publish(marked, BERT, 1, 0, 0, 0)
    mark = marked.machine._state.watermark
    publish(marked, BERT, 4, 0, 0)
    publish(marked, ANNA, 1, 0)
    mark.count += DEFERRED_MESSAGES_MAX - 3  # as if so many more waited
    assert told(publish(marked, BERT, 6, 0)) == [
        ("deferred", BERT, [6]),
        ("enqueued", BERT, [6]),
        ("completed", BERT, [4, 5]),
    ]


def test_immediate_publishes_are_not_deferred(marked: QueueLog) -> None:
    publish(marked, BERT, 1, *[0] * 4)
    encoded = command.encode_enqueue_now(ANNA, 1, batch(b"", b""))
    assert told(marked.apply(encoded)) == [("enqueued", ANNA, [2])]


def test_snapshot_goes_on_where_it_was(marked: QueueLog) -> None:
    publish(marked, BERT, 1, *[0] * 6)
    publish(marked, ANNA, 1, 0, 0)
    marked.settle(ANNA, 2, ACCEPT, (1, 5, 5))
    restored = QueueMachine.restore(marked.machine.snapshot())
    assert restored.saturated
    assert restored.deferred_count == marked.machine.deferred_count == 4
    assert restored.deferred_of(BERT) == (6, [4, 5, 6, 7])
    assert restored.deferred_of(ANNA) == (2, [1, 3])
    assert restored.digest() == marked.machine.digest()
    marked.machine = restored
    assert told(marked.settle(ANNA, 3, ACCEPT, (1, 1, 8))) == [
        ("completed", BERT, [4, 6]),
        ("completed", ANNA, [1, 2]),
    ]


def test_snapshot_of_a_queue_that_is_not_saturated_is_as_it_was_before(queue: QueueLog) -> None:
    queue.enqueue(BERT, 1, 3)
    assert queue.machine.snapshot()[0] == 2
    queue.configure(high_watermark=1, low_watermark=1)
    assert queue.machine.snapshot()[0] == 3


def test_settings_of_before_have_no_marks() -> None:
    settings = decode_settings(encode_settings(QueueSettings()))
    assert settings is not None
    assert (settings.high_watermark, settings.high_watermark_bytes) == (0, 0)
