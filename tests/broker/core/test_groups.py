"""Memory of groups stays in proportion to the number of messages."""

from __future__ import annotations

from tests.broker.core.conftest import ANNA, BERT, QueueLog, messages, properties

from headrace_broker.core.queue.command.command import RELEASE, encode_attach
from headrace_broker.core.queue.command.leader_command import encode_acquire


def grouped(key: int, expiration: int = -1) -> tuple[bytes, bytes]:
    return properties(expiration=expiration, headers={b"group": key}), b""


def test_a_message_that_comes_and_goes_leaves_nothing_behind(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    queue.publish(grouped(1), grouped(1), grouped(1))
    queue.apply(encode_attach(ANNA, 1, 1, 9, False, b"", filtered=True))
    queue.apply(encode_acquire(ANNA, 1, [3]))  # so that the group stays Anna's
    for turn in range(1000):
        assert messages(queue.apply(encode_acquire(ANNA, 1, [2]))) != []
        queue.settle(ANNA, turn + 2, RELEASE, (1, turn + 2, turn + 2))
    state = queue.machine._state
    assert [len(group.ids) for group in state.ready.groups.groups.values()] < [100]
    assert len(state.sessions[ANNA].consumers[1].places) < 100


def test_expired_messages_behind_a_waiting_one_leave_nothing_behind(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    queue.publish(grouped(1))
    for _ in range(1000):
        queue.publish(grouped(1, expiration=1))
        queue.now_ms += 2
    queue.tick()
    assert queue.ids() == [1]
    groups = queue.machine._state.ready.groups
    assert [len(group.ids) for group in groups.groups.values()] < [100]
    assert len(groups.loose._expiring) < 100
    assert messages(queue.attach(BERT, 1, 1, 9)) != []
