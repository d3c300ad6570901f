"""Sessions without a network: what a peer sends before, within and after one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace_protos.raftlog.v1.transport_pb2 import Frame, MessageKind, RaftMessage
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import CLONE_HEARD_S, ENTRY_BYTES_PLAIN, INBOX_HELD_BYTES_MAX
from headrace_raftlog.model.message import APPEND, HEARTBEAT, Message
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.identity import (
    CloneRefusedError,
    StreamIdentity,
    StreamRefusedError,
)
from headrace_raftlog.transport.peer_session import PeerSession

Identify = Callable[..., StreamIdentity]


@pytest.fixture
def events(recorder_type: Any) -> Any:
    return recorder_type()


@pytest.fixture
def session(events: Any, identity_of: Identify) -> PeerSession:
    """Return node 1's session with node 2; its link stands still."""
    return PeerSession(2, "127.0.0.1:1", identity_of(1), events, lambda: 0.0)


@pytest.fixture
def two(identity_of: Identify) -> StreamIdentity:
    return identity_of(2)


@pytest.fixture
def connect(identity_of: Identify) -> Callable[..., None]:
    def take_answer(session: PeerSession, remote: StreamIdentity | None = None) -> None:
        session.link.connected = True
        session.link.remote = remote or identity_of(2)
        session.link_connected()

    return take_answer


def heartbeat(group: int = 1) -> RaftMessage:
    kind = MessageKind.MESSAGE_KIND_HEARTBEAT
    return RaftMessage(kind=kind, group=group, source=2, target=1, quiesce=True)


def test_what_arrives_before_the_up_report_is_held_until_it(
    session: PeerSession, events: Any, two: StreamIdentity, connect: Callable[..., None]
) -> None:
    stream = session.accept(two)
    session.received(stream, Frame(messages=[heartbeat(1)], application=[b"a", b"b"]))
    session.received(stream, Frame(messages=[heartbeat(2)], application=[b"c"]))
    assert (events.messages, events.payloads, events.peers) == ([], [], [])
    connect(session)
    assert events.peers == [(2, True, 1)]
    assert [m.group for m in events.messages] == [1, 2]
    assert events.payloads == [(2, b"a"), (2, b"b"), (2, b"c")]


def test_messages_are_only_taken_from_peers_that_will_be_reported_down(
    session: PeerSession, events: Any, two: StreamIdentity, connect: Callable[..., None]
) -> None:
    stream = session.accept(two)
    session.received(stream, Frame(messages=[heartbeat()]))
    session.check_liveness(-1.0, 0.0)
    connect(session)
    assert events.messages == []
    assert events.peers == []


def test_what_is_held_does_not_outlive_its_stream(
    session: PeerSession, events: Any, two: StreamIdentity, connect: Callable[..., None]
) -> None:
    first = session.accept(two)
    session.received(first, Frame(application=[b"old"]))
    second = session.accept(two)
    session.received(first, Frame(application=[b"late"]))
    session.received(second, Frame(application=[b"new"]))
    connect(session)
    assert events.payloads == [(2, b"new")]


def test_one_frame_is_held_however_long_it_is(
    session: PeerSession, events: Any, two: StreamIdentity, connect: Callable[..., None]
) -> None:
    stream = session.accept(two)
    session.received(stream, Frame(application=[bytes(INBOX_HELD_BYTES_MAX + 1)]))
    connect(session)
    assert [len(payload) for _, payload in events.payloads] == [INBOX_HELD_BYTES_MAX + 1]


def test_peer_of_an_earlier_release_is_sent_nothing_for_which_it_would_end_the_stream(
    session: PeerSession,
    two: StreamIdentity,
    connect: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    older = replace(two, entry_bytes_max=ENTRY_BYTES_PLAIN)
    session.accept(older)
    connect(session, older)
    longest, longer = bytes(ENTRY_BYTES_PLAIN), bytes(ENTRY_BYTES_PLAIN + 1)
    assert not session.send(longer)
    assert not session.send(longer + b"x"), "of another size, told of once"
    assert session.send(longest)
    assert not session.post(Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, longer)]))
    assert session.post(Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, longest)]))
    assert len([each for each in caplog.records if "until it is upgraded" in each.message]) == 1
    session.link_lost()
    session.accept(two)
    connect(session)
    assert session.send(longer)


