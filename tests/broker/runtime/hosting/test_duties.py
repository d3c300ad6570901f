"""One node with queues in its memory, as time passes and policies change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.event import QueueAdded, QueueRemoved
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok
from headrace_broker.core.queue.command.lease_command import (
    encode_lease,
    encode_open_group,
    encode_settle_leases,
)
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.flow.blocked import BlockedState
from headrace_broker.model.definition import (
    QUEUE_CLASSIC,
    QUEUE_QUORUM,
    Binding,
    Exchange,
    Node,
    Permission,
    Policy,
    Queue,
    TopicPermission,
    User,
)
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import REJECT, Attachment
from headrace_broker.runtime.dead_letter.expiry_account import ExpiryAccounts
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublisher
from headrace_broker.runtime.dead_letter.service import DeadLetterService
from headrace_broker.runtime.hosting.duties import LeaderDuties
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.intake.remote_debt import RemoteDebts
from headrace_broker.runtime.replica import queue_timer
from headrace_broker.runtime.routing.router import Router


class NoRaft:
    boot = 1

    def member_of(self, node):
        return node


class Island:
    """A node alone, whose clock the test moves."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.catalog = Catalog()
        self.router = Router()
        raft: Any = NoRaft()
        self.hosting = Hosting(raft, 1, [], lambda node, data: False, clock)
        ledger = self.hosting.ledger
        self.account = ledger.open(Cause("client", CONNECTION, "client", "n1"))
        self.debts = RemoteDebts((1, "n1"), ledger, lambda: 1, lambda node, data: False)
        charges = self.debts.charges
        self.hosting.on_session = charges.register
        self.hosting.on_session_over = charges.end
        publisher = DeadLetterPublisher(self.hosting.open_dead_letter_session, charges)
        expiries = ExpiryAccounts("n1", ledger, charges, self.hosting.new_session_id)
        self.dead_letter_service = DeadLetterService(
            self.router, publisher, expiries, BlockedState()
        )
        self.dead_letter_service.release_all()
        self.expired: list[str] = []
        self.duties = LeaderDuties(
            self.hosting, self.catalog, self.dead_letter_service, self._expire, clock
        )
        expiries.wake = self.duties.tick_soon
        self.hosting.duties = self.duties
        self._index = 0
        self.do(commands.Bootstrap((Node(1, "n1", "h:1"),), "/", User("guest", b"", b"")))
        self.do(commands.AnnounceNode(1, MACHINE_VERSION))

    def _expire(self, queue: Queue) -> None:
        self.expired.append(queue.name)

    def do(self, command):
        self._index += 1
        data = encode_request(Request(1, 1, self._index), command)
        result, events = self.catalog.apply(self._index, data)
        self.router.on_events(events)
        for event in events:
            if isinstance(event, QueueAdded):
                self.hosting.add_queue(event.queue)
            elif isinstance(event, QueueRemoved):
                self.hosting.remove_queue(event.queue)
        self.hosting.configure(queue.group for queue in self.duties.on_events(events))
        return result.value if isinstance(result, Ok) else result

    def declare(self, name, **arguments):
        """Declare a queue in memory; underscores stand for hyphens."""
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        command = commands.DeclareQueue(
            "/", name, QUEUE_CLASSIC, durable=False, arguments=named, preferred_node=1
        )
        queue = self.do(command)
        assert isinstance(queue, Queue), queue
        return queue

    def queue(self, name) -> Any:
        return self.catalog.queue("/", name)

    def host(self, name):
        return self.hosting.hosts[self.queue(name).group]

    def ready(self, name):
        return int(self.host(name).machine.ready_count)

    def bind(self, exchange, queue):
        self.do(commands.DeclareExchange(Exchange("/", exchange, "fanout")))
        self.do(commands.Bind(Binding("/", exchange, "queue", queue, "")))

    def policy(self, name, pattern, **definition):
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        result = self.do(commands.PutPolicy(Policy("/", name, pattern, named)))
        assert not hasattr(result, "reason"), result

    def open(self, name, listener):
        return self.hosting.open_session(self.queue(name), listener, self.account)

    async def publish(self, name, listener, *bodies):
        session = self.open(name, listener)
        session.publish(
            [Publish(1, b"\x00\x01k", False, False, b"\x00\x00", b) for b in bodies], None
        )
        session.flush()
        await self.settle()

    async def settle(self):
        """Let everything happen that needs no time."""
        for _ in range(40):
            await asyncio.sleep(0)

    async def pass_time(self, ms):
        self.clock.ms += ms
        await self.settle()


