"""Long queues: batches packed into bytes, and messages taken out of the middle."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.core.conftest import ANNA, QueueLog, batch, dead, messages, properties

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import ACCEPT
from headrace_broker.core.queue.command.leader_command import encode_acquire
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.batch_page import (
    decode_batches,
    encode_batches,
    read_entries,
)
from headrace_broker.core.queue.messages.batch_sizes import UNEQUAL, BatchSizes, measure_batch
from headrace_broker.core.queue.state.page import PAGE_BATCHES
from headrace_broker.model.limits import EXPIRE_MESSAGES_MAX

PLAIN = (b"\x00\x00", b"body")
FIELDS = ("entry_index", "id_base", "next", "stop", "arrived_ms", "expires_ms")


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    found = []
    entry, following, arrived = 0, 0, 0
    for _ in range(draw(st.integers(0, 6))):
        entry += draw(st.integers(0, 2**40))
        first = following + draw(st.integers(0, 2**40))
        start, count, beyond = (draw(st.integers(0, 300)) for _ in range(3))
        arrived += draw(st.integers(0, 2**40))
        expires = draw(st.sampled_from([0, arrived + 1, arrived + 2**33]))
        total = start + count + 1 + beyond
        if draw(st.booleans()):
            sizes = BatchSizes(total, UNEQUAL, draw(st.binary(min_size=4, max_size=4)) * total)
        else:
            sizes = BatchSizes(total, draw(st.integers(0, 2**31)), b"")
        stop = start + count + 1
        found.append(Batch(entry, first - start, start, stop, sizes, arrived, expires))
        following = first + count + 1
    return found


def plain(batch: Batch) -> tuple[object, ...]:
    sizes = batch.sizes
    return (*(getattr(batch, name) for name in FIELDS), sizes.count, sizes.size, sizes.table)


@given(batches())
def test_packed_batches_come_back_as_they_were(found: list[Batch]) -> None:
    packed = encode_batches(found)
    assert list(map(plain, decode_batches(packed))) == list(map(plain, found))
    entries = array("Q")
    read_entries(packed, entries)
    assert list(entries) == [each.entry_index for each in found]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_batches_are_refused(data: bytes) -> None:
    try:
        found = decode_batches(data)
    except LookupError:
        return
    assert all(each.next < each.stop for each in found)


def test_a_batch_of_equal_sizes_packs_into_few_bytes() -> None:
    sizes = measure_batch(batch(*[bytes(1024)] * 10), 0)
    assert sizes is not None
    found = [Batch(n, n * 10, 0, 10, sizes, 1_700_000_000_000 + n, 0) for n in range(256)]
    assert len(encode_batches(found)) < 256 * 10


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 30)), max_size=8))
def test_log_positions_with_and_without_gaps_are_read_as_written(
    runs: list[tuple[int, int]],
) -> None:
    sizes = BatchSizes(1, 1024, b"")
    positions: list[int] = []
    for gap, count in runs:
        first = (positions[-1] + 1 if positions else 0) + gap
        positions += range(first, first + count)
    packed = encode_batches([Batch(n, n, 0, 1, sizes, 1, 0) for n in sorted(positions)])
    found = array("Q", [7])
    read_entries(packed, found)
    assert list(found) == [7, *sorted(positions)]


def long_queue(queue: QueueLog, pages: int) -> int:
    """Fill some pages with batches of one or two messages; return how many messages that is."""
    queue.configure()
    count = 0
    for number in range(pages * PAGE_BATCHES):
        size = 1 + number % 2
        queue.apply(command.encode_enqueue(ANNA, count + 1, batch(*[b"x"] * size)))
        count += size
    return count


def test_a_long_queue_comes_out_in_order(queue: QueueLog) -> None:
    count = long_queue(queue, 4)
    assert queue.machine.ready_count == count
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    taken = messages(queue.attach(ANNA, 1, 1, 10**6))
    assert [m.message_id for m in taken] == list(range(1, count + 1))
    assert queue.machine.ready_count == queue.machine.ready_bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_messages_taken_out_of_the_middle_leave_the_others(queue: QueueLog, seed: int) -> None:
    choice = random.Random(seed)
    count = long_queue(queue, 4)
    left = list(range(1, count + 1))
    for number in range(1, 200):
        gone = [choice.choice(left) for _ in range(3)]
        queue.apply(command.encode_remove(ANNA, number, gone))
        left = [each for each in left if each not in gone]
        if number % 50 == 0:
            queue.machine = QueueMachine.restore(queue.machine.snapshot())
    assert queue.ids() == left
    assert [m.message_id for m in queue.machine.available_from(left[40], 7)] == left[41:48]
    alive = list(queue.machine.live_entries())
    taken = messages(queue.attach(ANNA, 200, 1, 10**6))
    assert [m.message_id for m in taken] == left
    assert sorted({m.entry_index for m in taken}) == alive
    queue.settle(ANNA, 201, ACCEPT, (1, 1, 10**6))
    assert list(queue.machine.live_entries()) == []


def test_new_messages_follow_the_old_ones_after_a_restart(queue: QueueLog) -> None:
    count = long_queue(queue, 2)
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    queue.enqueue(ANNA, count + 1, 3)
    assert queue.ids() == list(range(1, count + 4))


def test_pages_in_the_middle_are_packed_again_when_others_are_opened(queue: QueueLog) -> None:
    queue.configure()
    for _ in range(PAGE_BATCHES * 8):
        queue.publish(PLAIN)
    queue.apply(command.encode_attach(ANNA, 1, 1, 99, False, b"", filtered=True))
    for page in (2, 3, 4, 3, 5):
        first = page * PAGE_BATCHES + len(queue.entries) - PAGE_BATCHES * 8
        assert messages(queue.apply(encode_acquire(ANNA, 1, [first]))) != []
        restored = QueueMachine.restore(queue.machine.snapshot())
        assert restored.digest() == queue.machine.digest()
    (lane,) = queue.machine._state.ready.lanes
    assert [bool(page.packed) for page in lane.pages] == [False, *[True] * 4, False, True, False]


def test_a_deep_queue_is_purged_at_once_and_lets_its_entries_go_in_steps(queue: QueueLog) -> None:
    queue.configure()
    count = EXPIRE_MESSAGES_MAX + 2 * PAGE_BATCHES
    for _ in range(count):
        queue.publish(PLAIN)
    gone = dead(queue.apply(command.encode_purge(ANNA, 1)))[:-1]
    assert queue.machine.ready_count == 0
    assert len(gone) == EXPIRE_MESSAGES_MAX
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    left = list(queue.machine.live_entries())
    assert sorted(gone + left) == list(range(2, count + 2))
    assert 0 < queue.machine.due_ms() <= queue.now_ms
    assert dead(queue.publish(PLAIN)) == left
    assert queue.machine.due_ms() == 0
    assert list(queue.machine.live_entries()) == [len(queue.entries)]


def test_a_machine_that_knows_no_ticks_lets_go_of_all_at_once(queue: QueueLog) -> None:
    for number in range(EXPIRE_MESSAGES_MAX + 2):
        queue.enqueue(ANNA, number + 1)
    queue.apply(command.encode_purge(ANNA, 1))
    assert list(queue.machine.live_entries()) == []
    assert queue.machine.due_ms() == 0


def test_the_page_that_was_opened_last_can_be_opened_again(queue: QueueLog) -> None:
    queue.configure()
    for _ in range(PAGE_BATCHES + 2):
        queue.publish(PLAIN)
    queue.machine = QueueMachine.restore(queue.machine.snapshot())  # its last page is packed
    queue.apply(command.encode_attach(ANNA, 1, 1, 99, False, b"", filtered=True))
    assert messages(queue.apply(encode_acquire(ANNA, 1, [PAGE_BATCHES + 2]))) != []
    for _ in range(2 * PAGE_BATCHES):
        queue.publish(PLAIN)  # now it is one in the middle, and packed
    assert messages(queue.apply(encode_acquire(ANNA, 1, [PAGE_BATCHES + 1]))) != []


def test_entries_that_were_purged_are_listed_in_order(queue: QueueLog) -> None:
    queue.configure(priority_max=1)
    half = EXPIRE_MESSAGES_MAX + PAGE_BATCHES
    for _ in range(half):
        queue.publish((properties(priority=0), b""))
        queue.publish((properties(priority=1), b""))
    queue.publish(PLAIN, PLAIN)
    queue.apply(command.encode_get(ANNA, 1))
    queue.apply(command.encode_purge(ANNA, 2))
    listed = list(queue.machine.live_entries())
    assert len(listed) > 1
    assert listed == sorted(set(listed))
