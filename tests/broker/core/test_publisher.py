"""Publishers that number what they send: what the queue has had is dropped and confirmed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.core.conftest import (
    ANNA,
    BERT,
    CARL,
    QueueLog,
    batch,
    messages,
    properties,
    rich_batch,
)

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import (
    REFUSED_FENCED,
    ConfirmsDeferred,
    DeadLettered,
    Effect,
    Enqueued,
    EntryDead,
    PublishRejected,
    Rejected,
)
from headrace_broker.model.limits import PUBLISHER_HOLES_MAX, PUBLISHERS_MAX
from headrace_broker.model.ranges import Ranges


class Publishing(QueueLog):
    """A queue to which sessions publish for one publisher and others, a command at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.configure(3)

    def send(
        self,
        *numbers: int,
        epoch: int = 1,
        session: int = ANNA,
        publisher: bytes = b"p",
        patient: bool = False,
    ) -> list[Effect]:
        """Publish messages with ascending numbers, each of which is its body's size."""
        seq = self.seqs.get(session, 0) + 1
        self.seqs[session] = seq + len(numbers) - 1
        rows = Ranges()
        for number in numbers:
            rows.append(number, number + 1)
        bodies = batch(*map(bytes, numbers))
        encoded = command.encode_enqueue_named(
            session, seq, bodies, publisher, epoch, rows.bounds, patient
        )
        effects = self.apply(encoded)
        assert (session, self.seqs[session]) in [
            (effect.session, effect.seq) for effect in effects if isinstance(effect, Enqueued)
        ]
        return effects

    def numbers(self) -> list[int]:
        """The numbers of the messages that wait."""
        return [message.byte_count for message in self.machine.available_from(0, 10**6)]

    def turn_over(self) -> None:
        """Go on with a machine that was restored from a snapshot."""
        restored = QueueMachine.restore(self.machine.snapshot())
        assert restored.digest() == self.machine.digest()
        self.machine = restored


@pytest.fixture
def queue() -> Publishing:
    return Publishing()


def test_repeated_messages_are_dropped_and_confirmed(queue: Publishing) -> None:
    queue.send(1, 2, 3)
    effects = queue.send(2, 3, 4, 5, session=BERT)
    assert not any(isinstance(effect, PublishRejected) for effect in effects)
    assert queue.numbers() == [1, 2, 3, 4, 5]
    assert EntryDead in [type(e) for e in queue.send(4, 5, session=CARL)]
    assert queue.numbers() == [1, 2, 3, 4, 5]


def test_numbers_that_went_elsewhere_leave_gaps(queue: Publishing) -> None:
    queue.send(1, 4, 5, 9)
    queue.send(9, 12)
    assert queue.numbers() == [1, 4, 5, 9, 12]


def test_publishers_are_told_apart(queue: Publishing) -> None:
    queue.send(1, 2)
    queue.send(1, 2, publisher=b"q")
    queue.enqueue(BERT, 1, 2)
    assert queue.numbers() == [1, 2, 1, 2, 0, 1]


def test_later_epoch_begins_anew_and_ends_the_one_before(queue: Publishing) -> None:
    queue.send(1, 2, 3)
    queue.send(1, 2, epoch=2, session=BERT)
    queue.send(4, 5, epoch=1)
    assert queue.numbers() == [1, 2, 3, 1, 2]
    queue.send(3, epoch=2, session=BERT)
    assert queue.numbers() == [1, 2, 3, 1, 2, 3]


def test_publisher_of_an_epoch_that_is_over_is_told_again_and_again(queue: Publishing) -> None:
    def refused(effects: list[Effect]) -> list[tuple[int, int, int]]:
        found = [effect for effect in effects if isinstance(effect, PublishRejected)]
        return [(int(effect.first), int(effect.last), int(effect.why)) for effect in found]

    queue.configure(4)
    queue.send(1, 2, 3)
    queue.send(1, epoch=2, session=BERT)
    before = queue.machine.ready_count
    effects = queue.send(3, 4, epoch=1)  # one that it has had, and a new one
    assert refused(effects) == [(4, 5, REFUSED_FENCED)]
    assert EntryDead in [type(effect) for effect in effects]
    assert queue.machine.ready_count == before
    queue.turn_over()
    again = command.encode_enqueue_named(ANNA, 4, batch(b"a", b"b"), b"p", 1, [3, 5])
    assert refused(queue.apply(again)) == [(4, 5, REFUSED_FENCED)]
    longer = command.encode_enqueue_named(ANNA, 5, batch(b"b", b"c"), b"p", 1, [4, 6])
    assert refused(queue.apply(longer)) == [(6, 6, REFUSED_FENCED)]
    assert refused(queue.send(2, epoch=2, session=BERT)) == []
    assert refused(queue.send(1, epoch=1, session=CARL, publisher=b"q")) == []


