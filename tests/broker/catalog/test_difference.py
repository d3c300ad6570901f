"""Events from a snapshot for followers that missed some."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.difference import difference
from headrace_broker.catalog.event import (
    BindingAdded,
    BindingRemoved,
    Event,
    ExchangeAdded,
    ExchangeRemoved,
    NodeAdded,
    NodeRemoved,
    PermissionChanged,
    PolicyChanged,
    QueueAdded,
    QueueChanged,
    QueueRemoved,
    TopicPermissionChanged,
    UserChanged,
    UserLimitsChanged,
    VhostAdded,
    VhostChanged,
    VhostLimitsChanged,
    VhostRemoved,
)
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.store import SnapshotError
from headrace_broker.model.binding_key import binding_key
from headrace_broker.model.definition import Exchange, User
from headrace_broker.runtime.routing.router import Router

SEEDS = range(12)
STEPS = 120
RENEWED = 77 << 10 | 3  # node 3 in its 77th generation


class Follower:
    """Knows only events, and objects to any that does not fit what came before."""

    def __init__(self) -> None:
        self.things: dict[Any, Any] = {}
        self.router = Router()  # objects as well

    def receive(self, events: list[Event]) -> None:
        for event in events:
            self._hear(event)
        self.router.on_events(events)

    def _hear(self, event: Event) -> None:
        things = self.things
        if isinstance(event, NodeAdded):
            things["node", event.node.id] = event.node
        elif isinstance(event, NodeRemoved):
            self._remove(("node", event.node.id), event.node)
        elif isinstance(event, QueueChanged):
            key = ("queue", event.queue.vhost, event.queue.name)
            assert things[key].group == event.queue.group
            assert things[key] != event.queue
            things[key] = event.queue
        elif isinstance(event, UserChanged):
            self._set(("user", event.name), event.user)
            if event.user is None:
                assert not [key for key in things if key[0] == "user of" and key[-1] == event.name]
        elif isinstance(event, BindingAdded):
            binding = event.binding
            assert ("exchange", binding.vhost, binding.source) in things
            assert (binding.destination_type, binding.vhost, binding.destination) in things
            self._add(binding_key(binding), binding)
        elif isinstance(event, BindingRemoved):
            self._remove(binding_key(event.binding), event.binding)
        elif isinstance(event, VhostAdded):
            self._add(("vhost", event.vhost.name), event.vhost)
        elif isinstance(event, VhostRemoved):
            places = {key[0] if len(key) == 6 else key[1] for key in things if len(key) > 2}
            assert event.vhost.name not in places
            self._remove(("vhost", event.vhost.name), event.vhost)
        elif isinstance(event, ExchangeAdded | ExchangeRemoved | QueueAdded | QueueRemoved):
            self._hear_end(event)
        else:
            self._hear_rule(event)

    def _hear_rule(self, event: Event) -> None:
        things = self.things
        if isinstance(event, VhostChanged):
            assert things["vhost", event.vhost.name] != event.vhost
            things["vhost", event.vhost.name] = event.vhost
        elif isinstance(event, VhostLimitsChanged):
            assert ("vhost", event.vhost) in things
            self._set(("limits", event.vhost, "vhost"), event.limits or None)
        elif isinstance(event, UserLimitsChanged):
            assert ("user", event.user) in things
            self._set(("user of", "limits", event.user), event.limits or None)
        elif isinstance(event, PermissionChanged):
            assert ("vhost", event.vhost) in things
            assert ("user", event.user) in things
            self._set(("user of", event.vhost, event.user), event.permission)
        elif isinstance(event, TopicPermissionChanged):
            assert ("vhost", event.vhost) in things
            assert ("user", event.user) in things
            key = ("user of", event.vhost, event.exchange, event.user)
            self._set(key, event.permission)
        else:
            assert isinstance(event, PolicyChanged)
            assert ("vhost", event.vhost) in things
            self._set(("policy", event.vhost, event.name, event.operator), event.policy)

    def _set(self, key: Any, thing: Any) -> None:
        if thing is not None:
            self.things[key] = thing
        else:
            del self.things[key]

    def _hear_end(self, event: ExchangeAdded | ExchangeRemoved | QueueAdded | QueueRemoved) -> None:
        if isinstance(event, ExchangeAdded | ExchangeRemoved):
            key = ("exchange", event.exchange.vhost, event.exchange.name)
            thing: Any = event.exchange
        else:
            key = ("queue", event.queue.vhost, event.queue.name)
            thing = event.queue
        if isinstance(event, ExchangeAdded | QueueAdded):
            assert ("vhost", key[1]) in self.things
            self._add(key, thing)
        else:
            bound = [b for k, b in self.things.items() if len(k) == 6 and k[0] == key[1]]
            assert not [b for b in bound if key[0] == "exchange" and b.source == key[2]]
            assert (key[0], key[2]) not in [(b.destination_type, b.destination) for b in bound]
            self._remove(key, thing)

    def _add(self, key: Any, thing: Any) -> None:
        assert key not in self.things
        self.things[key] = thing

    def _remove(self, key: Any, thing: Any) -> None:
        assert self.things.pop(key) == thing


@pytest.mark.parametrize("seed", SEEDS)
def test_follower_that_missed_entries_knows_what_one_knows_that_heard_all(
    driver: Any, random_commands: Any, seed: int
) -> None:
    source = random_commands(seed)
    pick = random.Random(seed)
    for _ in range(STEPS):
        driver.do(source.next())
    catalog, follower = Catalog(), Follower()
    index = 0
    while index < len(driver.log):
        if pick.random() < 0.2:
            ahead = Catalog.restore(catalog.snapshot())
            for _ in range(pick.randrange(1, 40)):
                if index < len(driver.log):
                    index += 1
                    ahead.apply(index, driver.log[index - 1])
            follower.receive(catalog.load(ahead.snapshot()))
            assert catalog.digest() == ahead.digest()
        else:
            index += 1
            follower.receive(catalog.apply(index, driver.log[index - 1])[1])
        told = Follower()
        told.receive(catalog.contents())
        assert follower.things == told.things
    assert catalog.digest() == driver.catalog.digest()


def test_queue_declared_anew_is_another_queue_and_its_bindings_move(driver: Any) -> None:
    old = driver.queue("q")
    binding = driver.bind("amq.topic", "q", "a.#")
    before = Catalog.restore(driver.catalog.snapshot())
    driver.do(commands.DeleteQueue("/", "q"))
    new = driver.queue("q")
    driver.bind("amq.topic", "q", "a.#")
    assert difference(before, driver.catalog) == [
        BindingRemoved(binding),
        QueueRemoved(old),
        QueueAdded(new),
        BindingAdded(binding),
    ]


def test_exchange_with_another_type_is_removed_and_added(driver: Any) -> None:
    old = driver.exchange("x", "fanout")
    before = Catalog.restore(driver.catalog.snapshot())
    driver.do(commands.DeleteExchange("/", "x"))
    new = driver.exchange("x", "topic")
    assert difference(before, driver.catalog) == [ExchangeRemoved(old), ExchangeAdded(new)]


def test_users_are_told_when_they_come_change_and_go(driver: Any) -> None:
    driver.do(commands.PutUser(User("old", b"s", b"h")))
    driver.do(commands.PutUser(User("same", b"s", b"h")))
    before = Catalog.restore(driver.catalog.snapshot())
    driver.do(commands.DeleteUser("old"))
    changed = User("guest", b"s", b"other")
    driver.do(commands.PutUser(changed))
    assert difference(before, driver.catalog) == [
        UserChanged("old", None),
        UserChanged("guest", changed),
    ]


def test_damaged_snapshot_leaves_the_catalog_as_it_is(driver: Any) -> None:
    driver.do(commands.DeclareExchange(Exchange("/", "x", "direct")))
    digest = driver.catalog.digest()
    with pytest.raises(SnapshotError):
        driver.catalog.load(driver.catalog.snapshot()[:-1])
    assert driver.catalog.digest() == digest


def test_founders_are_the_member_ids_that_the_proposer_knew(driver: Any) -> None:
    queue = driver.queue(
        "q", "quorum", replicas=3, preferred_node=2, member_ids=(RENEWED, 9 << 10 | 9)
    )
    assert queue.members == (2, 1, 3)
    assert queue.founders == (2, 1, RENEWED)
    assert driver.queue("c", preferred_node=3, member_ids=(RENEWED,)).founders == (RENEWED,)
