"""Sessions without a network: what a peer sends before, within and after one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace_raftlog.model.limits import INBOX_HELD_BYTES_MAX
from headrace_raftlog.model.message import HEARTBEAT, Message
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.pb.transport_pb2 import Frame, MessageKind, RaftMessage
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
