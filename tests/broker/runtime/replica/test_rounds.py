"""Which commands wait for others at a queue's leader, and when they go."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headrace_broker.core.queue.command.command import (
    ACCEPT,
    ACQUIRE,
    CLOSE,
    CONFIGURE,
    ENQUEUE,
    FORGET,
    NODE_DOWN,
    PURGE,
    SETTLE,
    STAMP_BYTES,
    TICK,
)
from headrace_broker.model.limits import ROUND_BYTES, ROUNDS_UNDER_WAY
from headrace_broker.runtime.contract.port import Attachment, PendingConfirm
from headrace_broker.runtime.replica.rounds import Rounds


class Leader:
    """A log that accepts entries, unless it is full, and applies them on demand."""

    def __init__(self) -> None:
        self.rounds = Rounds(self._propose)
        self.saturated = False
        self.full = False
        self.log: list[tuple[int, bytes]] = []
        self.refused: list[tuple[int, bytes]] = []
        self._applied = 0

    def _propose(self, session: int, data: bytes) -> None:
        if self.full:
            self.refused.append((session, data))
        else:
            self.log.append((session, data))
            self.rounds.proposed(data)

    def command(self, session: int, kind: int, rest: bytes = b"") -> bool:
        data = bytes([kind]) + rest
        kept = self.rounds.keeps(session, data, self.saturated)
        if not kept:
            self._propose(session, data)
        return kept

    def apply(self, count: int) -> None:
        for _ in range(min(count, len(self.log) - self._applied)):
            self._applied += 1
            self.rounds.applied(self.log[self._applied - 1][1][0])

    @property
    def sessions(self) -> list[int]:
        return [session for session, _ in self.log]


def test_first_rounds_go_at_once_and_what_comes_behind_goes_together():
    leader = Leader()
    assert [leader.command(n, SETTLE) for n in range(ROUNDS_UNDER_WAY)] == [False, False]
    assert leader.command(7, SETTLE)
    assert leader.command(8, SETTLE)
    leader.apply(1)
    assert leader.sessions == [0, 1, 7, 8]
    assert leader.command(9, SETTLE)
    leader.apply(1)
    assert leader.sessions == [0, 1, 7, 8, 9]


def test_round_of_many_ends_with_its_last():
    leader = Leader()
    for session in range(5):
        leader.command(session, SETTLE)
    leader.apply(2)
    assert leader.sessions == [0, 1, 2, 3, 4]
    leader.command(5, SETTLE)
    assert leader.command(6, SETTLE)
    leader.apply(2)
    assert leader.sessions[5:] == [5]
    leader.apply(1)
    assert leader.sessions[5:] == [5, 6]


def test_publishes_wait_only_while_their_confirms_are_deferred():
    leader = Leader()
    assert not any(leader.command(n, ENQUEUE) for n in range(9))
    leader.apply(9)
    leader.saturated = True
    assert [leader.command(n, ENQUEUE) for n in range(4)] == [False, False, True, True]
    leader.saturated = False
    assert not leader.command(4, ENQUEUE)
    assert leader.sessions[9:] == [0, 1, 2, 3, 4]


def test_settles_do_not_wait_for_publishes_nor_go_with_them():
    leader = Leader()
    leader.saturated = True
    for session in range(9):
        leader.command(session, ENQUEUE)
    assert not leader.command(10, SETTLE)
    assert not leader.command(11, SETTLE)
    assert leader.command(12, SETTLE)
    leader.saturated = False
    assert not leader.command(13, ENQUEUE)
    assert 12 not in leader.sessions


@pytest.mark.parametrize("kind", [PURGE, CLOSE, NODE_DOWN])
def test_other_commands_pass_nothing_that_waits(kind: int):
    leader = Leader()
    leader.saturated = True
    for session in range(4):
        leader.command(session, ENQUEUE)
        leader.command(session, SETTLE)
    assert len(leader.log) == 4
    assert not leader.command(9, kind)
    assert leader.log[-1] == (9, bytes([kind]))
    assert len(leader.log) == 9


def test_what_is_large_does_not_wait_long():
    leader = Leader()
    leader.saturated = True
    for session in range(ROUNDS_UNDER_WAY):
        leader.command(session, ENQUEUE)
    leader.command(2, ENQUEUE, bytes(ROUND_BYTES // 2))
    assert leader.sessions == [0, 1]
    leader.command(3, ENQUEUE, bytes(ROUND_BYTES // 2))
    assert leader.sessions == [0, 1, 2, 3]


def test_rounds_that_the_log_did_not_take_hold_up_nobody():
    leader = Leader()
    leader.full = True
    for session in range(5):
        leader.command(session, SETTLE)
    leader.full = False
    assert not leader.command(9, SETTLE)
    assert leader.sessions == [9]
    leader.apply(1)
    assert leader.command(10, SETTLE) is False


def test_commands_under_way_are_counted_but_for_the_leaders_own():
    leader = Leader()
    for kind in (ENQUEUE, CONFIGURE, SETTLE, NODE_DOWN, TICK, PURGE, FORGET, ACQUIRE):
        leader.command(1, kind)
    counts = [int(leader.rounds.under_way)]
    for _ in leader.log:
        leader.apply(1)
        counts.append(int(leader.rounds.under_way))
    assert counts == [3, 2, 2, 1, 1, 1, 0, 0, 0]


def test_empty_command_goes_on_to_whoever_refuses_it():
    assert not Rounds(lambda _session, _data: None).keeps(1, b"", True)


STEPS = st.one_of(
    st.tuples(st.just("command"), st.sampled_from([SETTLE, ENQUEUE, ENQUEUE, SETTLE, PURGE])),
    st.tuples(st.just("apply"), st.integers(1, 4)),
    st.tuples(st.just("saturated"), st.booleans()),
    st.tuples(st.just("full"), st.booleans()),
)


@given(st.lists(STEPS, max_size=80))
def test_every_command_leaves_once_and_in_order_of_its_lane(steps: list[tuple[str, int]]):
    leader = Leader()
    given_: list[tuple[int, bytes]] = []
    for what, value in steps:
        if what == "command":
            session = len(given_)
            given_.append((session, bytes([value])))
            leader.command(session, value)
        elif what == "apply":
            leader.apply(value)
        elif what == "saturated":
            leader.saturated = bool(value)
        else:
            leader.full = bool(value)
    leader.full = False
    leader.apply(len(given_))  # the releases of this are applied below
    leader.apply(len(given_))
    leader.apply(len(given_))
    assert leader.rounds.under_way == 0
    for kind in (SETTLE, ENQUEUE):
        left = [pair for pair in (*leader.log, *leader.refused) if pair[1][0] == kind]
        assert sorted(left) == [pair for pair in given_ if pair[1][0] == kind]
        taken = [session for session, data in leader.log if data[0] == kind]
        assert taken == sorted(taken)


def open_consumers(world, make_listener, nodes):
    """Return sessions of a consumer each, by nodes."""
    sessions = []
    for node in nodes:
        session = world.open(node, make_listener())
        world.run(session.attach(1, Attachment("c", 1)))
        sessions.append(session)
    return sessions


def settle_and_carry(world, sessions):
    """Settle each one's first message, and deliver the commands to the leader."""
    for session in sessions:
        session.settle(1, ACCEPT, 1, 1)
        session.flush()
    world.carry()


