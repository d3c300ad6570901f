from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter
from pamqp import commands, frame

from headrace_broker.gateways.amqp.messages.channel_confirms import ChannelConfirms
from headrace_broker.model.ranges import Ranges
from headrace_broker.runtime.contract.port import PendingConfirm


def emitted(confirms: ChannelConfirms) -> list[tuple[str, int, bool]]:
    """("ack" or "nack", tag, multiple) of the confirms that are sent now."""
    out = BytesWriter()
    confirms.emit(out)
    data = out.getvalue()
    found = []
    while data:
        used, channel, method = frame.unmarshal(data)
        assert channel == confirms.channel
        assert isinstance(method, commands.Basic.Ack | commands.Basic.Nack)
        name = "ack" if isinstance(method, commands.Basic.Ack) else "nack"
        found.append((name, method.delivery_tag, method.multiple))
        data = data[used:]
    return found


def test_oldest_pending_confirms_are_answered_in_one_ack():
    confirms = ChannelConfirms(7)
    pending_confirms = [confirms.issue(10, 1) for _ in range(3)]
    confirms.settle(pending_confirms[:2])
    assert emitted(confirms) == [("ack", 20, True)]
    assert confirms.outstanding_count == 1


def test_one_message_is_answered_without_multiple():
    confirms = ChannelConfirms(1)
    confirms.settle([confirms.issue(1, 1)])
    assert emitted(confirms) == [("ack", 1, False)]


def test_pending_confirm_behind_an_unanswered_one_is_answered_singly():
    confirms = ChannelConfirms(1)
    first, second = confirms.issue(2, 1), confirms.issue(2, 1)
    confirms.settle([second])
    assert emitted(confirms) == [("ack", 3, False), ("ack", 4, False)]
    confirms.settle([first])
    assert emitted(confirms) == [("ack", 2, True)]
    assert confirms.outstanding_count == 0


def test_pending_confirm_of_two_queues_waits_for_both():
    confirms = ChannelConfirms(1)
    pending_confirm = confirms.issue(1, 2)
    confirms.settle([pending_confirm])
    assert emitted(confirms) == []
    confirms.settle([pending_confirm])
    assert emitted(confirms) == [("ack", 1, False)]


def test_one_refusing_queue_makes_a_nack():
    confirms = ChannelConfirms(1)
    pending_confirm = confirms.issue(2, 2)
    pending_confirm.refuse(2, 2)
    confirms.settle([pending_confirm])
    assert emitted(confirms) == []
    confirms.settle([pending_confirm])
    assert emitted(confirms) == [("ack", 1, False), ("nack", 2, False)]


def test_unroutable_publish_is_answered_at_once():
    confirms = ChannelConfirms(1)
    confirms.issue(1, 0)
    assert emitted(confirms) == [("ack", 1, False)]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sets(st.integers(0, 3))), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
)
@settings(max_examples=100)
def test_every_publish_is_answered_once_and_right(shape, random, emit_every):
    """As a client reads it: `multiple` answers all outstanding ones up to the tag."""
    confirms = ChannelConfirms(1)
    pending_confirms = [(confirms.issue(count, 1), refused) for count, refused in shape]
    wanted = {}
    for pending_confirm, refused in pending_confirms:
        for tag in range(pending_confirm.first, pending_confirm.last + 1):
            wanted[tag] = "nack" if tag - pending_confirm.first in refused else "ack"
            if wanted[tag] == "nack":
                pending_confirm.refuse(tag, tag)
    outstanding = dict(wanted)
    settled: set[int] = set()
    random.shuffle(pending_confirms)
    for at, (pending_confirm, _) in enumerate(pending_confirms):
        confirms.settle([pending_confirm])
        settled.update(range(pending_confirm.first, pending_confirm.last + 1))
        if at % emit_every and at != len(pending_confirms) - 1:
            continue
        for name, tag, multiple in emitted(confirms):
            tags = [each for each in outstanding if each <= tag] if multiple else [tag]
            assert tag in tags
            for each in tags:
                assert each in settled
                assert outstanding.pop(each) == name
    assert outstanding == {}
    assert confirms.outstanding_count == 0


def deferred(
    confirms: ChannelConfirms, pending_confirm: PendingConfirm, group: int, *tags: int
) -> Ranges:
    """One queue answers and defers some."""
    numbers = Ranges()
    pending_confirm.hold(numbers)
    for tag in tags:
        numbers.append(tag, tag + 1)
    confirms.defer(group, [pending_confirm])
    return numbers


def test_rest_of_a_pending_confirm_does_not_wait_for_what_is_deferred():
    confirms = ChannelConfirms(1)
    pending_confirm = confirms.issue(6, 1)
    numbers = deferred(confirms, pending_confirm, 7, 3, 5)
    assert confirms.deferred_by() == 7
    assert emitted(confirms) == [("ack", 2, True), ("ack", 4, False), ("ack", 6, False)]
    assert confirms.outstanding_count == 1
    pending_confirm.end_hold(numbers, 5, 6)
    confirms.complete(7, [pending_confirm], 0)
    assert emitted(confirms) == [("ack", 5, False)]
    pending_confirm.end_hold(numbers, 1, 7)
    confirms.complete(7, [pending_confirm], 1)
    assert emitted(confirms) == [("ack", 3, False)]
    assert (confirms.deferred_by(), confirms.outstanding_count) == (0, 0)


