"""A filtered consumer gets all its messages in the end, in any schedule."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.codecs.batch import message_body
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.command.leader_command import encode_configure
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import ACCEPT, RELEASE, Attachment
from headrace_broker.runtime.replica.filter_argument import encode_filter

FILTERED, PLAIN = 1, 2
EU = encode_filter("region = 'eu'")

settles = st.tuples(
    st.just("settle"),
    st.sampled_from([FILTERED, FILTERED, PLAIN]),
    st.integers(0, 5),
    st.sampled_from([ACCEPT, RELEASE]),
)
steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from(["eu", "us"]), min_size=1, max_size=6)),
    settles,
    settles,
    st.just(("look",)),
    st.just(("calm",)),
    st.just(("calm",)),
    st.tuples(st.just("plain"), st.booleans()),
    st.one_of(
        st.tuples(st.just("lead"), st.sampled_from([1, 2])),
        st.tuples(st.just("busy"), st.booleans()),
        st.just(("lose",)),
    ),
)


class Market:
    """A filtered consumer on node 1 and one that takes anything on node 2, now and then."""

    def __init__(self, world: Any, listener: Any, priorities: bool) -> None:
        self.world = world
        self.listener = listener
        self.due: list[Any] = []
        self.settled: set[tuple[int, int]] = set()
        self.plain = 0  # number of the consumer that takes anything, 0 while there is none
        self.numbers = iter(range(PLAIN, 10_000))
        for host in world.hosts.values():
            host.filtering.turns.later = lambda step, wait: self.due.append(step)
            host.filtering.turns.clock_ns = lambda: 0
        chosen = QueueSettings()
        chosen.priority_max = 3 if priorities else -1
        world.hosts[1].propose(encode_configure(MACHINE_VERSION, chosen))
        world.settle_down()
        self.sessions = {FILTERED: world.open(1, listener), PLAIN: world.open(2, listener)}
        attachment = Attachment("c", 3, filter_table=EU)
        world.run(self.sessions[FILTERED].attach(FILTERED, attachment))

    def publish(self, regions: list[str]) -> None:
        session = self.sessions[PLAIN]
        publishes = []
        for number, region in enumerate(regions):
            block = commands.Basic.Properties(headers={"region": region}, priority=number % 4)
            route = b"\x00\x04work"
            publishes.append(Publish(1, route, False, False, block.marshal(), region.encode()))
        session.publish(publishes, None)
        session.flush()

    def held(self, consumer: int) -> list[int]:
        """Delivery numbers that the client has and did not settle, in order."""
        return [
            number
            for of, number, _, _ in self.listener.deliveries
            if of == consumer and (of, number) not in self.settled
        ]

    def settle(self, who: int, position: int, operation: int) -> None:
        consumer = FILTERED if who == FILTERED else self.plain
        held = self.held(consumer)
        if held:
            number = held[position % len(held)]
            self.settled.add((consumer, number))
            self.sessions[who].settle(consumer, operation, number, number)
            self.sessions[who].flush()

    def set_plain(self, wanted: bool) -> None:
        session = self.sessions[PLAIN]
        if wanted and not self.plain:
            self.plain = next(self.numbers)
            self.world.run(session.attach(self.plain, Attachment("c", 2)))
        elif not wanted and self.plain:
            self.world.run(session.cancel(self.plain))
            for number in self.held(self.plain):
                self.settled.add((self.plain, number))
                session.settle(self.plain, RELEASE, number, number)
            session.flush()
            self.plain = 0

    def poll(self) -> bool:
        due, self.due = self.due, []
        for step in due:
            step()
        return bool(due)

    def lead(self, node: int) -> None:
        self.world.lead(node)
        for session in self.sessions.values():
            session.relocate(node)

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("publish", regions):
                self.publish(regions)
            case ("settle", who, position, operation):
                self.settle(who, position, operation)
            case ("plain", wanted):
                self.calm()
                if not self.world.busy:
                    self.set_plain(wanted)
            case ("look",):
                self.poll()
            case ("lead", node):
                self.lead(node)
            case ("busy", busy):
                self.world.busy = busy
            case ("lose",):
                self.world.lose_uncommitted()
                self.lead(3 - self.world.leader)
            case ("calm",):
                self.calm()

    def calm(self) -> None:
        """Carry and apply everything, and make the steps that are due meanwhile."""
        self.world.settle_down()
        self.poll()
        self.world.settle_down()
        if not self.world.busy:
            for session in self.sessions.values():
                session.relocate(self.world.leader)  # what was refused is sent again
            self.world.settle_down()

    def finish(self) -> None:
        """Give all consumers credit, until nothing moves."""
        self.world.busy = False
        self.calm()
        self.set_plain(False)
        for _ in range(1000):
            self.calm()
            looked = self.poll()
            self.calm()
            held = self.held(FILTERED)
            for _ in held:
                self.settle(FILTERED, 0, ACCEPT)
            self.calm()
            if not looked and not held:
                return
        raise AssertionError("it does not end")


def waiting(world: Any) -> list[bytes]:
    host = world.hosts[world.leader]
    return [
        message_body(world.log[each.entry_index - 1].data, ENQUEUE_BATCH_OFFSET, each.position)
        for each in host.machine.available_from(0, 10_000)
    ]


@settings(deadline=None, max_examples=25)
@given(plan=st.lists(steps, min_size=10, max_size=30), priorities=st.booleans())
def test_nothing_wanted_is_left_behind(make_world, make_listener, plan, priorities) -> None:
    world, listener = make_world(), make_listener()
    market = Market(world, listener, priorities)
    for step in plan:
        market.do(step)
    market.finish()
    assert set(waiting(world)) <= {b"us"}
    taken = {body for of, _, body, _ in listener.deliveries if of == FILTERED}
    assert taken <= {b"eu"}
    assert world.hosts[1].machine.unsettled_count == 0
    assert world.hosts[1].machine.digest() == world.hosts[2].machine.digest()