def test_settles_of_many_consumers_share_entries(world, make_listener, publishes):
    sessions = open_consumers(world, make_listener, (1, 2, 3, 1, 2, 3))
    first = sessions[0]
    first.publish(publishes(*[b"x"] * 6), None)
    first.flush()
    world.settle_down()
    before = len(world.log)
    settle_and_carry(world, sessions)
    assert len(world.log) - before == ROUNDS_UNDER_WAY
    world.settle_down()
    assert len(world.log) - before == 6
    assert world.hosts[1].machine.held_count == 0


def test_what_waits_at_a_leader_that_is_deposed_goes_to_the_next(world, make_listener, publishes):
    sessions = open_consumers(world, make_listener, (3, 3, 3, 3))
    pending_confirm = PendingConfirm(1, 4)
    sessions[0].publish(publishes(*[b"x"] * 4), pending_confirm)
    sessions[0].flush()
    world.settle_down()
    settle_and_carry(world, sessions)
    world.lose_uncommitted()
    world.lead(2)
    for session in sessions:
        session.relocate(2)
    world.settle_down()
    assert world.hosts[2].machine.held_count == 0
    assert world.hosts[1].machine.digest() == world.hosts[2].machine.digest()


def test_what_waits_goes_before_the_news_that_its_node_is_gone(world, make_listener, publishes):
    sessions = open_consumers(world, make_listener, (3, 3, 3, 3))
    sessions[0].publish(publishes(*[b"x"] * 4), None)
    sessions[0].flush()
    world.settle_down()
    before = len(world.log)
    settle_and_carry(world, sessions)
    assert len(world.log) - before == ROUNDS_UNDER_WAY
    assert world.hosts[1].node_down(3, 0)
    kinds = [entry.data[STAMP_BYTES] for entry in world.log[before:]]
    assert kinds == [SETTLE] * 4 + [NODE_DOWN]