def test_pending_confirm_behind_deferred_ones_is_answered_singly():
    confirms = ChannelConfirms(1)
    first, second = confirms.issue(2, 1), confirms.issue(2, 1)
    numbers = deferred(confirms, first, 7, 1, 2)
    confirms.settle([second])
    assert emitted(confirms) == [("ack", 3, False), ("ack", 4, False)]
    assert confirms.outstanding_count == 1
    first.end_hold(numbers, 1, 3)
    confirms.complete(7, [first], 1)
    assert emitted(confirms) == [("ack", 2, True)]


def test_message_waits_for_each_queue_that_defers_it():
    confirms = ChannelConfirms(1)
    pending_confirm = confirms.issue(3, 3)
    one = deferred(confirms, pending_confirm, 7, 2, 3)
    pending_confirm.end_hold(one, 3, 4)  # before the others have answered
    confirms.complete(7, [pending_confirm], 0)
    other = deferred(confirms, pending_confirm, 8, 1, 2)
    assert emitted(confirms) == []
    confirms.settle([pending_confirm])
    assert emitted(confirms) == [("ack", 3, False)]
    pending_confirm.end_hold(other, 1, 3)
    confirms.complete(8, [pending_confirm], 1)
    assert emitted(confirms) == [("ack", 1, False)]
    assert confirms.deferred_by() == 7
    pending_confirm.end_hold(one, 2, 3)
    confirms.complete(7, [pending_confirm], 1)
    assert emitted(confirms) == [("ack", 2, False)]


def test_answered_pending_confirms_behind_a_deferred_one_are_forgotten():
    confirms = ChannelConfirms(1)
    first = confirms.issue(1, 1)
    numbers = deferred(confirms, first, 7, 1)
    for _ in range(5_000):
        confirms.settle([confirms.issue(1, 1)])
        emitted(confirms)
    assert confirms.outstanding_count == 1
    assert len(confirms._pending_confirms) < 2_500
    first.end_hold(numbers, 1, 2)
    confirms.complete(7, [first], 1)
    assert emitted(confirms) == [("ack", 1, False)]
    assert confirms.outstanding_count == 0


class QueueAnswers:
    """Answers of the queues of some pending confirms, in any possible order."""

    def __init__(self, confirms: ChannelConfirms, random: Random) -> None:
        self.confirms = confirms
        self.random = random
        self.steps: list[tuple[int, int, PendingConfirm]] = []  # key, group, pending confirm
        self.open: dict[int, set[tuple[int, int]]] = {}  # tag -> steps that it waits for
        self.holds: dict[tuple[int, int], Ranges] = {}

    def add(self, pending_confirm: PendingConfirm, queues: int) -> None:
        for group in range(1, queues + 1):
            self.steps.append((pending_confirm.first, group, pending_confirm))
            for tag in range(pending_confirm.first, pending_confirm.last + 1):
                self.open.setdefault(tag, set()).add((pending_confirm.first, group))

    def step(self) -> None:
        """Let one queue answer, or complete something."""
        at = self.random.randrange(len(self.steps))
        key, group, pending_confirm = self.steps[at]
        tags = range(pending_confirm.first, pending_confirm.last + 1)
        place = (key, group)
        if place not in self.holds:
            kept = [
                t
                for t in tags
                if t not in (pending_confirm.refused or ()) and self.random.random() < 0.4
            ]
            if kept:
                self.holds[place] = deferred(self.confirms, pending_confirm, group, *kept)
            else:
                self.steps.pop(at)
                self.confirms.settle([pending_confirm])
            done = [tag for tag in tags if tag not in kept]
        else:
            numbers = self.holds[place]
            first = self.random.choice(tags)
            stop = self.random.randint(first + 1, pending_confirm.last + 1)
            done = [tag for tag in range(first, stop) if tag in numbers]
            if pending_confirm.end_hold(numbers, first, stop) == 0:
                assert not done
                return
            if not numbers:
                self.steps.pop(at)
            self.confirms.complete(group, [pending_confirm], 0 if numbers else 1)
        for tag in done:
            self.open[tag].discard(place)


@given(
    shape=st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 3), st.sets(st.integers(0, 5), max_size=2)),
        min_size=1,
        max_size=12,
    ),
    random=st.randoms(use_true_random=False),
)
@settings(max_examples=200, deadline=None)
def test_publishes_are_answered_as_soon_as_no_queue_defers_them(shape, random):
    confirms = ChannelConfirms(1)
    queues = QueueAnswers(confirms, random)
    unanswered = {}
    for count, targets, refused in shape:
        pending_confirm = confirms.issue(count, targets)
        for tag in range(pending_confirm.first, pending_confirm.last + 1):
            unanswered[tag] = "nack" if tag - pending_confirm.first in refused else "ack"
            if tag - pending_confirm.first in refused:
                pending_confirm.refuse(tag, tag)
        queues.add(pending_confirm, targets)
    while queues.steps:
        queues.step()
        for name, tag, multiple in emitted(confirms):
            tags = [each for each in unanswered if each <= tag] if multiple else [tag]
            assert tag in tags
            for each in tags:
                assert not queues.open[each]
                assert unanswered.pop(each) == name
        assert all(queues.open[tag] for tag in unanswered)
    assert unanswered == {}
    assert (confirms.outstanding_count, confirms.deferred_by()) == (0, 0)
