"""Gates: order of waiters, none of which starves."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.account import Account
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import QUANTUM_BYTES, Gate, GateScheduler, Waiter
from headrace_broker.model.flow import CONNECTION, LIMIT_QUEUE, Cause

BATCH_MAX = 2 * QUANTUM_BYTES
ENDLESS = 1 << 40


class Bells(GateScheduler):
    """Remembers who rang."""

    def __init__(self) -> None:
        self.rung: list[Gate] = []

    def ring(self, gate: Gate) -> None:
        self.rung.append(gate)


class Holder(Waiter):
    """Holds batches, each of which goes as a whole."""

    def __init__(self, gate: Gate, owner: Account, batches: list[int]) -> None:
        self.account = owner
        self.batches = deque(batches)
        self.passed = 0
        self.asked = 0
        self.stopped = False
        self.elsewhere = False
        self._gate = gate

    def admit(self, byte_count: int) -> int:
        gone = 0
        self.asked += 1
        while self.batches and not self.stopped and gone < byte_count and self._gate.room:
            gone += self.batches.popleft()
        self.passed += gone
        if self.batches and not (self.stopped and self.elsewhere):
            self._gate.wait(self)
        return gone


class Endless(Holder):
    """Always has more of the same batches."""

    def admit(self, byte_count: int) -> int:
        gone = 0
        while gone < byte_count:
            gone += self.batches[0]
            self.batches.rotate(-1)
        self.passed += gone
        self._gate.wait(self)
        return gone


def account(name: str, weight: int = 1) -> Account:
    opened = Account(Cause(name, CONNECTION, name, "n1"), FlowLimits())
    opened.weight = weight
    return opened


def waiting(gate: Gate, owner: Account, batches: list[int]) -> Holder:
    holder = Holder(gate, owner, batches)
    gate.wait(holder)
    return holder


def closed_gate(bell: GateScheduler | None = None) -> Gate:
    gate = Gate(LIMIT_QUEUE, 7, bell)
    gate.set_room(False)
    return gate


def test_a_gate_is_open_while_there_is_room_and_nobody_waits() -> None:
    gate = closed_gate()
    holder = waiting(gate, account("a"), [1])
    gate.set_room(True)
    assert (gate.room, gate.is_open) == (True, False)
    gate.serve(10)
    assert holder.passed == 1
    assert gate.is_open


def test_nothing_passes_a_closed_gate() -> None:
    gate = closed_gate()
    holder = waiting(gate, account("a"), [1])
    assert gate.serve(10) == 0
    assert holder.asked == 0
    assert gate.waiting_count == 1


def test_who_has_left_is_not_asked_and_may_come_again() -> None:
    gate = closed_gate()
    holder = waiting(gate, account("a"), [1])
    gate.leave(holder)
    gate.leave(holder)
    gate.set_room(True)
    assert gate.serve(10) == 0
    assert gate.is_open
    gate.wait(holder)
    gate.wait(holder)
    assert gate.waiting_count == 1
    assert gate.serve(10) == 1


def test_accounts_share_evenly_however_many_channels_they_have() -> None:
    gate = closed_gate()
    many, one = account("many"), account("one")
    crowd = [waiting(gate, many, [1000] * 10_000) for _ in range(100)]
    single = waiting(gate, one, [1000] * 10_000)
    gate.set_room(True)
    gate.serve(20 * QUANTUM_BYTES)
    passed = sum(holder.passed for holder in crowd)
    assert abs(passed - single.passed) <= QUANTUM_BYTES + 1000


def test_weights_are_those_of_accounts_that_wait() -> None:
    gate = Gate(LIMIT_QUEUE, 7)
    gate.set_room(False)
    heavy, light = account("heavy"), account("light")
    heavy.weight = 5
    assert gate.waiting_weight() == 0
    first, _ = waiting(gate, heavy, [1]), waiting(gate, heavy, [1])
    waiting(gate, light, [1])
    assert gate.waiting_weight() == 6
    gate.leave(first)
    assert gate.waiting_weight() == 6
    gate.set_room(True)
    gate.serve(ENDLESS)
    assert gate.waiting_weight() == 0


def test_channels_of_an_account_go_round_within_its_share() -> None:
    gate = closed_gate()
    owner = account("a")
    first = waiting(gate, owner, [QUANTUM_BYTES] * 10)
    second = waiting(gate, owner, [QUANTUM_BYTES] * 10)
    gate.set_room(True)
    gate.serve(6 * QUANTUM_BYTES)
    assert first.passed == second.passed == 3 * QUANTUM_BYTES


def test_what_a_large_batch_takes_too_much_is_owed_even_by_who_has_nothing_left() -> None:
    gate = closed_gate()
    large, small = account("large"), account("small")
    waiting(gate, large, [10 * QUANTUM_BYTES])
    other = waiting(gate, small, [100] * 100_000)
    gate.set_room(True)
    gate.serve(10 * QUANTUM_BYTES)  # the large one goes, and its line is empty
    again = waiting(gate, large, [10 * QUANTUM_BYTES])
    gate.serve(8 * QUANTUM_BYTES)
    assert again.passed == 0
    assert other.passed >= 8 * QUANTUM_BYTES
    gate.serve(4 * QUANTUM_BYTES)
    assert again.passed == 10 * QUANTUM_BYTES


def test_who_waits_where_there_is_room_rings_once_until_it_is_served() -> None:
    bells = Bells()
    gate = Gate(LIMIT_QUEUE, 7, bells)
    owner = account("a")
    waiting(gate, owner, [1])
    waiting(gate, owner, [1])
    assert bells.rung == [gate]
    gate.serve(1)
    assert bells.rung == [gate, gate]  # one is left
    gate.serve(1)
    assert bells.rung == [gate, gate]
    gate.set_room(False)
    gate.set_room(True)
    assert bells.rung == [gate, gate]


def test_one_who_is_stopped_by_something_else_is_asked_once_and_holds_nobody_up() -> None:
    gate = closed_gate()
    stuck = waiting(gate, account("stuck"), [5])
    stuck.stopped = True
    busy = waiting(gate, account("busy"), [QUANTUM_BYTES] * 3)
    gate.set_room(True)
    assert gate.serve(ENDLESS) == 3 * QUANTUM_BYTES
    assert busy.passed == 3 * QUANTUM_BYTES
    assert stuck.asked <= 6
    stuck.stopped = False
    assert gate.serve(ENDLESS) == 5


def test_one_who_goes_to_wait_elsewhere_does_not_stand_here() -> None:
    gate = closed_gate()
    holder = waiting(gate, account("a"), [5])
    holder.stopped = True
    holder.elsewhere = True
    gate.set_room(True)
    assert gate.serve(ENDLESS) == 0
    assert gate.is_open


weights = st.lists(st.integers(1, 4), min_size=2, max_size=6)


@given(
    weights,
    st.lists(st.integers(500, BATCH_MAX), min_size=1, max_size=20),
    st.lists(st.integers(1, 8 * QUANTUM_BYTES), min_size=1, max_size=30),
)
def test_shares_are_within_a_turn_of_the_weights(
    shares: list[int], sizes: list[int], budgets: list[int]
) -> None:
    gate = closed_gate()
    holders = []
    for number, weight in enumerate(shares):
        holder = Endless(gate, account(str(number), weight), sizes)
        holder.batches.rotate(number)
        gate.wait(holder)
        holders.append(holder)
    gate.set_room(True)
    for budget in budgets:
        gate.serve(budget)
    for one in holders:
        for other in holders:
            gap = one.passed / one.account.weight - other.passed / other.account.weight
            assert gap <= QUANTUM_BYTES + BATCH_MAX


steps = st.lists(
    st.tuples(
        st.sampled_from(["come", "leave", "serve", "close", "open", "stop", "go"]),
        st.integers(0, 11),
    ),
    max_size=60,
)


@given(steps)
def test_no_schedule_loses_a_wake_up_or_starves_anybody(schedule: list[tuple[str, int]]) -> None:
    bells = Bells()
    gate = Gate(LIMIT_QUEUE, 7, bells)
    accounts = [account(str(number), number % 3 + 1) for number in range(4)]
    holders = [Holder(gate, accounts[number % 4], []) for number in range(12)]
    for what, number in schedule:
        holder = holders[number]
        if what == "come":
            holder.batches.append(QUANTUM_BYTES // 3 * (number + 1))
            gate.wait(holder)
        elif what == "leave":
            gate.leave(holder)
            holder.batches.clear()
        elif what == "serve":
            bells.rung.clear()
            gate.serve(number * QUANTUM_BYTES // 2)
        elif what in ("close", "open"):
            gate.set_room(what == "open")
        else:
            holder.stopped = what == "stop"
        held = sum(1 for each in holders if each.batches)
        assert gate.waiting_count == held
        assert gate.is_open == (gate.room and held == 0)
        if gate.room and held > 0:
            assert bells.rung, "somebody waits, there is room, and nobody will serve"
    for holder in holders:
        holder.stopped = False
    gate.set_room(True)
    rounds = 0
    while gate.waiting_count > 0:
        gate.serve(QUANTUM_BYTES)
        rounds += 1
        assert rounds < 10_000
    assert all(not holder.batches for holder in holders)
