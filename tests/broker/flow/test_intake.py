"""Intake of a node: sums, thresholds, sockets that are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate, GateScheduler
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.pending import Pending
from headrace_broker.flow.share import FREE_BYTES, Reader, Share
from headrace_broker.model.limits import LEADER_PENDING_BYTES


class Socket(Reader):
    """Remembers whether it is read."""

    def __init__(self) -> None:
        self.reading = True

    def is_read(self) -> bool:
        return self.reading

    def stalled(self) -> None:
        raise AssertionError("nobody stalls here")

    def may_read(self, reading: bool) -> None:
        assert reading != self.reading, "told what it knows"
        self.reading = reading


class Bells(GateScheduler):
    """Remembers who rang."""

    def __init__(self) -> None:
        self.rung: list[Gate] = []

    def ring(self, gate: Gate) -> None:
        self.rung.append(gate)


def is_open(gate: Gate) -> bool:
    return gate.is_open


def small_limits() -> FlowLimits:
    limits = FlowLimits()
    limits.node_buffer_bytes = 1 << 20
    limits.connection_buffer_bytes = 100_000
    limits.queue_pending_bytes = 100_000
    return limits


def test_a_connection_is_not_read_past_its_share_and_read_again_at_half() -> None:
    intake = Intake(small_limits())
    socket = Socket()
    share = intake.open(socket)
    share.hold(100_000)
    share.parsed(0, 0)
    assert socket.is_read()
    share.hold(1)
    share.parsed(0, 0)
    assert not socket.is_read()
    share.release(50_000)
    assert not socket.is_read()
    share.release(1)
    assert socket.is_read()


def test_what_others_leave_is_shared_when_many_hold_publishes() -> None:
    intake = Intake(small_limits())
    sockets = [Socket() for _ in range(50)]
    shares = [intake.open(socket) for socket in sockets]
    reading = True
    while reading:
        reading = False
        for socket, share in zip(sockets, shares, strict=True):
            if socket.reading:
                share.hold(1000)
                share.parsed(0, 0)
                reading = True
    assert intake.shares.held <= (1 << 20) // 4
    assert max(s.held for s in shares) - min(s.held for s in shares) <= FREE_BYTES + 1000


def test_a_queues_gate_closes_above_its_bound_and_opens_at_half() -> None:
    limits = small_limits()
    intake = Intake(limits)
    pending = Pending(7, limits, intake, 1, None)
    for _ in range(9):
        pending.add(1, 10_000)
    assert is_open(pending.gate)
    pending.add(1, 10_000)  # another one would be too much
    assert not is_open(pending.gate)
    pending.done(49_999)
    assert not is_open(pending.gate)
    pending.done(1)
    assert is_open(pending.gate)
    assert intake.pending == pending.byte_count == 50_000


def test_a_queues_gate_closes_when_its_bound_is_lowered() -> None:
    limits = small_limits()
    pending = Pending(7, limits, Intake(limits), 1, None)
    pending.add(1, 40_000)
    limits.queue_pending_bytes = 30_000
    pending.poll()
    assert not is_open(pending.gate)
    pending.done(25_000)
    assert is_open(pending.gate)


def test_large_publishes_to_a_queue_go_one_at_a_time() -> None:
    limits = small_limits()
    pending = Pending(7, limits, Intake(limits), 1, None)
    pending.add(1, 80_000)
    assert not is_open(pending.gate)
    pending.done(80_000)
    assert is_open(pending.gate)


def test_many_nodes_share_what_a_leader_takes() -> None:
    limits = FlowLimits()
    pending = Pending(7, limits, Intake(limits), 7, None)
    pending.add(1, LEADER_PENDING_BYTES // 7 - 10)
    assert not is_open(pending.gate)


def test_the_intake_closes_when_too_much_is_pending_at_all_queues_together() -> None:
    limits = small_limits()
    limits.queue_pending_bytes = 1 << 30
    intake = Intake(limits)
    one = Pending(7, limits, intake, 1, None)
    other = Pending(8, limits, intake, 1, None)
    one.add(1, 200_000)
    other.add(1, 100_000)
    assert not is_open(intake.gate)
    one.done(200_000)
    assert is_open(intake.gate)


def test_a_turns_budget_closes_the_intake_until_the_next_turn() -> None:
    limits = small_limits()
    bells = Bells()
    intake = Intake(limits, bells)
    intake.take(limits.intake_messages // 2 - 1, 10)
    assert bells.rung == []
    intake.take(2, 10)
    assert bells.rung == [intake.gate]
    intake.take(limits.intake_messages, 10)
    assert not is_open(intake.gate)
    intake.begin_turn()
    assert is_open(intake.gate)
    intake.take(1, limits.intake_bytes)
    assert not is_open(intake.gate)


actions = st.lists(
    st.tuples(
        st.sampled_from(["hold", "release", "quiet", "unquiet", "parsed", "close"]),
        st.integers(0, 4),
        st.integers(0, 200_000),
    ),
    max_size=80,
)


@given(actions)
def test_sums_are_those_of_the_parts_and_nothing_is_left_at_the_end(
    schedule: list[tuple[str, int, int]],
) -> None:
    intake = Intake(small_limits())
    sockets = [Socket() for _ in range(5)]
    shares: list[Share | None] = [intake.open(socket) for socket in sockets]
    quiet = [0] * 5
    for what, at, byte_count in schedule:
        share = shares[at]
        if share is None:
            sockets[at] = Socket()
            shares[at] = intake.open(sockets[at])
        elif what == "hold":
            share.hold(byte_count)
        elif what == "release":
            share.release(min(byte_count, share.held))
        elif what == "quiet":
            share.hold_quietly(byte_count)
            quiet[at] += byte_count
        elif what == "unquiet":
            byte_count = min(byte_count, quiet[at])
            share.release_quietly(byte_count)
            quiet[at] -= byte_count
        elif what == "parsed":
            share.parsed(byte_count, byte_count // 2)
        else:
            share.close()
            share.close()
            shares[at] = None
            quiet[at] = 0
        here = [each for each in shares if each is not None]
        assert intake.shares.held == sum(each.held for each in here) + sum(quiet)
        assert intake.shares.partial == sum(each.partial for each in here)
        assert intake.shares.count == len(here)
    for share in shares:
        if share is not None:
            share.close()
    figures = intake.figures()
    assert (figures.held, figures.partial, figures.unread) == (0, 0, 0)


def test_other_work_spends_the_turns_budget_and_is_no_publish() -> None:
    bells = Bells()
    intake = Intake(FlowLimits(), bells)
    whole = intake.messages_left
    intake.charge(whole)
    assert not is_open(intake.gate)
    assert bells.rung == [intake.gate]
    assert intake.received == 0
    intake.begin_turn()
    assert is_open(intake.gate)
    assert intake.passed == 0
    assert intake.messages_left == whole
