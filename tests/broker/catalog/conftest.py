"""A catalog with a log, and random but valid commands, for the tests of the catalog."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import AnyCommand, encode_request
from headrace_broker.catalog.event import Event
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok, Result
from headrace_broker.model.definition import (
    APPLY_TO,
    Binding,
    Exchange,
    Node,
    Permission,
    Policy,
    Queue,
    TopicPermission,
    User,
    Vhost,
)

NODES = tuple(Node(number, f"n{number}", f"127.0.0.1:{7000 + number}") for number in (1, 2, 3))
GUEST = User("guest", b"salt", b"hash", ("administrator",), loopback_only=True)


class Driver:
    """Applies commands one after the other, as node 1 asks for them."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.log: list[bytes] = []
        self.events: list[Event] = []

    def do(self, command: AnyCommand) -> Result:
        number = len(self.log) + 1
        return self.apply(encode_request(Request(1, 1, number), command))

    def apply(self, data: bytes) -> Result:
        self.log.append(data)
        result, self.events = self.catalog.apply(len(self.log), data)
        if self.events:
            assert isinstance(result, Ok)
        return result

    def bootstrap(self) -> Driver:
        assert self.do(commands.Bootstrap(NODES, "/", GUEST)) == Ok()
        return self

    def queue(self, name: str, kind: str = "classic", **fields: Any) -> Queue:
        result = self.do(commands.DeclareQueue("/", name, kind, **fields))
        assert isinstance(result, Ok), result
        queue: Queue = result.value
        return queue

    def exchange(self, name: str, kind: str = "direct", **fields: Any) -> Exchange:
        wanted = Exchange("/", name, kind, **fields)
        assert self.do(commands.DeclareExchange(wanted)) == Ok(wanted)
        return wanted

    def bind(self, source: str, destination: str, key: str = "", **fields: Any) -> Binding:
        kind = fields.pop("kind", "queue")
        binding = Binding("/", source, kind, destination, key, **fields)
        assert self.do(commands.Bind(binding)) == Ok(binding)
        return binding


@pytest.fixture
def driver() -> Driver:
    return Driver().bootstrap()


@pytest.fixture
def empty() -> Driver:
    return Driver()


class RandomCommands:
    """Commands over few names, so that they often meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def next(self) -> AnyCommand:
        pick = self.random
        vhost = pick.choice(["/", "/", "/", "v"])
        exchange = pick.choice(["x", "y", "z", "amq.topic", "amq.headers"])
        queue = pick.choice(["a", "b", "c", "d"])
        roll = pick.randrange(150)
        if roll >= 130:
            return self._move(vhost, queue)
        if roll >= 100:
            return self._govern(vhost, queue)
        if roll < 25:
            return self._declare_queue(vhost, queue)
        if roll < 40:
            return commands.DeclareExchange(
                Exchange(
                    vhost,
                    exchange,
                    pick.choice(["direct", "fanout", "topic", "headers"]),
                    auto_delete=pick.random() < 0.5,
                )
            )
        if roll < 70:
            return commands.Bind(self._binding(vhost, exchange, queue))
        if roll < 78:
            return commands.Unbind(self._binding(vhost, exchange, queue))
        if roll < 84:
            return commands.DeleteQueue(vhost, queue, pick.choice([0, 0, 1, 2, 3]))
        if roll < 89:
            return commands.DeleteExchange(vhost, exchange, pick.random() < 0.5)
        if roll < 93:
            return commands.DropTransient(pick.choice(["", "c1", "c2"]), pick.randrange(4))
        if roll < 95:
            return commands.PutUser(User(queue, b"s", bytes([pick.randrange(4)])))
        if roll < 96:
            if pick.random() < 0.5:
                return commands.RehashUser(queue, bytes([pick.randrange(4)]), b"t", b"new")
            return commands.DeleteUser(queue)
        if roll < 98:
            return commands.DeclareVhost("v")
        if roll < 99:
            return commands.DeleteVhost("v")
        return commands.DeclareNodes((Node(pick.randrange(1, 6), f"n{pick.randrange(6)}", "h:1"),))

    def _move(self, vhost: str, queue: str) -> AnyCommand:
        pick = self.random
        node, group = pick.randrange(1, 6), pick.randrange(1, 40)
        some = tuple(pick.sample(range(1, 6), pick.randrange(3)))
        roll = pick.randrange(10)
        if roll < 5:
            return commands.SetMembers(vhost, queue, group, some, (node,) * pick.randrange(2))
        if roll < 7:
            return commands.SettleMembers(group, pick.randrange(3), (node, *some))
        if roll < 8:
            disk = pick.randrange(3)
            return commands.AdmitNode(Node(node, f"n{node}", f"h:{node}", disk=disk))
        if roll < 9:
            return commands.SetMaintenance(node, pick.random() < 0.5)
        return commands.ForgetNode(node)

    def _govern(self, vhost: str, name: str) -> AnyCommand:
        pick = self.random
        operator = pick.random() < 0.4
        length = pick.randrange(-2, 9)
        roll = pick.randrange(11)
        if roll == 9:
            told = TopicPermission(pick.choice([name, "guest"]), vhost, "x", name, "")
            return commands.PutTopicPermission(told)
        if roll == 10:
            who = pick.choice([name, "guest"])
            return commands.DeleteTopicPermissions(who, vhost, pick.choice(["", "x", "y"]))
        if roll < 3:
            definition = {"max-length": length}
            apply_to = pick.choice(APPLY_TO)
            pattern = pick.choice(["^a", ".*", "("])
            return commands.PutPolicy(
                Policy(vhost, name, pattern, definition, length, apply_to, operator)
            )
        if roll == 3:
            return commands.DeletePolicy(vhost, name, operator)
        if roll == 4:
            return commands.PutPermission(
                Permission(pick.choice([name, "guest"]), vhost, ".*", name, "")
            )
        if roll == 5:
            return commands.DeletePermission(pick.choice([name, "guest"]), vhost)
        if roll == 6:
            limit = pick.choice(["max-queues", "default-queue-max-length", "unknown"])
            return commands.SetVhostLimits(vhost, {limit: length}, pick.random() < 0.5)
        if roll == 7:
            return commands.SetUserLimits(
                name, {"publish-rate-messages": length}, pick.random() < 0.5
            )
        kind = pick.choice(["", "quorum", "classic"])
        return commands.PutVhost(Vhost(vhost, kind, name), pick.choice(["", "guest", name]))

    def _declare_queue(self, vhost: str, name: str) -> commands.DeclareQueue:
        pick = self.random
        exclusive = pick.random() < 0.3
        return commands.DeclareQueue(
            vhost,
            name,
            pick.choice(["quorum", "classic"]),
            durable=pick.random() < 0.7,
            exclusive=exclusive,
            owner=pick.choice(["c1", "c2"]) if exclusive else "",
            preferred_node=pick.randrange(5),
            replicas=pick.choice([1, 3, 5]),
            arguments=pick.choice([{}, {}, {"x-max-length": 3, "x-expires": 9}]),
        )

    def _binding(self, vhost: str, exchange: str, queue: str) -> Binding:
        pick = self.random
        key = pick.choice(["", "k", "*.k"])
        arguments = pick.choice([{}, {}, {"x-match": "any", "h": 1.5, "l": [True, b"\xff"]}])
        if pick.random() < 0.3:
            target = pick.choice(["x", "y", "z"])
            return Binding(vhost, exchange, "exchange", target, key, arguments)
        return Binding(vhost, exchange, "queue", queue, key, arguments)


@pytest.fixture
def random_commands() -> type[RandomCommands]:
    return RandomCommands
