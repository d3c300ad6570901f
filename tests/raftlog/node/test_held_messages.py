from __future__ import annotations

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import HELD_BYTES_MAX, HELD_GROUP_MESSAGES_MAX, HELD_MESSAGES_MAX
from headrace_raftlog.model.message import APPEND, HEARTBEAT, Message
from headrace_raftlog.node.held_messages import HeldMessages


def heartbeat(group: int, term: int = 1) -> Message:
    return Message(HEARTBEAT, group, 1, 2, term)


def test_messages_come_back_by_group_in_order() -> None:
    held = HeldMessages()
    for term in range(5):
        held.hold(heartbeat(1, term))
        held.hold(heartbeat(2, term))
    assert [m.term for m in held.take(2)] == list(range(5))
    assert held.take(2) == []
    assert held.count == 5
    assert [m.group for m in held.take(1)] == [1] * 5
    assert held.count == held.size == 0


def test_what_a_lost_node_sent_is_dropped() -> None:
    held = HeldMessages()
    for group in (1, 2):
        held.hold(Message(HEARTBEAT, group, 3, 2, 7))
        held.hold(heartbeat(group))
        held.hold(Message(HEARTBEAT, group, 3, 2, 8))
    held.hold(heartbeat(3))
    held.drop_from(1)
    assert held.count == 4
    assert held.take(3) == []
    assert [m.term for m in held.take(1)] == [7, 8]
    assert [m.term for m in held.take(2)] == [7, 8]
    assert held.count == held.size == 0


def test_one_group_cannot_push_the_others_out() -> None:
    held = HeldMessages()
    held.hold(heartbeat(1))
    for term in range(HELD_MESSAGES_MAX * 2):
        held.hold(heartbeat(2, term))
    assert [m.term for m in held.take(2)] == list(range(HELD_GROUP_MESSAGES_MAX))
    assert len(held.take(1)) == 1


def test_oldest_groups_go_beyond_the_count() -> None:
    held = HeldMessages()
    for group in range(HELD_MESSAGES_MAX + 10):
        held.hold(heartbeat(group))
    assert held.count == HELD_MESSAGES_MAX
    assert held.take(9) == []
    assert len(held.take(10)) == 1


def test_oldest_groups_go_beyond_the_bytes() -> None:
    held = HeldMessages()
    data = b"x" * (HELD_BYTES_MAX // 4)
    for group in range(10):
        held.hold(Message(APPEND, group, 1, 2, 1, entries=[Entry(1, 1, 0, data)]))
        assert held.size <= HELD_BYTES_MAX
    assert [len(held.take(group)) for group in range(10)] == [0] * 7 + [1] * 3
