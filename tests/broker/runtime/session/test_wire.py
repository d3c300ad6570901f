"""Calls between sessions and hosts as payloads between nodes."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.runtime.conftest import FRAME_DECODER, arrive

from headrace_broker.codecs.batch import encode_batch, message_body, single_head
from headrace_broker.core.queue.command.command import SETTLE, enqueue_head, stamp_command
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionEnd
from headrace_broker.runtime.contract.payload import MALFORMED, encode
from headrace_broker.runtime.session.frame import Completed
from headrace_broker.runtime.session.wire import SessionRouter, encode_run, part_payload
from headrace_raftlog.model.pieces import Pieces

SESSION = session_id(1, 1, 1)  # of node 1
GROUP = 7  # led by node 2


class HostNotes(HostEnd):
    """Notes calls."""

    def __init__(self):
        self.calls = []

    def command(self, session, data):
        self.calls.append(("command", session, data))

    def caused(self, session, data, causes):
        self.calls.append(("caused", session, data, causes))

    def resync(self, session, consumer, number, window, attached, filter_table):
        self.calls.append(("resync", session, consumer, number, window, attached, filter_table))
        return True

    def window(self, session, consumer, byte_count):
        self.calls.append(("window", session, consumer, byte_count))
        return True

    def ask_deferred(self, session):
        self.calls.append(("ask_deferred", session))
        return True


class SessionNotes(SessionEnd):
    """Notes calls."""

    def __init__(self):
        self.calls = []

    def rejected(self, first, last, fenced):
        self.calls.append(("fenced" if fenced else "rejected", first, last))

    def enqueued(self, first, last):
        self.calls.append(("enqueued", first, last))

    def controlled(self, number, status, count):
        self.calls.append(("controlled", number, status, count))

    def run(self, run):
        bodies = [message_body(run.blob, run.base, at) for at in run.positions]
        self.calls.append(("run", run.consumer, run.first, bodies, run.redelivered, run.counts))

    def got(self, number, run, ready_left):
        body = None if run is None else message_body(run.blob, run.base, run.positions[0])
        self.calls.append(("got", number, body, ready_left))

    def gap(self, lane, expected):
        self.calls.append(("gap", lane, expected))

    def refused(self, leader, busy, unknown):
        self.calls.append(("refused", leader, busy, unknown))

    def detached(self, consumer):
        self.calls.append(("detached", consumer))

    def timed_out(self, consumer):
        self.calls.append(("timed_out", consumer))

    def deferred(self, rows):
        self.calls.append(("deferred", list(rows)))

    def completed(self, rows):
        self.calls.append(("completed", list(rows)))

    def still_deferred(self, last, rows):
        self.calls.append(("still_deferred", last, list(rows)))


class Wire:
    """Nodes 1 and 2; payloads arrive at once unless `lost`."""

    def __init__(self):
        self.lost = False
        self.sent = 0
        self.boards = {node: SessionRouter(node, self._send) for node in (1, 2)}
        self.host = HostNotes()
        self.session = SessionNotes()
        self.boards[2].hosts[GROUP] = self.host
        self.boards[1].sessions[SESSION] = self.session
        self.to_host = self.boards[1].host(2, GROUP)
        self.to_session = self.boards[2].session(SESSION)

    def _send(self, node, payload):
        self.sent += 1
        if not self.lost:
            self.boards[node].receive(FRAME_DECODER.decode(payload))
        return not self.lost


@pytest.fixture
def wire():
    """Two nodes."""
    return Wire()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("command", (SESSION, b"\x01\x02")),
        ("resync", (SESSION, 3, 1 << 40, -5, True, b"")),
        ("resync", (SESSION, 3, 1, 5, False, b"\x00\x00\x00\x00")),
        ("window", (SESSION, 3, 1 << 20)),
        ("ask_deferred", (SESSION,)),
    ],
)
def test_calls_to_a_host_arrive_as_they_were(wire, name, arguments):
    getattr(wire.to_host, name)(*arguments)
    assert wire.host.calls == [(name, *arguments)]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("enqueued", (1, 1 << 60)),
        ("controlled", (0, 2, 1 << 40)),
        ("gap", (2, 17)),
        ("refused", (3, False, True)),
        ("refused", (0, True, False)),
        ("detached", (1 << 24,)),
        ("timed_out", (5,)),
        ("completed", ([1, 2, 9, 9],)),
        ("still_deferred", (17, [3, 4])),
    ],
)
def test_calls_to_a_session_arrive_as_they_were(wire, name, arguments):
    getattr(wire.to_session, name)(*arguments)
    assert wire.session.calls == [(name, *arguments)]


def test_run_travels_with_its_own_messages_only(wire, publishes):
    blob = b"head" + encode_batch(publishes(b"a", b"b" * 1000, b"c"))
    wire.to_session.run(DeliveryRun(4, 9, blob, 4, [2, 0], b"\x01\x00", bytes(range(16))))
    assert wire.session.calls == [("run", 4, 9, [b"c", b"a"], b"\x01\x00", bytes(range(16)))]


def test_got_with_and_without_a_message(wire, publishes):
    blob = encode_batch(publishes(b"a"))
    wire.to_session.got(5, DeliveryRun(0, 1, blob, 0, [0], b"\x00"), 3)
    wire.to_session.got(6, None, 0)
    assert wire.session.calls == [("got", 5, b"a", 3), ("got", 6, None, 0)]


def test_refusals_leave_with_the_answer_that_covers_them_or_not_at_all(wire):
    wire.to_session.rejected(2, 3, False)
    wire.to_session.rejected(4, 4, True)
    wire.to_session.rejected(5, 5, False)
    assert wire.session.calls == []
    wire.to_session.enqueued(1, 6)
    assert wire.session.calls == [
        ("rejected", 2, 3),
        ("rejected", 5, 5),
        ("fenced", 4, 4),
        ("enqueued", 1, 6),
    ]
    wire.lost = True
    wire.to_session.rejected(7, 7, False)
    wire.to_session.rejected(8, 8, True)
    wire.to_session.enqueued(7, 8)
    wire.lost = False
    wire.to_session.enqueued(9, 9)
    assert wire.session.calls[4:] == [("enqueued", 9, 9)]


def test_ends_on_the_same_node_are_called_directly(wire):
    assert wire.boards[2].host(2, GROUP) is wire.host
    assert wire.boards[1].session(SESSION) is wire.session
    assert wire.boards[2].host(2, 99) is None
    assert wire.boards[1].session(SESSION + 1) is None


def test_queue_that_is_not_here_is_refused_but_for_windows(wire):
    del wire.boards[2].hosts[GROUP]
    wire.to_host.command(SESSION, b"")
    wire.to_host.resync(SESSION, 1, 1, 1, True, b"")
    wire.to_host.window(SESSION, 1, 1)
    assert wire.session.calls == [("refused", 0, False, True)] * 2


def test_session_that_is_gone_hears_nothing(wire):
    del wire.boards[1].sessions[SESSION]
    wire.to_session.enqueued(1, 1)
    assert wire.session.calls == []


def test_sender_learns_that_a_resync_or_window_did_not_leave(wire):
    assert wire.to_host.resync(SESSION, 1, 1, 1, True, b"")
    assert wire.to_host.window(SESSION, 1, 1)
    wire.lost = True
    assert not wire.to_host.resync(SESSION, 1, 1, 1, True, b"")
    assert not wire.to_host.window(SESSION, 1, 1)


def test_mend_tells_a_session_once_that_something_was_lost(wire):
    wire.lost = True
    wire.to_session.enqueued(1, 1)
    wire.to_session.enqueued(2, 2)
    wire.boards[2].mend()  # lost too, so it stays owed
    wire.lost = False
    wire.boards[2].mend()
    wire.boards[2].mend()
    assert wire.session.calls == [("refused", 2, False, False)]


def test_nothing_is_owed_to_a_node_that_went(wire):
    wire.lost = True
    wire.to_session.enqueued(1, 1)
    wire.boards[2].forget(3)
    assert wire.boards[2]._missed == {SESSION}
    wire.boards[2].forget(1)
    wire.lost = False
    wire.boards[2].mend()
    assert wire.session.calls == []


# What is on the wire, byte for byte: a change of it is a change of the transport's version


def test_payloads_keep_their_bytes(publishes):
    sent = []

    def send(node, payload):
        sent.append(payload)
        return True

    board = SessionRouter(2, send)
    to_session, to_host = board.session(SESSION), board.host(3, GROUP)
    assert to_session is not None
    assert to_host is not None
    to_session.rejected(2, 2, False)
    to_session.enqueued(1, 2)
    to_session.timed_out(3)
    blob = encode_batch(publishes(b"a"))
    to_session.run(DeliveryRun(4, 9, blob, 0, [0], b"\x01", bytes((0, 0, 0, 1, 0, 0, 0, 2))))
    to_host.resync(SESSION, 3, 5, 6, True, b"ab")
    assert [msgspec.msgpack.decode(each) for each in sent] == [
        ["enqueued", SESSION, 1, 2, [2, 2], [], []],
        ["timed_out", SESSION, 3],
        ["run", SESSION, 4, 9, b"\x01", bytes((0, 0, 0, 1, 0, 0, 0, 2)), blob],
        ["resync", GROUP, SESSION, 3, 5, 6, True, b"ab"],
    ]


def test_fields_of_a_later_release_are_passed_over_and_kinds_are_refused(wire):
    more = msgspec.msgpack.encode(["timed_out", SESSION, 3, "more"])
    wire.boards[1].receive(FRAME_DECODER.decode(more))
    assert wire.session.calls == [("timed_out", 3)]
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'later'"):
        FRAME_DECODER.decode(msgspec.msgpack.encode(["later", SESSION]))


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_refused(data, large):
    board = SessionRouter(1, lambda node, payload: True)
    payload = b"\xc1\0\0\0" + data if large else data
    cut, room = part_payload(payload, len(payload))
    assert cut == 0 or room > 0
    with contextlib.suppress(*MALFORMED):
        if not board.receive_large(payload):
            board.receive(FRAME_DECODER.decode(payload))


LARGE = bytes(range(256)) * (2 * LARGE_BYTES // 256)


class PieceWire(Wire):
    """Carries large payloads in pieces, as the transport does."""

    def __init__(self):
        super().__init__()
        self.payloads = []

    def _send(self, node, payload):
        self.payloads.append(payload)
        arrive(self.boards[node], payload.joined() if isinstance(payload, Pieces) else payload)
        return True


class LargeHost(HostNotes):
    """Notes large commands too."""

    def large(self, session, command, causes):
        self.calls.append(("large", session, command.stamped(5), causes))


@pytest.fixture
def pieces():
    """Two nodes whose payloads may be large."""
    wire = PieceWire()
    wire.host = wire.boards[2].hosts[GROUP] = LargeHost()
    return wire


def large_command():
    publish = Publish(1, b"\x00\x01q", False, False, b"\x00\x00", LARGE)
    return LargeCommand([enqueue_head(SESSION, 3, False) + single_head(publish), LARGE, b""])


@pytest.mark.parametrize("causes", [[], [1, 7, 3, 0]])
def test_large_command_arrives_as_it_was_and_its_body_leaves_uncopied(pieces, causes):
    whole = b"".join(large_command().pieces())
    pieces.to_host.large(SESSION, large_command(), causes)
    assert pieces.host.calls == [("large", SESSION, stamp_command(5, whole), causes)]
    assert any(piece is LARGE for piece in pieces.payloads[0].pieces)


def test_large_command_with_a_long_head_is_read_as_a_whole(pieces):
    whole = b"".join(large_command().pieces())
    causes = list(range(2 * 64))
    pieces.to_host.large(SESSION, large_command(), causes)
    assert pieces.host.calls == [("caused", SESSION, whole, causes)]


def test_command_that_is_sent_whole_is_read_as_a_whole(pieces):
    whole = b"".join(large_command().pieces())
    pieces.to_host.command(SESSION, whole)
    pieces.to_host.caused(SESSION, whole, [1, 7])
    assert pieces.host.calls == [("command", SESSION, whole), ("caused", SESSION, whole, [1, 7])]


def test_large_command_that_brings_no_messages_is_one_as_any(pieces):
    settle = bytes((SETTLE, 1)) + bytes(LARGE_BYTES)
    pieces.to_host.command(SESSION, settle)
    assert pieces.host.calls == [("command", SESSION, settle)]


def test_large_command_for_a_queue_that_is_not_here_is_refused(pieces):
    pieces.boards[1].host(2, GROUP + 1).large(SESSION, large_command(), [])
    assert pieces.session.calls == [("refused", 0, False, True)]


def a_large_run(bodies):
    publishes = [Publish(1, b"\x01x\x01k", False, False, b"\x00\x00", body) for body in bodies]
    blob = b"before" + encode_batch(publishes)
    return DeliveryRun(3, 9, blob, 6, list(range(len(bodies))), bytes(len(bodies)), b"")


@pytest.mark.parametrize("bodies", [[LARGE], [b"small", LARGE, b""]])
def test_large_run_arrives_as_it_was_and_its_messages_leave_uncopied(pieces, bodies):
    run = a_large_run(bodies)
    pieces.to_session.run(run)
    pieces.to_session.got(4, run, 17)
    assert pieces.session.calls == [
        ("run", 3, 9, bodies, bytes(len(bodies)), b""),
        ("got", 4, bodies[0], 17),
    ]
    for payload in pieces.payloads:
        views = [each for each in payload.pieces if isinstance(each, memoryview)]
        assert [view.obj is run.blob for view in views] == [True] * len(bodies)


def test_large_run_that_is_sent_whole_is_read_alike(pieces):
    run = a_large_run([b"small", LARGE])
    arrive(pieces.boards[1], encode(encode_run(SESSION, run)))
    assert pieces.session.calls == [("run", 3, 9, [b"small", LARGE], b"\0\0", b"")]


def test_other_large_payloads_are_left_alone(pieces):
    payload = encode(Completed(SESSION, [LARGE_BYTES] * LARGE_BYTES))
    assert not pieces.boards[1].receive_large(payload)
    assert part_payload(payload[:64], len(payload)) == (0, 0)