@pytest.fixture
def island(world, monkeypatch):
    """Run a scenario on a node alone."""
    monkeypatch.setattr(queue_timer, "SLEEP_SECONDS_MAX", 0.0)

    def run(scenario):
        async def work():
            island = Island(world.clock)
            try:
                await island.settle()
                await scenario(island)
            finally:
                island.duties.stop()
                island.hosting.stop()

        asyncio.run(work())

    return run


def test_expired_message_goes_to_its_dead_letter_exchange(island, listener):
    async def scenario(node):
        node.declare("dead")
        node.bind("dlx", "dead")
        node.declare("work", message_ttl=1000, dead_letter_exchange="dlx")
        await node.publish("work", listener, b"x")
        await node.pass_time(900)
        assert (node.ready("work"), node.ready("dead")) == (1, 0)
        await node.pass_time(300)
        assert (node.ready("work"), node.ready("dead")) == (0, 1)
        assert node.dead_letter_service.sent_count == 1

    island(scenario)


def test_dead_letter_that_dies_again_remembers_where_it_came_from(island, listener):
    async def scenario(node):
        node.declare("last")
        node.bind("dlx2", "last")
        node.declare("middle", message_ttl=500, dead_letter_exchange="dlx2")
        node.bind("dlx1", "middle")
        node.declare("first", message_ttl=500, dead_letter_exchange="dlx1")
        await node.publish("first", listener, b"x")
        for _ in range(2):
            await node.pass_time(700)
        assert node.ready("last") == 1
        session = node.open("last", listener)
        run, _ = await session.get()
        assert run.blob.count(b"x-death") == 1
        assert b"first" in run.blob
        assert b"middle" in run.blob

    island(scenario)


def test_cycle_of_queues_ends_where_it_began(island, listener):
    async def scenario(node):
        node.declare("a", message_ttl=100, dead_letter_exchange="to-b")
        node.declare("b", message_ttl=100, dead_letter_exchange="to-a")
        node.bind("to-b", "b")
        node.bind("to-a", "a")
        await node.publish("a", listener, b"x")
        for _ in range(6):
            await node.pass_time(300)
        assert (node.ready("a"), node.ready("b")) == (0, 0)
        assert (node.dead_letter_service.sent_count, node.dead_letter_service.lost_count) == (1, 1)

    island(scenario)


def test_rejected_message_goes_round(island, listener):
    async def scenario(node):
        node.declare("a", dead_letter_exchange="again")
        node.bind("again", "a")
        await node.publish("a", listener, b"x")
        session = node.open("a", listener)
        await session.attach(1, Attachment("c", 1))
        for number in range(1, 4):
            await node.settle()
            assert len(listener.bodies) == number
            session.settle(1, REJECT, number, number)
            session.flush()
        await node.settle()
        assert len(listener.bodies) == 4

    island(scenario)


def test_policy_takes_effect_at_run_time_and_ends(island, listener):
    async def scenario(node):
        node.declare("work")
        await node.publish("work", listener, b"1", b"2", b"3")
        node.policy("short", "^work$", max_length=1)
        await node.settle()
        assert node.ready("work") == 1
        await node.publish("work", listener, b"4")
        assert node.ready("work") == 1
        node.do(commands.DeletePolicy("/", "short"))
        await node.settle()
        await node.publish("work", listener, b"5")
        assert node.ready("work") == 2

    island(scenario)


def test_what_cannot_be_looked_for_is_told_in_the_log_once(island, caplog):
    async def scenario(node):
        node.declare("work")
        node.policy("old", "(a+)+\\1b", max_length=1)
        node.policy("fine", "^work$", max_length=1)
        node.do(commands.PutUser(User("u", b"salt", b"hash")))
        node.do(commands.PutPermission(Permission("u", "/", ".*", "(a+)+\\1b", ".*")))
        told = TopicPermission("u", "/", "amq.topic", "(a+)+\\1b", ".*")
        node.do(commands.PutTopicPermission(told))
        await node.settle()

    island(scenario)
    told = [record.getMessage() for record in caplog.records if "too long" in record.getMessage()]
    assert [text.partition(" in vhost '/': ")[0] for text in told] == [
        "the policy 'old'",
        "the permission of user 'u'",
        "the topic permission of user 'u' for exchange 'amq.topic'",
    ]
    assert told[0].endswith("too long to find in a name: it has GROUPREF; it applies to nothing")


def test_dead_letter_exchange_may_come_by_policy(island, listener):
    async def scenario(node):
        node.declare("dead")
        node.bind("dlx", "dead")
        node.declare("work", message_ttl=100)
        node.policy("dlx", ".*", dead_letter_exchange="dlx", dead_letter_routing_key="k2")
        await node.publish("work", listener, b"x")
        await node.pass_time(300)
        assert node.ready("dead") == 1

    island(scenario)


