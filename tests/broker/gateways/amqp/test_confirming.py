from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter
from pamqp import commands, frame

from headrace_broker.gateways.amqp.confirming import Confirms


def emitted(confirms: Confirms) -> list[tuple[str, int, bool]]:
    """("ack" or "nack", tag, multiple) of what is said now."""
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


def test_oldest_tickets_are_answered_in_one_ack():
    confirms = Confirms(7)
    tickets = [confirms.issue(10, 1) for _ in range(3)]
    confirms.settle(tickets[:2])
    assert emitted(confirms) == [("ack", 20, True)]
    assert confirms.outstanding_count == 1


def test_one_message_is_answered_without_multiple():
    confirms = Confirms(1)
    confirms.settle([confirms.issue(1, 1)])
    assert emitted(confirms) == [("ack", 1, False)]


def test_ticket_behind_an_unanswered_one_is_answered_singly():
    confirms = Confirms(1)
    first, second = confirms.issue(2, 1), confirms.issue(2, 1)
    confirms.settle([second])
    assert emitted(confirms) == [("ack", 3, False), ("ack", 4, False)]
    confirms.settle([first])
    assert emitted(confirms) == [("ack", 2, True)]
    assert confirms.outstanding_count == 0


def test_ticket_of_two_queues_waits_for_both():
    confirms = Confirms(1)
    ticket = confirms.issue(1, 2)
    confirms.settle([ticket])
    assert emitted(confirms) == []
    confirms.settle([ticket])
    assert emitted(confirms) == [("ack", 1, False)]


def test_one_refusing_queue_makes_a_nack():
    confirms = Confirms(1)
    ticket = confirms.issue(2, 2)
    ticket.refuse(2, 2)
    confirms.settle([ticket])
    assert emitted(confirms) == []
    confirms.settle([ticket])
    assert emitted(confirms) == [("ack", 1, False), ("nack", 2, False)]


def test_unroutable_publish_is_answered_at_once():
    confirms = Confirms(1)
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
    confirms = Confirms(1)
    tickets = [(confirms.issue(count, 1), refused) for count, refused in shape]
    wanted = {}
    for ticket, refused in tickets:
        for tag in range(ticket.first, ticket.last + 1):
            wanted[tag] = "nack" if tag - ticket.first in refused else "ack"
            if wanted[tag] == "nack":
                ticket.refuse(tag, tag)
    outstanding = dict(wanted)
    settled: set[int] = set()
    random.shuffle(tickets)
    for at, (ticket, _) in enumerate(tickets):
        confirms.settle([ticket])
        settled.update(range(ticket.first, ticket.last + 1))
        if at % emit_every and at != len(tickets) - 1:
            continue
        for name, tag, multiple in emitted(confirms):
            tags = [each for each in outstanding if each <= tag] if multiple else [tag]
            assert tag in tags
            for each in tags:
                assert each in settled
                assert outstanding.pop(each) == name
    assert outstanding == {}
    assert confirms.outstanding_count == 0