def test_frame_that_is_too_much_to_hold_leaves_nothing_behind(
    session: PeerSession, events: Any, two: StreamIdentity, connect: Callable[..., None]
) -> None:
    stream = session.accept(two)
    half = bytes(INBOX_HELD_BYTES_MAX // 2)
    session.received(stream, Frame(application=[half]))
    session.received(stream, Frame(application=[half, b"rest of the frame"]))
    assert not stream.open
    again = session.accept(two)
    connect(session)
    assert events.payloads == []
    session.received(again, Frame(application=[b"new"]))
    assert events.payloads == [(2, b"new")]


def test_rest_of_a_frame_is_dropped_when_the_session_ends_within_it(
    session: PeerSession,
    events: Any,
    monkeypatch: pytest.MonkeyPatch,
    two: StreamIdentity,
    connect: Callable[..., None],
) -> None:
    taken: list[bytes] = []

    def take(peer: int, payload: bytes) -> None:
        taken.append(payload)
        session.close()

    monkeypatch.setattr(events, "on_payload", take)
    stream = session.accept(two)
    connect(session)
    session.received(stream, Frame(application=[b"first", b"second"]))
    session.accept(two)
    connect(session)
    assert taken == [b"first"]
    assert [up for _, up, _ in events.peers] == [True, False, True]


def test_malformed_message_is_refused_before_the_up_report_too(
    session: PeerSession, two: StreamIdentity
) -> None:
    stream = session.accept(two)
    with pytest.raises(FrameError):
        session.received(stream, Frame(messages=[RaftMessage()]))


def test_nothing_is_posted_or_sent_outside_a_session(
    session: PeerSession, two: StreamIdentity, connect: Callable[..., None]
) -> None:
    message = Message(HEARTBEAT, 1, 1, 2, 1)
    connect(session)
    assert not session.post(message)
    assert not session.send(b"x")
    session.accept(two)
    assert session.post(message)
    assert session.send(b"x")
    session.link_lost()
    assert not session.post(message)
    assert not session.send(b"x")


@pytest.mark.parametrize(("incoming", "outgoing"), [(1, 2), (2, 1)])
def test_streams_of_different_processes_make_no_session(
    session: PeerSession,
    events: Any,
    incoming: int,
    outgoing: int,
    connect: Callable[..., None],
    identity_of: Identify,
) -> None:
    stream = session.accept(identity_of(2, incoming))
    connect(session, identity_of(2, outgoing))
    assert events.peers == []
    assert stream.open == (incoming > outgoing)
    assert session.link.connected == (outgoing > incoming)


@pytest.mark.parametrize(("incoming", "outgoing"), [(1, 2), (2, 1)])
def test_stream_to_an_earlier_process_gives_way_to_one_from_a_later(
    session: PeerSession,
    incoming: int,
    outgoing: int,
    connect: Callable[..., None],
    identity_of: Identify,
) -> None:
    connect(session, identity_of(2, outgoing))
    stream = session.accept(identity_of(2, incoming))
    assert stream.open == (incoming > outgoing)
    assert session.link.connected == (outgoing > incoming)


def test_equal_boot_counts_of_two_disks_make_no_session(
    session: PeerSession, events: Any, connect: Callable[..., None], identity_of: Identify
) -> None:
    lost = session.accept(identity_of(2))
    connect(session, identity_of(2, disk=99))
    assert not lost.open
    assert events.peers == []
    found = session.accept(identity_of(2, disk=99))
    assert found.open
    assert events.peers == [(2, True, 1)]
    assert session.generation == 99


class Copied:
    """A session with a node of which a second process calls, started from a copy of its disk."""

    def __init__(self, events: Any, identity_of: Identify) -> None:
        self.now = 100.0
        self.session = PeerSession(2, "127.0.0.1:1", identity_of(1), events, lambda: self.now)
        self.first = replace(identity_of(2), process=70)
        self.second = replace(identity_of(2, 2), process=80, starts=((1, 0), (2, 0)))
        self.stream = self.session.accept(self.first)

    def hear(self) -> None:
        """Receive a beat of the first process."""
        self.session.received(self.stream, Frame())


@pytest.fixture
def copied(events: Any, identity_of: Identify) -> Copied:
    return Copied(events, identity_of)


def test_second_process_waits_until_the_first_has_gone(copied: Copied) -> None:
    with pytest.raises(StreamRefusedError, match="still heard") as refused:
        copied.session.judge(copied.second)
    assert not isinstance(refused.value, CloneRefusedError)
    copied.session.ended(copied.stream)
    copied.session.judge(copied.second)


def test_second_process_is_a_copy_once_the_first_was_heard_long_enough(copied: Copied) -> None:
    for expected in (StreamRefusedError, StreamRefusedError, CloneRefusedError):
        with pytest.raises(expected) as refused:
            copied.session.judge(copied.second)
        assert type(refused.value) is expected
        copied.now += CLONE_HEARD_S * 0.6
        copied.hear()
    copied.session.judge(copied.first)
    assert copied.stream.open


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (MessageKind.MESSAGE_KIND_PRE_VOTE, 70),
        (MessageKind.MESSAGE_KIND_JOIN, 70),
        (MessageKind.MESSAGE_KIND_VOTE_REPLY, 80),
        (MessageKind.MESSAGE_KIND_APPEND_REPLY, 80),
        (MessageKind.MESSAGE_KIND_HEARTBEAT, 80),
    ],
)
def test_second_process_takes_the_place_of_the_first_with_its_first_promise(
    copied: Copied, connect: Callable[..., None], kind: MessageKind.ValueType, named: int
) -> None:
    session, second = copied.session, copied.second
    session.ended(copied.stream)
    stream = session.accept(second)
    promise = RaftMessage(kind=kind, group=1, source=2, target=1)
    session.received(stream, Frame(messages=[promise], synced=9))

    def known() -> list[int]:
        return [mark.process for _, mark in session._memory.everything()]

    assert known() == [70], "it is not up, and nothing of it was delivered"
    connect(session, second)
    assert known() == [named]
    session.received(stream, Frame(synced=12))
    [(_, mark)] = session._memory.everything()
    assert mark.batch == (12 if named == 80 else 0)


