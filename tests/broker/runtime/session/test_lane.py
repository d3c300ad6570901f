"""Publishes on their way into commands, and what of them is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.core.queue.command.command import Enqueue, stamp_command
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.model.limits import COMMAND_BYTES_MAX
from headrace_broker.model.message import Publish, Publisher
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.session.lane import PublishLane


def publish(body: bytes = b"x", immediate: bool = False) -> Publish:
    return Publish(1, b"\x00\x01q", False, immediate, b"\x00\x00", body)


def sealed(lane: PublishLane) -> list[tuple[int, int, bool]]:
    """First and last number of each command, and whether it is for immediate messages."""
    commands = []
    while lane.gathered:
        pending = lane.seal()
        command = decode_command(stamp_command(1, pending.data))
        assert isinstance(command, Enqueue)
        assert command.seq == pending.first
        commands.append((pending.first, pending.last, bool(command.now)))
    return commands


@pytest.fixture
def lane() -> PublishLane:
    return PublishLane(1)


def test_immediate_messages_stand_in_commands_of_their_own(lane):
    lane.add([publish(), publish()], None)
    lane.add([publish(immediate=True)] * 3, None)
    lane.add([publish()], None)
    lane.add([publish(immediate=True)], None)
    assert sealed(lane) == [(1, 2, False), (3, 5, True), (6, 6, False), (7, 7, True)]
    lane.add([publish(), publish()], None)
    assert sealed(lane) == [(8, 9, False)]


def test_whole_command_may_be_larger_than_others(lane):
    lane.add([publish(b"x" * (COMMAND_BYTES_MAX // 2))] * 4, None)
    pending = lane.seal_whole()
    assert (pending.first, pending.last, len(lane.gathered)) == (1, 4, 0)


def test_refusal_is_noted_on_the_publishes_it_names(lane):
    first, second = PendingConfirm(10, 12), PendingConfirm(13, 13)
    lane.add([publish()] * 3, first)
    lane.add([publish()] * 2, None)  # publishes that nobody asks for
    lane.add([publish()], second)
    sealed(lane)
    lane.refuse(2, 4, False)
    assert (first.refused, second.refused) == ({11, 12}, None)
    lane.refuse(5, 6, True)
    assert (first.refused, second.refused) == ({11, 12}, {13})
    assert (first.fenced, second.fenced) == (False, True)
    assert lane.applied(6) == [first, second]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 10)), max_size=5),
    st.integers(0, 30),
)
def test_refusals_find_their_publishes_whatever_was_applied(groups, ranges, applied):
    lane = PublishLane(1)
    tag, number = 1, 1
    tags: dict[int, int] = {}  # of the publishes with a pending confirm, by number
    pending_confirms = []
    for count, ticketed in groups:
        pending_confirm = PendingConfirm(tag, tag + count - 1) if ticketed else None
        lane.add([publish()] * count, pending_confirm)
        for _ in range(count):
            if pending_confirm is not None:
                tags[number] = tag
                tag += 1
            number += 1
        if pending_confirm is not None:
            pending_confirms.append(pending_confirm)
    sealed(lane)
    gone = lane.applied(applied)
    expected: set[int] = set()
    for first, more in ranges:
        lane.refuse(first, first + more, False)
        expected.update(tags[each] for each in range(first, first + more + 1) if each in tags)
    refused = set().union(
        *(pending_confirm.refused or set() for pending_confirm in pending_confirms)
    )
    over = {
        each
        for pending_confirm in gone
        for each in range(pending_confirm.first, pending_confirm.last + 1)
    }
    assert refused == expected - over


def named(lane: PublishLane) -> list[tuple[bytes, int, list[int]]]:
    """Publisher, epoch and numbers in rows of each command."""
    found = []
    while lane.gathered:
        command = decode_command(stamp_command(1, lane.seal().data))
        assert isinstance(command, Enqueue)
        assert command.named is not None
        assert command.sizes.count == command.named.count
        found.append((command.named.publisher, int(command.named.epoch), command.named.rows))
    return found


def test_numbers_of_a_publisher_go_with_its_messages(lane):
    anna = Publisher(b"anna", 3)
    lane.number(anna, [4, 5, 9])
    lane.add([publish()] * 3, None)
    lane.number(anna, [10])
    lane.add([publish()], None)
    assert named(lane) == [(b"anna", 3, [4, 6, 9, 11])]


def test_numbers_are_cut_where_commands_are(lane):
    anna = Publisher(b"anna", 0)
    lane.number(anna, [1, 2, 4, 7])
    lane.add([publish(b"x" * (COMMAND_BYTES_MAX // 2 - 100))] * 4, None)
    assert named(lane) == [(b"anna", 0, [1, 3]), (b"anna", 0, [4, 5, 7, 8])]


def test_numbers_of_what_was_given_up_are_forgotten(lane):
    anna = Publisher(b"anna", 0)
    lane.number(anna, [1, 2])
    lane.add([publish()] * 2, None)
    lane.take_pending_confirms()
    lane.number(anna, [8])
    lane.add([publish()], None)
    assert named(lane) == [(b"anna", 0, [8, 9])]
