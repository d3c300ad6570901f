from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.limits import (
    FRAME_LARGE_BYTES_TARGET,
    FRAME_PIECE_BYTES_MIN,
    MESSAGE_OVERHEAD_BYTES,
)
from headrace_raftlog.model.message import APPEND, HEARTBEAT, HEARTBEAT_REPLY, VOTE, Message
from headrace_raftlog.model.pieces import Pieces
from headrace_raftlog.transport.large_frame import LargeFrame
from headrace_raftlog.transport.outbox import Outbox

LARGE = b"x" * FRAME_PIECE_BYTES_MIN


def heartbeat(group: int) -> Message:
    return Message(HEARTBEAT, group, 1, 2, 1)


def append(data: bytes, group: int = 1, term: int = 1, index: int = 0) -> Message:
    entries = [Entry(index + 1, term, 0, data)]
    return Message(APPEND, group, 1, 2, term, index=index, entries=entries)


def large_frame(outbox: Outbox) -> LargeFrame:
    frame = outbox.next_large_frame()
    assert frame is not None
    outbox.large_frame_sent()
    return frame


def test_everything_that_gathered_leaves_in_one_frame() -> None:
    outbox = Outbox()
    for group in range(1, 101):
        assert outbox.post(heartbeat(group))
        assert outbox.post(append(b"", group))
        assert outbox.send(b"payload %d" % group)
    frame = outbox.next_frame()
    assert [m.group for m in frame.messages] == 2 * list(range(1, 101))
    assert list(frame.application) == [b"payload %d" % group for group in range(1, 101)]
    assert outbox.is_empty()
    assert outbox.control_bytes == outbox.raft_bytes == outbox.application_bytes == 0


def test_full_queue_of_control_refuses_and_empties_again() -> None:
    outbox = Outbox(control_bytes_max=10 * MESSAGE_OVERHEAD_BYTES)
    taken = [outbox.post(heartbeat(group)) for group in range(12)]
    assert taken == [True] * 10 + [False] * 2
    assert len(outbox.next_frame().messages) == 10
    assert outbox.post(heartbeat(1))


def test_full_application_lane_refuses_and_keeps_what_it_took() -> None:
    outbox = Outbox(application_bytes_max=4 * (100 + MESSAGE_OVERHEAD_BYTES))
    taken = [outbox.send(bytes([i]) * 100) for i in range(6)]
    assert taken == [True] * 4 + [False] * 2
    assert list(outbox.next_frame().application) == [bytes([i]) * 100 for i in range(4)]


def test_one_item_above_the_bound_is_taken_alone_and_heartbeats_still_are() -> None:
    outbox = Outbox(raft_bytes_max=100, application_bytes_max=100)
    assert outbox.post(append(b"x" * 1000))
    assert not outbox.post(append(b""))
    assert outbox.post(heartbeat(1))
    assert outbox.send(b"y" * 1000)
    assert not outbox.send(b"")


