"""Accounts, credit and gates together, on random schedules: sums are kept, no waiter starves.

A second implementation of the contract: connections with channels publish to queues; loans are kept
one by one here, and compared with what the accounts say.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace_broker.flow.account import Account, AccountOwner, Ledger
from headrace_broker.flow.credit import Credit
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate, GateScheduler, Waiter
from headrace_broker.model.flow import CONNECTION, LIMIT_QUEUE, Cause

QUEUES = (1, 2, 3)
QUEUE_BYTES = 60


@dataclass
class Loan:
    """A batch that a queue has not applied."""

    channel: Channel
    messages: int
    byte_count: int


@dataclass
class Batch:
    """Publishes for some queues at once."""

    messages: int
    byte_count: int
    queues: tuple[int, ...]


class Bells(GateScheduler):
    def __init__(self) -> None:
        self.rung: list[Gate] = []

    def ring(self, gate: Gate) -> None:
        assert gate not in self.rung, "it rings once until it is served"
        self.rung.append(gate)


class Queue:
    """A queue's gate, and publishes under way to it."""

    def __init__(self, group: int, bells: Bells) -> None:
        self.group = group
        self.gate = Gate(LIMIT_QUEUE, group, bells)
        self.loans: deque[Loan] = deque()

    @property
    def byte_count(self) -> int:
        return sum(loan.byte_count for loan in self.loans)

    def poll(self) -> None:
        if self.gate.room and self.byte_count > QUEUE_BYTES:
            self.gate.set_room(False)
        elif not self.gate.room and self.byte_count <= QUEUE_BYTES // 2:
            self.gate.set_room(True)


class Connection(AccountOwner):
    """Channels with one account; told to go on, it does so in a turn of its own."""

    def __init__(self, name: str, world: World) -> None:
        self.world = world
        self.channels: list[Channel] = []
        self.told = 0
        self.account = world.ledger.open(Cause(name, CONNECTION, name, "n1"), self)

    def on_clear_funds(self) -> None:
        assert not self.account.in_debt
        self.told += 1
        self.world.due.append(self)


