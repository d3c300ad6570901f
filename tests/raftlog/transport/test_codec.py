from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_protos.raftlog.v1.transport_pb2 import Frame
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import ENTRY_BYTES_MAX
from headrace_raftlog.model.membership import Membership, member_id
from headrace_raftlog.model.message import APPEND, HEARTBEAT, JOIN, SNAPSHOT, Message
from headrace_raftlog.transport.codec import FrameError, add_message, read_messages

INDEX = st.integers(0, 2**40)


def fields(message: Message) -> tuple[object, ...]:
    return (
        message.kind,
        message.group,
        message.source,
        message.target,
        message.term,
        message.index,
        message.log_term,
        message.commit,
        message.entries,
        message.reject,
        message.hint_index,
        message.hint_term,
        message.quiesce,
        message.context,
    )


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.integers(1, 13))
    index = draw(st.integers(1, 2**40))
    reject = draw(st.booleans())
    log_term, term = sorted((draw(st.integers(1, 2**40)), draw(st.integers(1, 2**40))))
    entries = []
    if kind == APPEND:
        terms = st.integers(log_term, term)
        plain = st.tuples(st.integers(0, 1), st.binary(max_size=20))
        config = st.tuples(st.just(2), st.just(Membership((1, member_id(2, 7))).encode()))
        drawn = draw(st.lists(st.tuples(terms, plain | config)))
        drawn.sort(key=lambda item: item[0])
        raw = [(at, *rest) for at, rest in drawn]
        entries = [Entry(index + 1 + i, *item) for i, item in enumerate(raw)]
    return Message(
        kind,
        draw(INDEX),
        member_id(1, draw(st.integers(0, 2**32 - 1))),
        2 if kind == JOIN else member_id(2, draw(st.integers(0, 2**32 - 1))),
        term,
        index=index,
        log_term=log_term,
        commit=draw(INDEX),
        entries=entries,
        reject=reject,
        hint_index=draw(INDEX) if reject else 0,
        hint_term=draw(INDEX) if reject else 0,
        quiesce=draw(st.booleans()),
        context=draw(INDEX),
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(messages(), max_size=5))
def test_message_round_trip_keeps_every_field(sent: list[Message]) -> None:
    frame = Frame()
    for message in sent:
        add_message(frame, message)
    received = read_messages(Frame.FromString(frame.SerializeToString()), 1, 2)
    assert [fields(m) for m in received] == [fields(m) for m in sent]


@pytest.mark.parametrize("kind", [0, 14, 77])
def test_unknown_kind_is_refused(kind: int) -> None:
    frame = Frame()
    add_message(frame, Message(HEARTBEAT, 1, 1, 2, 1))
    frame.messages[0].kind = kind  # type: ignore[assignment]
    with pytest.raises(FrameError, match="kind"):
        read_messages(frame, 1, 2)


def test_unknown_entry_kind_is_refused() -> None:
    frame = Frame()
    add_message(frame, Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 3, b"")]))
    with pytest.raises(FrameError, match="entry kind 3"):
        read_messages(frame, 1, 2)


@pytest.mark.parametrize("terms", [(1, 3), (3, 2), (5,)])
def test_entries_whose_terms_no_log_has_are_refused(terms: tuple[int, ...]) -> None:
    entries = [Entry(8 + at, term, 0, b"") for at, term in enumerate(terms)]
    frame = Frame()
    add_message(frame, Message(APPEND, 1, 1, 2, 4, index=7, log_term=2, entries=entries))
    with pytest.raises(FrameError, match="entry of term"):
        read_messages(frame, 1, 2)


def test_entry_that_is_too_long_is_refused() -> None:
    entries = [Entry(1, 1, 0, bytes(ENTRY_BYTES_MAX + 1))]
    frame = Frame()
    add_message(frame, Message(APPEND, 1, 1, 2, 1, entries=entries))
    with pytest.raises(FrameError, match="bytes"):
        read_messages(frame, 1, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage of some length",
        Membership(()).encode(),
        Membership(tuple(range(1, 9))).encode(),
        Membership((1, 1)).encode(),
        Membership((1, 2), learners=(2,)).encode(),
        Membership((1024,)).encode(),
        Membership((1, 1 << 43)).encode(),
        Membership((1,)).encode() + b"x",
    ],
)
def test_membership_that_no_leader_writes_is_refused(data: bytes) -> None:
    frame = Frame()
    add_message(frame, Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 2, data)]))
    with pytest.raises(FrameError, match="membership"):
        read_messages(frame, 1, 2)


@pytest.mark.parametrize(("index", "log_term", "term"), [(0, 1, 1), (5, 0, 1), (5, 3, 2)])
def test_snapshot_that_no_log_has_is_refused(index: int, log_term: int, term: int) -> None:
    frame = Frame()
    add_message(frame, Message(SNAPSHOT, 1, 1, 2, term, index=index, log_term=log_term))
    with pytest.raises(FrameError, match="snapshot"):
        read_messages(frame, 1, 2)


def test_join_names_a_node_and_not_a_member() -> None:
    frame = Frame()
    add_message(frame, Message(JOIN, 1, member_id(1, 5), member_id(2, 9), 0))
    with pytest.raises(FrameError, match="on a stream from 1 to 2"):
        read_messages(frame, 1, 2)


def test_member_id_beyond_its_range_is_refused() -> None:
    frame = Frame()
    add_message(frame, Message(HEARTBEAT, 1, 1, 2, 1))
    frame.messages[0].source = 1 | 1 << 42
    with pytest.raises(FrameError, match="no member ids"):
        read_messages(frame, 1, 2)


@pytest.mark.parametrize(("source", "target"), [(3, 2), (1, 3), (member_id(3, 1), 2)])
def test_message_of_another_pair_is_refused(source: int, target: int) -> None:
    frame = Frame()
    add_message(frame, Message(HEARTBEAT, 1, source, target, 1))
    with pytest.raises(FrameError, match="on a stream from 1 to 2"):
        read_messages(frame, 1, 2)