def test_unused_queue_expires(island, listener):
    async def scenario(node):
        node.declare("work", expires=1000)
        await node.pass_time(900)
        assert node.expired == []
        await node.pass_time(200)
        assert node.expired == ["work"]

    island(scenario)


def test_queue_whose_messages_are_leased_does_not_expire(island, listener):
    async def scenario(node):
        node.declare("work", expires=1000)
        await node.publish("work", listener, b"a")
        host = node.host("work")
        for encoded in (
            encode_open_group(1, b"g", 60_000, b"a"),
            encode_lease(2, b"g", 1, 1, 1, 1, 60_000),
        ):
            host.propose(encoded)
        for _ in range(5):
            await node.pass_time(900)
        assert (node.expired, host.machine.leased_count) == ([], 1)
        host.propose(encode_settle_leases(3, b"g", 1, 1))
        await node.pass_time(900)
        assert node.expired == []
        await node.pass_time(1100)
        assert node.expired == ["work"]

    island(scenario)


def test_queue_in_use_does_not_expire(island, listener):
    async def scenario(node):
        node.declare("work", expires=1000)
        session = node.open("work", listener)
        await node.pass_time(900)
        await session.get()
        await node.pass_time(900)
        assert node.expired == []
        await session.attach(1, Attachment("c", 1))
        for _ in range(5):
            await node.pass_time(900)
        assert node.expired == []
        await session.cancel(1)
        await node.pass_time(900)
        assert node.expired == []
        node.host("work").use()
        await node.pass_time(900)
        assert node.expired == []
        await node.pass_time(200)
        assert node.expired == ["work"]

    island(scenario)


def test_expiry_follows_the_policy(island):
    async def scenario(node):
        node.declare("work")
        node.policy("brief", ".*", expires=5000)
        await node.pass_time(2000)
        node.policy("brief", ".*", expires=1000)
        await node.pass_time(10)
        assert node.expired == ["work"]
        node.expired.clear()
        node.declare("other")
        node.do(commands.DeletePolicy("/", "brief"))
        await node.pass_time(20_000)
        assert node.expired == []

    island(scenario)


def test_deleted_queue_leaves_nothing_behind(island, listener):
    async def scenario(node):
        node.declare("work", message_ttl=1000, expires=5000)
        queue = node.queue("work")
        await node.publish("work", listener, b"x")
        timers = (node.duties._ticks, node.duties._expiries)
        assert [len(timer._armed) for timer in timers] == [1, 1]
        node.do(commands.DeleteQueue("/", "work", queue.group))
        await node.settle()
        assert [len(timer._armed) for timer in timers] == [0, 0]
        assert node.duties._effective._known == {}

    island(scenario)


def test_version_is_the_lowest_that_a_member_knows(island):
    async def scenario(node):
        queue = Queue("/", "q", QUEUE_QUORUM, 99, (1, 2))
        node.do(commands.DeclareNodes((Node(1, "n1", "h:1"), Node(2, "n2", "h:2"))))
        assert node.duties.configuration(queue).version == 1
        node.do(commands.AnnounceNode(2, MACHINE_VERSION + 1))
        assert node.duties.configuration(queue).version == MACHINE_VERSION

    island(scenario)


def test_replica_on_its_way_out_and_unknown_node_hold_the_version_down(island):
    async def scenario(node):
        node.do(commands.DeclareNodes((Node(2, "n2", "h:2"),)))
        leaving = Queue("/", "q", QUEUE_QUORUM, 99, (1,), leaving=(2,), revision=1)
        assert node.duties.configuration(leaving).version == 1
        node.do(commands.AnnounceNode(2, MACHINE_VERSION))
        assert node.duties.configuration(leaving).version == MACHINE_VERSION
        unknown = Queue("/", "q", QUEUE_QUORUM, 99, (1, 7))
        assert node.duties.configuration(unknown).version == 1

    island(scenario)


def test_queue_declared_before_the_nodes_said_their_version_is_told_later(world, monkeypatch):
    async def work():
        node = Island(world.clock)
        node.do(commands.AnnounceNode(1, 1))
        node.declare("work", max_length=1)
        await node.settle()
        assert int(node.host("work").machine.settings.max_length) == -1
        node.do(commands.AnnounceNode(1, MACHINE_VERSION))
        await node.settle()
        assert int(node.host("work").machine.settings.max_length) == 1
        node.duties.stop()

    asyncio.run(work())