def test_publisher_that_is_fenced_keeps_its_fence_alive(queue: Publishing) -> None:
    queue.configure(4, publisher_retention_ms=100)
    queue.send(1, epoch=2)
    for _ in range(3):
        queue.now_ms += 60
        queue.send(1, epoch=1, session=BERT)
    assert queue.numbers() == [1]


def test_refused_messages_may_come_again(queue: Publishing) -> None:
    queue.configure(3, max_length=3, overflow=1)
    refused = [e for e in queue.send(1, 2, 3, 4, 5) if isinstance(e, PublishRejected)]
    assert [(e.first, e.last) for e in refused] == [(4, 5)]
    queue.configure(3, max_length=-1, overflow=1)
    queue.send(6)
    queue.turn_over()
    queue.send(1, 2, 3, 4, 5, 6, 7, session=BERT)
    assert sorted(queue.numbers()) == [1, 2, 3, 4, 5, 6, 7]
    queue.send(4, 5, 6, session=CARL)
    assert sorted(queue.numbers()) == [1, 2, 3, 4, 5, 6, 7]


def test_message_that_is_refused_again_is_still_not_had(queue: Publishing) -> None:
    queue.configure(3, max_length=1, overflow=1)
    queue.send(1, 2, 3)
    queue.send(2, 3)
    queue.configure(3, max_length=-1, overflow=1)
    queue.send(1, 3)
    assert queue.numbers() == [1, 3]
    queue.send(2, 3)
    assert sorted(queue.numbers()) == [1, 2, 3]


def test_repetition_behind_a_refused_message_is_no_dead_letter(queue: Publishing) -> None:
    once = {"overflow": 2, "dead_letter": 1}
    queue.configure(3, max_length=1, **once)
    queue.send(1, 2)
    queue.configure(3, max_length=-1, **once)
    queue.send(3)
    queue.configure(3, max_length=1, **once)
    effects = queue.send(1, 2, 3, 4, session=BERT)
    (dead_letters,) = [effect for effect in effects if isinstance(effect, DeadLettered)]
    assert [message.position for message in dead_letters.messages] == [1, 3]
    assert queue.numbers() == [1, 3]


def test_repetition_among_new_ones_is_not_deferred(queue: Publishing) -> None:
    queue.configure(3, max_length=1, overflow=1)
    queue.send(1, 2)
    queue.configure(3, max_length=-1, overflow=1, high_watermark=1)
    queue.send(3)
    effects = queue.send(1, 2, 3, 4, patient=True)
    (deferred,) = [effect for effect in effects if isinstance(effect, ConfirmsDeferred)]
    first = queue.seqs[ANNA] - 3
    assert deferred.rows == [first + 1, first + 2, first + 3, first + 4]  # 2 and 4
    assert queue.machine.deferred_count == 2


def test_more_holes_than_are_remembered_are_joined(queue: Publishing) -> None:
    queue.configure(3, max_length=0, overflow=1)
    numbers = range(2, 4 * PUBLISHER_HOLES_MAX, 2)
    for number in numbers:
        queue.send(number)
    queue.configure(3, max_length=-1, overflow=1)
    queue.turn_over()
    queue.send(*numbers)
    assert queue.numbers() == list(numbers)  # none is lost


def test_publisher_is_forgotten_some_time_after_its_last_message(queue: Publishing) -> None:
    queue.configure(3, publisher_retention_ms=1000)
    queue.send(1)
    queue.now_ms += 999
    queue.send(1)  # it is used by that
    queue.now_ms += 999
    queue.send(1)
    assert queue.numbers() == [1]
    queue.now_ms += 1000
    queue.send(1)
    assert queue.numbers() == [1, 1]


def test_queue_that_is_to_remember_nobody_takes_everything(queue: Publishing) -> None:
    queue.configure(3, publisher_retention_ms=0)
    queue.send(1)
    queue.send(1)
    assert queue.numbers() == [1, 1]


