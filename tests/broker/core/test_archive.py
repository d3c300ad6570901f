"""Archive of settled messages."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.core.conftest import ANNA, BERT, QueueLog, batch, dead, properties, rich_batch

from headrace_broker.core.queue.command import archive_command, command
from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, REJECT, RELEASE
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired, Effect, Rejected
from headrace_broker.core.queue.messages.settings import (
    ARCHIVE_FULL,
    ARCHIVE_HEADERS,
    ARCHIVE_NONE,
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_AT_MOST_ONCE,
    DEAD_LETTER_NONE,
)
from headrace_broker.core.queue.state.archive_effect import (
    ARCHIVE_FENCED,
    ARCHIVE_GROUPS_FULL,
    ARCHIVE_NOT_YET,
    ARCHIVE_OFF,
    ARCHIVE_OK,
    ARCHIVE_UNKNOWN_GROUP,
    ArchiveAnswer,
)
from headrace_broker.core.queue.state.archive_row import (
    OUTCOMES,
    ArchiveRow,
    decode_rows,
    encode_rows,
    read_row_entries,
)
from headrace_broker.model.limits import (
    ARCHIVE_DROPPED_MAX,
    ARCHIVE_GROUPS_MAX,
    EXPIRE_MESSAGES_MAX,
)

START_MS = 1_700_000_000_000


class Archiving(QueueLog):
    """A queue with an archive, and a consumer that takes everything."""

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self.configure(4, **{"archive": ARCHIVE_FULL, **fields})
        self.attach(BERT, 1, 1, 65535)
        self.seq = 1
        self.effects: list[Effect] = []

    def settles(self, operation: int, first: int, last: int) -> list[Effect]:
        self.seq += 1
        return self.settle(BERT, self.seq, operation, (1, first, last))

    def ask(self, encoded: bytes) -> ArchiveAnswer:
        self.effects = self.apply(encoded)
        (answer,) = [effect for effect in self.effects if isinstance(effect, ArchiveAnswer)]
        assert answer.request == 77
        return answer

    def open(self, name: bytes = b"g", opener: bytes = b"a") -> ArchiveAnswer:
        return self.ask(archive_command.encode_open_archive(77, name, opener))

    def commit(self, up_to: int, name: bytes = b"g", epoch: int = 1) -> ArchiveAnswer:
        return self.ask(archive_command.encode_commit_archive(77, name, epoch, up_to))

    def close(self, name: bytes = b"g", epoch: int = 0) -> ArchiveAnswer:
        return self.ask(archive_command.encode_close_archive(77, name, epoch))

    def rows(self) -> list[ArchiveRow]:
        return self.machine.archived(self.machine.archive().first, 10**6)

    def ended(self) -> list[tuple[int, str, str]]:
        """Ids of the messages that have rows, and how they ended."""
        return [(row.message_id, *OUTCOMES[int(row.outcome)]) for row in self.rows()]

    def bounds(self) -> tuple[int, int, int]:
        archive = self.machine.archive()
        return archive.first, archive.following, archive.byte_count

    def turn_over(self) -> None:
        """Go on with a machine that was restored from a snapshot."""
        restored = QueueMachine.restore(self.machine.snapshot())
        assert restored.digest() == self.machine.digest()
        assert restored.live_entries() == self.machine.live_entries()
        assert restored.due_ms() == self.machine.due_ms()
        self.machine = restored


@pytest.fixture
def queue() -> Archiving:
    return Archiving()


# How messages end


def test_a_queue_without_archive_keeps_nothing() -> None:
    queue = Archiving(archive=ARCHIVE_NONE)
    queue.enqueue(ANNA, 1, 3)
    assert dead(queue.settles(ACCEPT, 1, 3))[0] == 3
    assert queue.bounds() == (0, 0, 0)


def test_rows_say_where_a_message_was_and_when_it_went(queue: Archiving) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.now_ms += 40
    queue.settles(MODIFY_FAILED, 2, 2)
    queue.now_ms += 30
    effects = queue.settles(ACCEPT, 1, 4)
    assert dead(effects) == [len(queue.entries)]  # the ENQUEUE is needed still
    told = [
        (row.message_id, row.entry_index, row.position, row.byte_count, row.acquired, row.failed)
        for row in queue.rows()
    ]
    assert told == [(1, 3, 0, 0, 1, 0), (3, 3, 2, 2, 1, 0), (2, 3, 1, 1, 2, 1)]
    times = [(row.arrived_ms, row.first_ms, row.settled_ms) for row in queue.rows()]
    assert times == [(START_MS, START_MS, START_MS + 70)] * 3
    assert [row.full for row in queue.rows()] == [True] * 3
    assert [row.last for row in queue.rows()] == [False, False, True]


def test_headers_are_kept_without_their_bodies_from_then_on(queue: Archiving) -> None:
    queue.enqueue(ANNA, 1, 2)
    queue.settles(ACCEPT, 1, 1)
    queue.configure(4, archive=ARCHIVE_HEADERS)
    queue.settles(ACCEPT, 2, 2)
    assert [row.full for row in queue.rows()] == [True, False]


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        (DEAD_LETTER_NONE, ("rejected", "")),
        (DEAD_LETTER_AT_MOST_ONCE, ("dead-lettered", "rejected")),
    ],
)
def test_what_is_rejected_is_a_dead_letter_where_there_is_somewhere_to_go(
    mode: int, outcome: tuple[str, str]
) -> None:
    queue = Archiving(dead_letter=mode)
    queue.enqueue(ANNA, 1)
    queue.settles(REJECT, 1, 1)
    assert queue.ended() == [(1, *outcome)]


def test_a_dead_letter_that_is_kept_has_its_row_when_it_has_arrived() -> None:
    queue = Archiving(dead_letter=DEAD_LETTER_AT_LEAST_ONCE, overflow=1)
    queue.enqueue(ANNA, 1)
    queue.settles(REJECT, 1, 1)
    assert queue.ended() == []
    queue.configure(4, dead_letter=DEAD_LETTER_NONE)
    queue.apply(b"\x0d\x01" + (1).to_bytes(4, "big") + (1).to_bytes(8, "big"))  # FORGET
    assert queue.ended() == [(1, "dead-lettered", "rejected")]


def test_messages_expire_are_too_many_and_fail_too_often() -> None:
    queue = Archiving(delivery_limit=0)
    queue.enqueue(ANNA, 1)
    queue.settles(MODIFY_FAILED, 1, 1)
    queue.apply(command.encode_cancel(BERT, 3, 1))
    queue.configure(4, max_length=1, message_ttl_ms=50)
    queue.enqueue(ANNA, 2, 2)
    queue.tick(50)
    assert queue.ended() == [
        (1, "dropped", "delivery_limit"),
        (2, "dropped", "maxlen"),
        (3, "expired", ""),
    ]


def test_messages_are_purged_removed_and_replaced() -> None:
    queue = Archiving(last_value_key=b"last")
    queue.apply(command.encode_cancel(BERT, 2, 1))
    for value in (1, 1, 2, 3):
        queue.publish((properties(headers={b"last": value}), b""))
    queue.apply(command.encode_remove(BERT, 3, [3]))
    queue.apply(command.encode_purge(BERT, 4))
    assert queue.ended() == [
        (1, "dropped", "replaced"),
        (3, "purged", "removed"),
        (1, "purged", ""),
        (4, "purged", ""),
    ]


def test_delayed_messages_are_purged_as_well(queue: Archiving) -> None:
    queue.publish((properties(headers={b"x-delay": 90}), b"late"))
    queue.apply(command.encode_purge(BERT, 2))
    assert queue.ended() == [(1, "purged", "")]
    assert queue.rows()[0].first_ms == 0


def test_a_large_purge_is_kept_in_steps() -> None:
    queue = Archiving()
    queue.apply(command.encode_cancel(BERT, 2, 1))
    count = EXPIRE_MESSAGES_MAX + 10
    for number in range(3):
        queue.apply(command.encode_enqueue(ANNA, number * count + 1, batch(*[b""] * count)))
    queue.apply(command.encode_purge(BERT, 3))
    assert queue.machine.ready_count == 0
    assert queue.bounds() == (0, count, 0)  # one batch used up what a command may do
    queue.turn_over()
    while queue.machine.due_ms() == 1:
        queue.tick()
    assert [row.message_id for row in queue.rows()] == list(range(1, 3 * count + 1))
    assert queue.bounds() == (0, 3 * count, 0)


def test_the_first_delivery_is_forgotten_without_an_archive(queue: Archiving) -> None:
    queue.enqueue(ANNA, 1, 2)
    queue.now_ms += 5
    queue.settles(RELEASE, 1, 1)
    queue.turn_over()
    queue.now_ms += 5
    queue.settles(RELEASE, 3, 3)
    queue.configure(4, archive=ARCHIVE_NONE)
    queue.configure(4, archive=ARCHIVE_FULL)
    queue.settles(ACCEPT, 1, 9)
    assert [(row.message_id, row.first_ms, row.acquired) for row in queue.rows()] == [
        (2, START_MS, 1),
        (1, 0, 3),  # it came back before, and nobody noted when it went first
    ]


# How rows go


def test_an_entry_lives_until_its_last_row_has_gone(queue: Archiving) -> None:
    queue.open()
    queue.enqueue(ANNA, 1, 2)
    entry = len(queue.entries)
    queue.enqueue(ANNA, 3)
    queue.settles(ACCEPT, 2, 3)
    queue.settles(ACCEPT, 1, 1)
    assert [row.message_id for row in queue.rows()] == [2, 3, 1]
    queue.commit(2)
    assert sorted(dead(queue.effects)) == [entry + 1, len(queue.entries)]
    queue.turn_over()
    queue.commit(3)
    assert sorted(dead(queue.effects)) == [entry, len(queue.entries)]
    assert queue.machine.live_entries().tolist() == []


@pytest.mark.parametrize("restored", [False, True])
def test_an_entry_whose_rest_was_not_archived_ends_with_its_last_row(restored: bool) -> None:
    queue = Archiving()
    queue.open()
    queue.enqueue(ANNA, 1, 3)
    entry = len(queue.entries)
    queue.settles(ACCEPT, 1, 2)
    queue.configure(4, archive=ARCHIVE_NONE)
    if restored:
        queue.turn_over()
    assert entry not in dead(queue.settles(ACCEPT, 3, 3))
    if restored:
        queue.turn_over()
    assert queue.machine.live_entries().tolist() == [entry]
    queue.commit(1)
    assert entry not in dead(queue.effects)
    queue.commit(2)
    assert entry in dead(queue.effects)


def test_rows_that_went_do_not_keep_an_entry_whose_rest_is_not_archived(queue: Archiving) -> None:
    queue.open()
    queue.enqueue(ANNA, 1, 3)
    entry = len(queue.entries)
    queue.settles(ACCEPT, 1, 2)
    queue.commit(2)
    queue.turn_over()
    queue.configure(4, archive=ARCHIVE_NONE)
    assert entry in dead(queue.settles(ACCEPT, 3, 3))


def test_most_messages_bytes_and_age_bound_the_archive() -> None:
    queue = Archiving(archive_max_messages=3, archive_max_bytes=9, archive_max_age_ms=100)
    queue.enqueue(ANNA, 1, 5)  # of 0 to 4 bytes
    queue.settles(ACCEPT, 1, 4)
    assert queue.bounds() == (1, 4, 6)
    queue.now_ms += 60
    queue.settles(ACCEPT, 5, 5)
    assert queue.bounds() == (2, 5, 9)
    assert queue.machine.due_ms() == START_MS + 100
    queue.tick(39)
    assert queue.bounds() == (2, 5, 9)
    queue.tick(1)
    assert queue.bounds() == (4, 5, 4)
    assert queue.machine.due_ms() == START_MS + 160
    queue.configure(4, archive_max_bytes=3)
    assert queue.bounds() == (5, 5, 0)
    assert queue.machine.due_ms() == 0


def test_a_bound_that_was_lowered_is_kept_in_steps(queue: Archiving) -> None:
    count = ARCHIVE_DROPPED_MAX + 100
    queue.apply(command.encode_enqueue(ANNA, 1, batch(*[b""] * count)))
    queue.settles(ACCEPT, 1, count)
    queue.configure(4, archive_max_messages=10)
    assert queue.bounds()[0] == ARCHIVE_DROPPED_MAX
    assert queue.machine.due_ms() == 1
    queue.turn_over()
    queue.tick()
    assert queue.bounds() == (count - 10, count, 0)
    assert queue.machine.due_ms() == queue.now_ms + queue.machine.settings.archive_max_age_ms


def test_an_archive_that_is_full_lets_go_what_it_takes_in() -> None:
    queue = Archiving(archive_max_messages=10)
    count = 2 * ARCHIVE_DROPPED_MAX
    queue.apply(command.encode_enqueue(ANNA, 1, batch(*[b""] * count)))
    effects = queue.settles(ACCEPT, 1, count)
    assert queue.bounds() == (count - 10, count, 0)
    assert dead(effects) == [len(queue.entries)]  # its last rows are there


def test_rows_are_the_same_across_pages_and_snapshots(queue: Archiving) -> None:
    count = 2600
    messages = [(b"\x00\x00", bytes(number % 3)) for number in range(count)]
    queue.apply(command.encode_enqueue(ANNA, 1, rich_batch(*messages)))
    queue.settles(ACCEPT, 1, count)
    queue.open()
    ids = list(range(1, count + 1))
    for first in (0, 1, 1000, 1024, 2050, 2599):
        queue.commit(first)
        queue.turn_over()
        assert [row.message_id for row in queue.rows()] == ids[first:]
        assert [row.byte_count for row in queue.rows()] == [
            number % 3 for number in range(first, count)
        ]
        assert queue.bounds()[2] == sum(number % 3 for number in range(first, count))
        for start in (first, first + 7, 1023, 1024, 2047, 2600):
            wanted = ids[start : start + 1030] if start >= first else []
            assert [row.message_id for row in queue.machine.archived(start, 1030)] == wanted
    queue.enqueue(ANNA, count + 1)
    queue.settles(ACCEPT, count + 1, count + 1)
    queue.commit(count)
    assert queue.bounds() == (count, count + 1, 0)
    queue.turn_over()
    queue.commit(count + 1)
    assert queue.machine.live_entries().tolist() == []
    queue.turn_over()
    assert queue.bounds() == (count + 1, count + 1, 0)


# Groups


def test_rows_go_when_all_groups_are_done_with_them(queue: Archiving) -> None:
    queue.enqueue(ANNA, 1, 5)
    queue.settles(ACCEPT, 1, 5)
    queue.open()
    queue.open(b"h")
    queue.commit(4)
    assert queue.bounds()[0] == 0
    queue.commit(2, b"h", 2)
    assert queue.bounds()[0] == 2
    queue.commit(1)  # nobody goes back
    assert queue.machine.archive().groups[0].committed == 4
    queue.close(b"h")
    assert queue.bounds()[0] == 4


def test_without_groups_rows_stay(queue: Archiving) -> None:
    queue.enqueue(ANNA, 1, 2)
    queue.settles(ACCEPT, 1, 2)
    queue.open()
    queue.commit(1)
    queue.close()
    queue.settles(ACCEPT, 1, 1)
    assert queue.bounds()[:2] == (1, 2)


def test_a_new_group_begins_with_the_first_row_that_there_is(queue: Archiving) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.settles(ACCEPT, 1, 3)
    queue.open()
    queue.commit(2)
    group = queue.open(b"h").group
    assert group is not None
    assert (group.epoch, group.committed, group.committed_ms) == (2, 2, START_MS)


def test_epochs_fence_and_repetitions_do_not(queue: Archiving) -> None:
    assert queue.commit(0).status == ARCHIVE_UNKNOWN_GROUP
    assert queue.open().status == ARCHIVE_OK
    again = queue.open()
    assert again.status == ARCHIVE_OK
    assert again.group is not None
    assert again.group.epoch == 1
    queue.turn_over()
    queue.open(opener=b"b")
    assert queue.commit(0).status == ARCHIVE_FENCED
    assert queue.open().status == ARCHIVE_FENCED
    assert queue.close(epoch=1).status == ARCHIVE_FENCED
    assert queue.commit(0, epoch=2).status == ARCHIVE_OK
    assert queue.commit(1, epoch=2).status == ARCHIVE_NOT_YET
    closed = queue.close(epoch=2)
    assert (closed.status, closed.group) == (ARCHIVE_OK, None)
    assert queue.close(epoch=2).status == ARCHIVE_OK
    queue.turn_over()
    reopened = queue.open().group
    assert reopened is not None
    assert reopened.epoch == 3


def test_a_queue_that_never_had_an_archive_has_no_groups() -> None:
    queue = Archiving(archive=ARCHIVE_NONE)
    assert queue.open().status == ARCHIVE_OFF
    queue.now_ms += 7
    queue.configure(4, archive=ARCHIVE_HEADERS)
    queue.turn_over()
    queue.configure(4, archive=ARCHIVE_NONE)
    assert queue.open().status == ARCHIVE_OK
    assert queue.machine.archive().since_ms == START_MS + 7


def test_groups_are_bounded(queue: Archiving) -> None:
    for number in range(ARCHIVE_GROUPS_MAX):
        assert queue.open(b"%d" % number).status == ARCHIVE_OK
    assert queue.open(b"one more").status == ARCHIVE_GROUPS_FULL
    assert queue.open(b"1", b"b").status == ARCHIVE_OK


def test_a_machine_of_an_earlier_version_knows_no_groups_that_read() -> None:
    queue = QueueLog()
    queue.configure(3)
    effects = queue.apply(archive_command.encode_open_archive(1, b"g", b"a"))
    assert isinstance(effects[0], Rejected)


# Bytes


def random_rows(seed: int, count: int) -> list[ArchiveRow]:
    choice = random.Random(seed)
    rows: list[ArchiveRow] = []
    entry, position, settled = 5, 0, 100
    for _ in range(count):
        if choice.random() < 0.2:
            entry, position = choice.randint(1, 50), choice.randint(0, 5)
        again = choice.choice([0, 0, 0, 2])
        message = Acquired(
            entry * 100 + position, entry, position, choice.choice([4, 4, 9]), again, 0
        )
        message.arrived_ms = choice.choice([70, 70, 90])
        row = ArchiveRow(message, choice.choice([1, 1, 1, 9]), choice.random() < 0.9)
        settled += choice.choice([0, 0, 0, 5])
        row.settled_ms = settled
        row.first_ms = choice.choice([0, 80, 95])
        row.last = choice.random() < 0.1
        rows.append(row)
        position += 1
    return rows


@given(seed=st.integers(0, 2**32), count=st.integers(0, 40), start=st.integers(0, 40))
def test_rows_come_back_from_their_bytes(seed: int, count: int, start: int) -> None:
    rows = random_rows(seed, count)
    data = encode_rows(rows, min(start, count))
    assert list(map(repr, decode_rows(data, count))) == list(map(repr, rows[start:]))
    found: array[int] = array("Q")
    read_row_entries(data, found)
    assert set(found) == {row.entry_index for row in rows[start:]}


def test_rows_of_one_settlement_take_few_bytes() -> None:
    rows = []
    for position in range(1000):
        message = Acquired(1000 + position, 9, position, 100, 0, 0)
        message.arrived_ms = START_MS
        row = ArchiveRow(message, 1, True)
        row.settled_ms = START_MS + 20
        rows.append(row)
    assert len(encode_rows(rows, 0)) < 40


@pytest.mark.parametrize("change", [-1, 1])
def test_rows_of_another_length_are_refused(change: int) -> None:
    data = encode_rows(random_rows(1, 20), 0)
    with pytest.raises(LookupError):
        decode_rows(data[:change] if change < 0 else data + b"\x00", 1024)


def test_more_rows_than_a_page_has_are_refused() -> None:
    data = encode_rows(random_rows(1, 20), 0)
    with pytest.raises(LookupError, match="of at most 19"):
        decode_rows(data, 19)