def test_time_in_which_this_process_stood_still_makes_nobody_a_copy(copied: Copied) -> None:
    with pytest.raises(StreamRefusedError):
        copied.session.judge(copied.second)
    copied.now += 2 * CLONE_HEARD_S
    copied.session.check_liveness(1.0, 2 * CLONE_HEARD_S)
    with pytest.raises(StreamRefusedError) as refused:
        copied.session.judge(copied.second)
    assert not isinstance(refused.value, CloneRefusedError)
    copied.now += 1.5
    copied.session.check_liveness(1.0, 0.0)
    copied.session.judge(copied.second)


def test_end_that_does_not_belong_to_the_cluster_is_met_but_not_up(
    session: PeerSession, events: Any, connect: Callable[..., None], identity_of: Identify
) -> None:
    new = identity_of(2, formed={})
    session.accept(new)
    connect(session, new)
    assert events.met == [new, new]
    assert (events.peers, session.generation) == ([], -1)
    session.link.identity = identity_of(1, formed={})
    session.accept(identity_of(2))
    connect(session)
    assert events.peers == []
    session.link.identity = identity_of(1)
    connect(session)
    assert events.peers == [(2, True, 1)]
    assert session.generation == 0


def test_peer_that_comes_back_on_another_disk_is_a_warning(
    session: PeerSession, two: StreamIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    first = replace(two, process=5)
    session.accept(first)
    session.accept(replace(first, process=6, boot=2))
    assert not [m for m in caplog.messages if "another disk" in m]
    session.accept(replace(first, process=7, boot=1, disk=0xBEEF))
    session.accept(replace(first, process=7, boot=1, disk=0xBEEF))
    [told] = [r for r in caplog.records if "another disk" in r.message]
    assert told.levelname == "WARNING"
    assert told.message.startswith(f"node 2 came back on another disk (beef, it was {two.disk:x})")


def test_peer_that_calls_is_called_where_it_says_it_is(
    session: PeerSession, two: StreamIdentity
) -> None:
    session.move("configured:1")
    assert session.link.address == "configured:1"
    session.accept(replace(two, address="announced:1"))
    assert session.link.address == "announced:1"
    session.move("elsewhere:1")
    assert (session.address, session.link.address) == ("elsewhere:1", "announced:1")
