"""The queue machine against a queue that is a plain list."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.broker.core.conftest import batch, replay

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import (
    ACCEPT,
    MODIFY_FAILED,
    REJECT,
    RELEASE,
    SettleItem,
)
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import (
    Acquired,
    Controlled,
    Deliver,
    Detached,
    Effect,
    Enqueued,
    EntryDead,
    Gap,
    Got,
    Rejected,
    Unused,
)
from headrace_broker.model.session import session_boot, session_id, session_node

SESSIONS = [session_id(node, boot, 1) for node in (1, 2) for boot in (1, 2)]
Key = tuple[int, int]


@dataclass
class Message:
    number: int
    entry: int
    position: int
    byte_count: int
    acquired: int = 0
    failed: int = 0


@dataclass
class Receiver:
    prefetch: int
    exclusive: bool = False
    state: str = "attached"
    given: int = 0
    held: dict[int, Message] = field(default_factory=dict)

    @property
    def credit(self) -> int:
        return self.prefetch - len(self.held) if self.state == "attached" else 0


@dataclass
class Model:
    """Every list is a list, every move a search."""

    waiting: list[Message] = field(default_factory=list)
    arrived: int = 0
    publish: dict[int, int] = field(default_factory=dict)
    control: dict[int, int] = field(default_factory=dict)
    receivers: dict[Key, Receiver] = field(default_factory=dict)
    line: list[Key] = field(default_factory=list)
    gets: dict[Key, int] = field(default_factory=dict)
    deliveries: dict[Key, list[tuple[int, Message]]] = field(default_factory=dict)

    def put_back(self, message: Message, failed: bool) -> None:
        again = Message(
            message.number,
            message.entry,
            message.position,
            message.byte_count,
            message.acquired + 1,
            message.failed + failed,
        )
        self.waiting = sorted([*self.waiting, again], key=lambda waiting: waiting.number)

    def acquire(self, key: Key) -> tuple[int, Message]:
        receiver = self.receivers[key]
        receiver.given += 1
        message = receiver.held[receiver.given] = self.waiting.pop(0)
        return receiver.given, message

    def line_up(self) -> None:
        """Remove consumers without credit from the line; add those with new credit at its end."""
        self.line = [key for key in self.line if self.credit(key) > 0]

    def join(self, key: Key) -> None:
        if key not in self.line and self.credit(key) > 0:
            self.line.append(key)

    def credit(self, key: Key) -> int:
        return self.receivers[key].credit if key in self.receivers else 0

    def dispatch(self) -> dict[Key, list[tuple[int, Message]]]:
        self.line_up()
        out: dict[Key, list[tuple[int, Message]]] = {}
        while self.waiting and self.line:
            key = self.line.pop(0)
            out.setdefault(key, []).append(self.acquire(key))
            self.join(key)
        return out

    def release_all(self, key: Key, failed: bool) -> int:
        held = self.receivers[key].held
        for message in held.values():
            self.put_back(message, failed)
        count = len(held)
        held.clear()
        return count

    def forget(self, session: int, failed: bool) -> int:
        released = 0
        for key in [key for key in self.receivers if key[0] == session]:
            released += self.release_all(key, failed)
            del self.receivers[key]
        self.publish.pop(session, None)
        self.control.pop(session, None)
        self.gets = {key: n for key, n in self.gets.items() if key[0] != session}
        return released

    def sessions(self) -> list[int]:
        return list({**self.publish, **self.control})

    def users(self) -> int:
        return sum(r.state in ("attached", "detached") for r in self.receivers.values())

    def attached(self) -> list[Receiver]:
        return [r for r in self.receivers.values() if r.state == "attached"]

    def drop_if_done(self, key: Key) -> None:
        receiver = self.receivers.get(key)
        if receiver is not None and receiver.state == "cancelled" and not receiver.held:
            del self.receivers[key]

    def alive(self) -> set[int]:
        held = [m.entry for r in self.receivers.values() for m in r.held.values()]
        return {*held, *(m.entry for m in self.waiting)}


def plain(message: Acquired) -> Message:
    return Message(
        message.message_id,
        message.entry_index,
        message.position,
        message.byte_count,
        message.acquired_count,
        message.delivery_count,
    )


class QueueComparison(RuleBasedStateMachine):
    """Each rule applies one command to both and compares everything that was told."""

    @initialize()
    def start(self) -> None:
        self.machine = QueueMachine()
        self.model = Model()
        self.entries: list[bytes] = []
        self.alive: set[int] = set()
        self.told: list[str] = []

    def apply(self, encoded: bytes) -> list[Effect]:
        """Apply to the machine; the caller has brought the model up to the dispatch."""
        users = self.users
        self.entries.append(command.stamp_command(len(self.entries), encoded))
        effects = self.machine.apply(len(self.entries), self.entries[-1])
        self.told.extend(map(repr, effects))
        deliveries = {
            (e.session, e.consumer): [(e.first + n, plain(m)) for n, m in enumerate(e.messages)]
            for e in effects
            if isinstance(e, Deliver)
        }
        assert deliveries == self.model.dispatch()
        assert len(deliveries) == sum(isinstance(e, Deliver) for e in effects)
        unused = users > 0 and self.model.users() == 0
        assert sum(isinstance(e, Unused) for e in effects) == unused
        self.check_deaths([e.index for e in effects if isinstance(e, EntryDead)])
        told = (Deliver, Unused, EntryDead)
        return [effect for effect in effects if not isinstance(effect, told)]

    def check_deaths(self, deaths: list[int]) -> None:
        born = {*self.alive, len(self.entries)}
        alive = self.model.alive()
        assert len(deaths) == len(set(deaths))
        assert set(deaths) == born - alive
        assert list(self.machine.live_entries()) == sorted(alive)
        self.alive = alive

    @rule()
    def go_on_from_a_snapshot(self) -> None:
        """A replica that was restored tells, from here on, what the others tell."""
        alive = self.machine.live_entries()
        self.machine = QueueMachine.restore(self.machine.snapshot())
        assert self.machine.live_entries() == alive

    def before(self) -> None:
        self.users = self.model.users()

    def control(self, session: int) -> int:
        """Count a control command of `session` and return its number."""
        self.before()
        self.model.control[session] = self.model.control.get(session, 0) + 1
        return self.model.control[session]

    @rule(
        session=st.sampled_from(SESSIONS),
        back=st.integers(-3, 4),
        sizes=st.lists(st.sampled_from([0, 3, 3, 3, 90]), min_size=1, max_size=6),
    )
    def enqueue(self, session: int, back: int, sizes: list[int]) -> None:
        self.before()
        model = self.model
        done = model.publish.get(session, 0)
        first = max(1, done + 1 - back)
        last = first + len(sizes) - 1
        encoded = command.encode_enqueue(session, first, batch(*map(bytes, sizes)))
        if first > done + 1:
            (gap,) = self.apply(encoded)
            assert isinstance(gap, Gap)
            assert (gap.session, gap.lane, gap.expected) == (session, 1, done + 1)
            return
        for position in range(done + 1 - first, len(sizes)):
            model.arrived += 1
            place = (len(self.entries) + 1, position, sizes[position])
            model.waiting.append(Message(model.arrived, *place))
            model.publish[session] = last
        (answer,) = self.apply(encoded)
        assert isinstance(answer, Enqueued)
        assert (answer.session, answer.seq) == (session, max(done, last))

    @rule(
        session=st.sampled_from(SESSIONS),
        number=st.integers(1, 3),
        prefetch=st.integers(1, 5),
        exclusive=st.sampled_from([False] * 5 + [True]),
    )
    def attach(self, session: int, number: int, prefetch: int, exclusive: bool) -> None:
        seq = self.control(session)
        model = self.model
        key = (session, number)
        attached = model.attached()
        status = 0
        if key in model.receivers and model.receivers[key].state != "detached":
            status = 2
        elif any(r.exclusive for r in attached) or (exclusive and attached):
            status = 1
        else:
            old = model.receivers.get(key)
            new = Receiver(prefetch, exclusive, given=old.given if old else 0)
            model.receivers[key] = new
            model.join(key)
        self.controlled(
            command.encode_attach(session, seq, number, prefetch, exclusive, b""), status
        )

    def controlled(self, encoded: bytes, status: int, count: int = 0) -> None:
        """Apply a control command and expect this answer."""
        (answer,) = self.apply(encoded)
        assert isinstance(answer, Controlled)
        assert (answer.status, answer.count) == (status, count)

    @rule(session=st.sampled_from(SESSIONS), number=st.integers(0, 3))
    def cancel(self, session: int, number: int) -> None:
        seq = self.control(session)
        receiver = self.model.receivers.get((session, number))
        left = 0
        if receiver is not None and number != 0:
            left = len(receiver.held)
            receiver.state = "cancelled"
            self.model.drop_if_done((session, number))
            self.model.line_up()
        self.controlled(command.encode_cancel(session, seq, number), 0, left)

    @rule(
        session=st.sampled_from(SESSIONS),
        ranges=st.lists(
            st.tuples(
                st.integers(0, 3),
                st.sampled_from([ACCEPT, RELEASE, REJECT, MODIFY_FAILED]),
                st.integers(-1, 6),
                st.sampled_from([0, 0, 1, 2, 2**40]),
            ),
            max_size=4,
        ),
    )
    def settle(self, session: int, ranges: list[tuple[int, int, int, int]]) -> None:
        seq = self.control(session)
        model = self.model
        items = []
        settled = 0
        for number, operation, offset, length in ranges:
            key = (session, number)
            held = model.receivers[key].held if key in model.receivers else {}
            first = max(1, min(held, default=1) + offset)
            items.append(SettleItem(number, operation, first, first + length))
            for delivery in [n for n in held if first <= n <= first + length]:
                message = held.pop(delivery)
                settled += 1
                if operation in (RELEASE, MODIFY_FAILED):
                    model.put_back(message, operation == MODIFY_FAILED)
            model.join(key)
            model.drop_if_done(key)
        self.controlled(command.encode_settle(session, seq, items), 0, settled)

    @rule(session=st.sampled_from(SESSIONS))
    def get(self, session: int) -> None:
        seq = self.control(session)
        expected: tuple[int, Message | None] = (0, None)
        if self.model.waiting:
            key = (session, 0)
            self.model.receivers.setdefault(key, Receiver(0, state="getter"))
            expected = self.model.acquire(key)
            self.model.gets[session, seq] = expected[0]
        self.got(session, seq, *expected)

    def got(self, session: int, seq: int, delivery: int, message: Message | None) -> None:
        """Apply a GET and expect this message."""
        (answer,) = self.apply(command.encode_get(session, seq))
        assert isinstance(answer, Got)
        found = None if answer.message is None else plain(answer.message)
        assert (answer.delivery, found) == (delivery, message)
        assert (answer.session, answer.seq) == (session, seq)
        assert answer.ready_left == len(self.model.waiting)

    @precondition(lambda self: self.model.gets)
    @rule(data=st.data())
    def repeat_get(self, data: st.DataObject) -> None:
        self.before()
        session = data.draw(st.sampled_from(sorted({session for session, _ in self.model.gets})))
        seq = max(seq for owner, seq in self.model.gets if owner == session)
        if seq < self.model.control[session] - 6:  # its answer may be forgotten by now
            return
        delivery = self.model.gets[session, seq]
        message = self.model.receivers[session, 0].held.get(delivery)
        self.got(session, seq, delivery if message else 0, message)

    @rule(session=st.sampled_from(SESSIONS), ahead=st.integers(2, 5))
    def skip_control(self, session: int, ahead: int) -> None:
        self.before()
        done = self.model.control.get(session, 0)
        digest = self.machine.digest()
        (gap,) = self.apply(command.encode_purge(session, done + ahead))
        assert isinstance(gap, Gap)
        assert (gap.session, gap.lane, gap.expected) == (session, 2, done + 1)
        assert self.machine.digest() == digest

    @rule(session=st.sampled_from(SESSIONS))
    def repeat_control(self, session: int) -> None:
        self.before()
        done = self.model.control.get(session, 0)
        if done == 0:
            return
        digest = self.machine.digest()
        (answer,) = self.apply(command.encode_purge(session, done))
        assert isinstance(answer, Controlled)
        assert (answer.session, answer.seq) == (session, done)
        assert self.machine.digest() == digest

    @rule(session=st.sampled_from(SESSIONS), sure=st.integers(0, 3))
    def purge(self, session: int, sure: int) -> None:
        if sure != 0:  # seldom, or the queue never gets deep
            return
        seq = self.control(session)
        removed = len(self.model.waiting)
        self.model.waiting = []
        self.controlled(command.encode_purge(session, seq), 0, removed)

    @rule(session=st.sampled_from(SESSIONS))
    def close(self, session: int) -> None:
        self.before()
        released = self.model.forget(session, True)
        self.controlled(command.encode_close(session), 0, released)

    @rule(node=st.integers(1, 3), boot=st.integers(0, 3))
    def node_down(self, node: int, boot: int) -> None:
        self.before()
        model = self.model
        expected = []
        mine = [s for s in model.sessions() if session_node(s) == node]
        others = [s for s in mine if session_boot(s) != boot]
        holds = [r for key, r in model.receivers.items() if key[0] in mine]
        suspects = [r for r in holds if r.state == "attached" or r.held]
        assert self.machine.has_sessions_of(node, boot) == bool(suspects if boot == 0 else others)
        for session in others if boot != 0 else []:
            model.forget(session, False)
        for key in [key for key in model.receivers if boot == 0 and key[0] in mine]:
            receiver = model.receivers[key]
            model.release_all(key, False)
            if receiver.state == "attached":
                receiver.state = "detached"
                expected.append(key)
            model.drop_if_done(key)
        told = self.apply(command.encode_node_down(node, boot))
        detached = [(e.session, e.consumer) for e in told if isinstance(e, Detached)]
        assert len(detached) == len(told)
        assert sorted(detached) == sorted(expected)

    @rule(data=st.binary(max_size=30))
    def nonsense(self, data: bytes) -> None:
        self.before()
        digest = self.machine.digest()
        (answer,) = self.apply(b"\xff" + data)
        assert isinstance(answer, Rejected)
        assert self.machine.digest() == digest

    @rule()
    def restore(self) -> None:
        digest = self.machine.digest()
        self.machine = QueueMachine.restore(self.machine.snapshot())
        assert self.machine.digest() == digest

    @invariant()
    def figures_agree(self) -> None:
        machine, model = self.machine, self.model
        held = [m for r in model.receivers.values() for m in r.held.values()]
        assert machine.ready_count == len(model.waiting)
        assert machine.ready_bytes == sum(m.byte_count for m in model.waiting)
        assert machine.unsettled_count == len(held)
        assert machine.unsettled_bytes == sum(m.byte_count for m in held)
        assert machine.consumer_count == len(model.attached())
        assert not (model.waiting and any(r.credit > 0 for r in model.receivers.values()))

    @invariant()
    def holdings_agree(self) -> None:
        for session in SESSIONS:
            assert (session in self.machine._state.sessions) == (session in self.model.sessions())
            for number in range(4):
                receiver = self.model.receivers.get((session, number))
                held = [] if receiver is None else list(receiver.held.items())
                found = self.machine.unsettled_from(session, number, 1)
                assert [(n, plain(message)) for n, message in found] == held
                attached = receiver is not None and receiver.state == "attached"
                assert self.machine.is_attached(session, number) == attached

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        fresh = QueueMachine()
        assert replay(fresh, self.entries) == self.told
        assert fresh.digest() == self.machine.digest()


TestQueueComparison = QueueComparison.TestCase
TestQueueComparison.settings = settings(max_examples=150, stateful_step_count=60)