class Channel(Waiter):
    """Holds what a limit stops, in order."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.account: Account = connection.account
        self.credit = Credit(connection.world.limits)
        self.held: deque[Batch] = deque()
        self.gate: Gate | None = None
        self.open = True

    def publish(self, batch: Batch) -> None:
        self.held.append(batch)
        if len(self.held) == 1:
            self.go_on()

    def go_on(self) -> None:
        if self.gate is None:
            self._pass_on(1 << 40, served=False)

    def admit(self, byte_count: int) -> int:
        self.gate = None
        gone = self._pass_on(byte_count, served=True)
        return int(gone)

    def _pass_on(self, byte_count: int, *, served: bool) -> int:
        gone = 0
        while self.held and gone < byte_count:
            if self.account.in_debt or not self.credit.is_left():
                return gone  # woken by the account, or by what is applied
            world = self.connection.world
            for queue in (world.queues[group] for group in self.held[0].queues):
                if not (queue.gate.room if served else queue.gate.is_open):
                    self._wait(queue.gate)
                    return gone
            batch = self.held.popleft()
            self.credit.spend(batch.messages)
            for group in batch.queues:
                world.queues[group].loans.append(Loan(self, batch.messages, batch.byte_count))
                self.account.balance(group).borrow(batch.messages, batch.byte_count)
                world.queues[group].poll()
                gone += batch.byte_count
            self.credit.passed_on(batch.messages)
        if self.held and served:
            self._wait(world.queues[self.held[0].queues[0]].gate)
        return gone

    def _wait(self, gate: Gate) -> None:
        self.gate = gate
        gate.wait(self)


class World:
    """All of it, and a naive view of the debts."""

    def __init__(self) -> None:
        self.limits = FlowLimits()
        self.limits.account_messages, self.limits.account_bytes = 20, 200
        self.limits.credit, self.limits.credit_more = 10, 5
        self.ledger = Ledger(self.limits)
        self.bells = Bells()
        self.queues = {group: Queue(group, self.bells) for group in QUEUES}
        self.connections: list[Connection] = []
        self.gone: list[Connection] = []
        self.due: list[Connection] = []
        self.opened = 0

    def loans(self, account: Account, group: int) -> list[Loan]:
        return [each for each in self.queues[group].loans if each.channel.account is account]

    def finish(self, queue: Queue, loan: Loan) -> None:
        """A batch is applied, refused or dropped."""
        queue.loans.remove(loan)
        loan.channel.account.balance(queue.group).repay(loan.messages, loan.byte_count)
        queue.poll()

    def turn(self) -> None:
        """Everything that was put off to a later turn of the loop."""
        due, self.due = self.due, []
        for connection in due:
            for channel in connection.channels:
                channel.go_on()
        rung, self.bells.rung = self.bells.rung, []
        for gate in rung:
            gate.serve(100)


class Chain(RuleBasedStateMachine):
    """Operations of the chain, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(channels=st.integers(1, 3))
    def connect(self, channels: int) -> None:
        world = self.world
        if len(world.connections) < 4:
            world.opened += 1
            connection = Connection(f"c{world.opened}", world)
            connection.channels = [Channel(connection) for _ in range(channels)]
            world.connections.append(connection)

    @precondition(lambda self: self.world.connections)
    @rule(
        which=st.integers(0, 11),
        messages=st.integers(1, 15),
        byte_count=st.integers(0, 90),
        queues=st.sets(st.sampled_from(QUEUES), min_size=1),
    )
    def publish(self, which: int, messages: int, byte_count: int, queues: set[int]) -> None:
        channels = [each for c in self.world.connections for each in c.channels]
        channels[which % len(channels)].publish(Batch(messages, byte_count, tuple(sorted(queues))))

    @rule(group=st.sampled_from(QUEUES), count=st.integers(1, 4), last=st.booleans())
    def apply(self, group: int, count: int, last: bool) -> None:
        """Some are applied in order; or the newest are refused before those."""
        queue = self.world.queues[group]
        for _ in range(min(count, len(queue.loans))):
            self.world.finish(queue, queue.loans[-1 if last else 0])

    @rule()
    def turn(self) -> None:
        self.world.turn()

    @rule(group=st.sampled_from(QUEUES))
    def delete_queue(self, group: int) -> None:
        """It is gone, with all that was under way to it, and declared anew."""
        queue = self.world.queues[group]
        accounts = {id(each.channel.account): each.channel.account for each in queue.loans}
        queue.loans.clear()
        for account in accounts.values():
            account.balance(group).repay_all()
            account.close_balance(group)
        queue.poll()

    @precondition(lambda self: self.world.connections)
    @rule(which=st.integers(0, 3))
    def disconnect(self, which: int) -> None:
        """Drop the buffered publishes of a connection; those under way remain."""
        world = self.world
        connection = world.connections.pop(which % len(world.connections))
        for channel in connection.channels:
            channel.held.clear()
            if channel.gate is not None:
                channel.gate.leave(channel)
                channel.gate = None
        world.ledger.close(connection.account)
        world.gone.append(connection)

    @rule(
        name=st.sampled_from(["account_messages", "account_bytes", "credit", "share"]),
        value=st.integers(1, 100),
    )
    def change_limit(self, name: str, value: int) -> None:
        setattr(self.world.limits, name, value)
        self.world.ledger.poll()
        self.world.due += self.world.connections  # a node looks at all channels then
        for account in self.world.ledger.accounts.values():
            over = _over(account, self.world.limits, 1)
            assert account.in_debt or not over, "it takes effect at once"

    @invariant()
    def money_is_kept(self) -> None:
        world = self.world
        for connection in [*world.connections, *world.gone]:
            account = connection.account
            total_messages, total_bytes = 0, 0
            for group in QUEUES:
                loans = world.loans(account, group)
                messages = sum(loan.messages for loan in loans)
                byte_count = sum(loan.byte_count for loan in loans)
                balance = account.balances.get(group)
                owed = (balance.messages, balance.byte_count) if balance is not None else (0, 0)
                assert owed == (messages, byte_count)
                total_messages += messages
                total_bytes += byte_count
            assert (account.messages, account.byte_count) == (total_messages, total_bytes)
            if account.in_debt:
                assert _over(account, world.limits, 2), "it would have been told"
            if account.messages:
                assert world.ledger.accounts[account.cause.account] is account

    @invariant()
    def who_waits_at_an_open_gate_is_called(self) -> None:
        for queue in self.world.queues.values():
            if queue.gate.room and queue.gate.waiting_count:
                assert queue.gate in self.world.bells.rung

    def teardown(self) -> None:
        """Once all that is under way is done, nothing is held and nothing is owed."""
        world = self.world
        for _ in range(10_000):
            for queue in world.queues.values():
                if queue.loans:
                    world.finish(queue, queue.loans[0])
            world.turn()
            if not (any(q.loans for q in world.queues.values()) or world.due or world.bells.rung):
                break
        held = [len(each.held) for c in world.connections for each in c.channels]
        assert not any(held), f"held for ever: {held}"
        self.money_is_kept()
        world.ledger.sweep()
        assert set(world.ledger.accounts) == {c.account.cause.account for c in world.connections}
        for connection in world.connections:
            world.ledger.close(connection.account)
        assert world.ledger.accounts == {}


def _over(account: Account, limits: FlowLimits, part: int) -> bool:
    """Return whether an account owes more than a limit, or than its low mark."""
    return bool(
        account.messages > limits.scaled(limits.account_messages) // part
        or account.byte_count > limits.scaled(limits.account_bytes) // part
    )


TestChain = Chain.TestCase
TestChain.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