def test_those_that_published_last_are_remembered(queue: Publishing) -> None:
    for number in range(PUBLISHERS_MAX):
        queue.send(1, publisher=b"%d" % number)
    queue.send(1, publisher=b"0")  # used again
    queue.send(1, publisher=b"another")
    before = len(queue.numbers())
    queue.send(1, publisher=b"0")
    assert len(queue.numbers()) == before
    queue.send(1, publisher=b"1")
    assert len(queue.numbers()) == before + 1


def test_repetition_of_a_command_is_no_repetition_of_its_messages(queue: Publishing) -> None:
    encoded = command.encode_enqueue_named(ANNA, 1, batch(b"a", b"b"), b"p", 1, [1, 3])
    queue.apply(encoded)
    queue.apply(encoded)
    longer = command.encode_enqueue_named(ANNA, 1, batch(b"a", b"b", b"c"), b"p", 1, [1, 4])
    queue.apply(longer)
    assert queue.machine.ready_count == 3


def test_refusal_is_remembered_when_a_longer_command_repeats_it(queue: Publishing) -> None:
    queue.configure(3, max_length=1, overflow=1)
    queue.apply(command.encode_enqueue_named(ANNA, 1, batch(b"a", b"b"), b"p", 1, [1, 3]))
    queue.configure(3, max_length=-1, overflow=1)
    queue.apply(command.encode_enqueue_named(ANNA, 1, batch(b"a", b"b", b"c"), b"p", 1, [1, 4]))
    assert queue.machine.ready_count == 2
    queue.send(2, session=BERT)
    assert queue.machine.ready_count == 3


def test_messages_with_properties_are_dropped_too(queue: Publishing) -> None:
    queue.configure(3, priority_max=9, max_length=1, overflow=1)
    both = rich_batch((properties(5), b"a"), (properties(7), b"b"))
    queue.apply(command.encode_enqueue_named(ANNA, 1, both, b"p", 1, [1, 3]))
    queue.configure(3, max_length=-1, overflow=1)
    queue.apply(command.encode_enqueue_named(BERT, 1, both, b"p", 1, [1, 3]))
    got = messages(queue.attach(CARL, 1, 1, 9))
    assert [message.priority for message in got] == [7, 5]


def test_machine_of_an_earlier_version_takes_nothing_with_numbers() -> None:
    queue = QueueLog()
    queue.configure(2)
    encoded = command.encode_enqueue_named(ANNA, 1, batch(b"a"), b"p", 1, [1, 2])
    assert [type(effect) for effect in queue.apply(encoded)] == [Rejected, EntryDead]
    assert ANNA not in queue.machine._state.sessions


@settings(max_examples=150)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from([ANNA, BERT]),
            st.integers(1, 2),
            st.sets(st.integers(1, 30), min_size=1, max_size=8),
            st.sampled_from([-1, 0, 3, 9]),
        ),
        max_size=15,
    )
)
def test_each_number_is_had_once_and_none_that_was_confirmed_is_missing(
    steps: list[tuple[int, int, set[int], int]],
) -> None:
    """A publisher in its newest epoch: missing numbers below the last one went elsewhere."""
    queue = Publishing()
    had: list[int] = []
    epoch, last, refused = 0, 0, set[int]()
    for session, of_epoch, numbers, limit in steps:
        queue.configure(3, max_length=limit, overflow=1)
        room = 10**6 if limit < 0 else max(limit - len(had), 0)
        if of_epoch > epoch:
            epoch, last, refused = of_epoch, 0, set()
        if of_epoch == epoch:
            new = [n for n in sorted(numbers) if n > last or n in refused]
            first = new[0] if new else 0
            effects = queue.send(*sorted(numbers), epoch=of_epoch, session=session)
            rejected = [e for e in effects if isinstance(e, PublishRejected)]
            taken = queue.numbers()[len(had) :]
            assert set(taken) <= set(new)
            if not rejected:
                assert taken == new
            assert len(taken) <= room
            assert not new or first in taken or rejected
            refused = (refused | set(new)) - set(taken)
            last = max(last, *numbers)
            had += taken
        else:
            queue.send(*sorted(numbers), epoch=of_epoch, session=session)
        assert queue.numbers() == had
        queue.turn_over()
