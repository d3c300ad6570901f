from __future__ import annotations

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import FRAME_LANE_BYTES_TARGET, MESSAGE_OVERHEAD_BYTES
from headrace_raftlog.model.message import APPEND, HEARTBEAT, Message
from headrace_raftlog.transport.outbox import Outbox


def heartbeat(group: int) -> Message:
    return Message(HEARTBEAT, group, 1, 2, 1)


def append(data: bytes) -> Message:
    return Message(APPEND, 1, 1, 2, 1, entries=[Entry(1, 1, 0, data)])


def test_everything_that_gathered_leaves_in_one_frame() -> None:
    outbox = Outbox()
    for group in range(1, 101):
        assert outbox.post(heartbeat(group))
        assert outbox.send(b"payload %d" % group)
    frame = outbox.next_frame()
    assert [m.group for m in frame.messages] == list(range(1, 101))
    assert list(frame.application) == [b"payload %d" % group for group in range(1, 101)]
    assert outbox.is_empty()
    assert outbox.raft_bytes == outbox.application_bytes == 0


def test_full_raft_lane_refuses_and_empties_again() -> None:
    outbox = Outbox(raft_bytes_max=10 * MESSAGE_OVERHEAD_BYTES)
    taken = [outbox.post(heartbeat(group)) for group in range(12)]
    assert taken == [True] * 10 + [False] * 2
    assert len(outbox.next_frame().messages) == 10
    assert outbox.post(heartbeat(1))


def test_full_application_lane_refuses_and_keeps_what_it_took() -> None:
    outbox = Outbox(application_bytes_max=4 * (100 + MESSAGE_OVERHEAD_BYTES))
    taken = [outbox.send(bytes([i]) * 100) for i in range(6)]
    assert taken == [True] * 4 + [False] * 2
    assert list(outbox.next_frame().application) == [bytes([i]) * 100 for i in range(4)]


def test_one_item_above_the_bound_is_taken_alone() -> None:
    outbox = Outbox(raft_bytes_max=100, application_bytes_max=100)
    assert outbox.post(append(b"x" * 1000))
    assert not outbox.post(heartbeat(1))
    assert outbox.send(b"y" * 1000)
    assert not outbox.send(b"")


def test_frames_are_cut_near_their_target_and_neither_lane_starves() -> None:
    outbox = Outbox()
    piece = b"x" * (FRAME_LANE_BYTES_TARGET // 4)
    for _ in range(6):
        outbox.post(append(piece))
        outbox.send(piece)
    counts = []
    while not outbox.is_empty():
        frame = outbox.next_frame()
        assert frame.ByteSize() <= 2 * FRAME_LANE_BYTES_TARGET
        counts.append((len(frame.messages), len(frame.application)))
    assert counts == [(3, 3), (3, 3)]


def test_item_above_the_frame_target_travels_alone() -> None:
    outbox = Outbox()
    outbox.post(heartbeat(1))
    outbox.post(append(b"x" * (FRAME_LANE_BYTES_TARGET + 1)))
    outbox.post(heartbeat(2))
    assert [len(outbox.next_frame().messages) for _ in range(3)] == [1, 1, 1]
    assert outbox.is_empty()


def test_clear_drops_everything() -> None:
    outbox = Outbox()
    outbox.post(heartbeat(1))
    outbox.send(b"x")
    outbox.clear()
    assert outbox.is_empty()
    assert outbox.raft_bytes == outbox.application_bytes == 0