def test_quick_frames_are_cut_near_their_target_and_no_queue_starves() -> None:
    outbox = Outbox()
    piece = b"x" * (FRAME_PIECE_BYTES_MIN // 5)
    for group in range(6):
        outbox.post(append(piece, group))
        outbox.send(piece)
    counts = []
    while not outbox.is_empty():
        frame = outbox.next_frame()
        assert frame.ByteSize() <= 2 * FRAME_PIECE_BYTES_MIN
        counts.append((len(frame.messages), len(frame.application)))
    assert counts == [(4, 4), (2, 2)]


def test_control_leaves_while_data_has_to_wait() -> None:
    outbox = Outbox()
    outbox.post(append(b"x"))
    outbox.send(b"y")
    outbox.post(heartbeat(2))
    frame = outbox.next_frame(with_data=False)
    assert [m.group for m in frame.messages] == [2]
    assert not frame.application
    assert len(outbox.next_frame().messages) == 1
    assert outbox.is_empty()


def test_a_frame_may_leave_with_nothing_though_control_waits() -> None:
    outbox = Outbox()
    outbox.post(heartbeat(2))
    assert not outbox.next_frame(with_control=False, with_data=False).messages
    assert [m.group for m in outbox.next_frame().messages] == [2]


def test_control_of_the_catalog_passes_that_of_all_other_groups() -> None:
    outbox = Outbox()
    many = 2 * FRAME_PIECE_BYTES_MIN // MESSAGE_OVERHEAD_BYTES
    for group in range(1, many + 1):
        outbox.post(heartbeat(group))
    outbox.post(heartbeat(CATALOG_GROUP))
    outbox.post(Message(VOTE, CATALOG_GROUP, 1, 2, 1))
    groups: list[int] = []
    frames = 0
    while not outbox.is_empty():
        groups += [m.group for m in outbox.next_frame().messages]
        frames += 1
    assert frames > 1
    assert groups == [CATALOG_GROUP, CATALOG_GROUP, *range(1, many + 1)]
    assert outbox.control_bytes == 0
    outbox.post(heartbeat(CATALOG_GROUP))
    assert outbox.has_control()
    outbox.clear()
    assert outbox.is_empty()


def test_large_items_keep_out_of_quick_frames_and_take_turns() -> None:
    outbox = Outbox()
    for index in range(2):
        outbox.post(append(b"x" * FRAME_LARGE_BYTES_TARGET, index=index))
        outbox.send(LARGE * 64)
    outbox.post(heartbeat(2))
    assert [m.group for m in outbox.next_frame().messages] == [2]
    kinds = [len(large_frame(outbox).messages) for _ in range(4)]
    assert kinds in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert outbox.is_empty()


def test_append_of_a_group_never_overtakes_a_large_one_and_those_of_others_do() -> None:
    outbox = Outbox()
    outbox.post(append(LARGE, 1))
    frame = outbox.next_large_frame()
    outbox.post(append(b"", 1, index=1))
    outbox.post(append(b"", 2))
    assert [m.group for m in outbox.next_frame().messages] == [2]
    assert frame is not None
    assert [len(m.entries[0].data) for m in frame.messages] == [len(LARGE)]
    outbox.large_frame_sent()
    assert [m.index for m in large_frame(outbox).messages] == [1]
    outbox.post(append(b"", 1, index=2))
    assert [m.index for m in outbox.next_frame().messages] == [2]


def test_large_append_waits_for_quick_ones_before_it() -> None:
    outbox = Outbox()
    outbox.post(append(b"", 1))
    outbox.post(append(LARGE, 1, index=1))
    assert outbox.next_large_frame() is None
    assert [m.index for m in outbox.next_frame().messages] == [0]
    assert [m.index for m in large_frame(outbox).messages] == [1]


def test_payloads_stay_in_order_whatever_their_sizes() -> None:
    outbox = Outbox()
    sent = [b"a", LARGE, b"b", b"c", LARGE + b"d"]
    for payload in sent:
        outbox.send(payload)
    assert outbox.next_large_frame() is None
    arrived: list[bytes | Pieces] = list(outbox.next_frame().application)
    frame = outbox.next_large_frame()
    assert frame is not None
    outbox.send(b"e")
    assert not outbox.next_frame().application
    outbox.large_frame_sent()
    arrived += list(frame.application)
    while outbox.has_large():
        arrived += list(large_frame(outbox).application)
    assert arrived == [*sent, b"e"]


def test_what_an_earlier_leadership_sends_gives_way() -> None:
    outbox = Outbox()
    outbox.post(append(LARGE, 1, term=1))
    outbox.post(append(LARGE, 2, term=1))
    outbox.post(append(LARGE, 1, term=2))
    frame = large_frame(outbox)
    assert [(m.group, m.term) for m in frame.messages] == [(2, 1), (1, 2)]
    assert outbox.raft_bytes == 0
    assert outbox.is_empty()


def test_clear_drops_everything() -> None:
    outbox = Outbox()
    outbox.post(heartbeat(1))
    outbox.post(append(LARGE))
    outbox.send(b"x")
    outbox.send(LARGE)
    outbox.next_large_frame()
    outbox.clear()
    assert outbox.is_empty()
    assert outbox.control_bytes == outbox.raft_bytes == outbox.application_bytes == 0
    outbox.send(b"y")
    assert list(outbox.next_frame().application) == [b"y"]


@pytest.mark.parametrize("kind", [HEARTBEAT, HEARTBEAT_REPLY])
def test_of_heartbeats_that_wait_the_newest_leaves(kind: int) -> None:
    outbox = Outbox()
    outbox.post(Message(VOTE, 1, 1, 2, 1))
    for beat in range(1, 1001):
        context = 7 if beat == 900 else 0
        assert outbox.post(Message(kind, 1, 1, 2, 1, commit=beat, index=beat, context=context))
        assert outbox.post(Message(kind, 2, 1, 2, 1, commit=beat, quiesce=beat == 1000))
    assert outbox.control_bytes == 3 * MESSAGE_OVERHEAD_BYTES
    _, first, second = outbox.next_frame().messages
    assert (first.group, first.commit, first.index, first.context) == (1, 1000, 1000, 7)
    assert (second.group, second.commit, second.quiesce) == (2, 1000, True)
    assert outbox.is_empty()
    assert outbox.control_bytes == 0
    outbox.post(Message(kind, 1, 1, 2, 1, commit=1001))
    assert [m.commit for m in outbox.next_frame().messages] == [1001]


@pytest.mark.parametrize(
    "other",
    [
        Message(HEARTBEAT, 1, 1, 2, 2),
        Message(HEARTBEAT, 1, 3, 2, 1),
        Message(HEARTBEAT, 1, 1, 3, 1),
        Message(HEARTBEAT, 1, 1, 2, 1, reject=True),
        Message(HEARTBEAT_REPLY, 1, 1, 2, 1),
    ],
)
def test_heartbeat_of_another_leadership_leaves_besides(other: Message) -> None:
    outbox = Outbox()
    outbox.post(heartbeat(1))
    outbox.post(other)
    assert len(outbox.next_frame().messages) == 2


def test_heartbeats_that_were_dropped_are_not_waited_for() -> None:
    outbox = Outbox()
    outbox.post(heartbeat(1))
    outbox.clear()
    outbox.post(heartbeat(1))
    assert len(outbox.next_frame().messages) == 1
