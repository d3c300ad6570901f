"""Real sessions, publishing to a queue whose consumer is outrun."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.runtime.conftest import Listener, StoppedClock, World

from headrace_broker.core.queue.command.command import CONFIGURE, STAMP_BYTES
from headrace_broker.flow.paced_confirms import LOOK_US, STALLED_US, STANDING_MIN
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import ACCEPT, Attachment, PendingConfirm, QueueClient

PREFETCH = 10
STANDING = 200
BURST = STANDING_MIN + PREFETCH  # more than what left can have made room for
BOTH = pytest.mark.parametrize("gateway", [1, 2], ids=["same_node", "other_node"])


class SteppingClock(StoppedClock):
    """A clock whose microseconds stand still with the rest of it."""

    def monotonic_us(self) -> int:
        return self.ms * 1000


class Scene:
    """A consumer that settles all that it has at once, and a publisher that brings as much."""

    def __init__(
        self,
        gateway: int,
        publishes: Callable[..., list[Publish]],
        confirms: Listener | None = None,
    ) -> None:
        self.clock = SteppingClock()
        self.world = World({1: self.clock, 2: self.clock})
        self.confirms, self.deliveries = confirms or Listener(), Listener()
        self.publisher = self.world.open(gateway, self.confirms)
        self.consumer = self.world.open(gateway, self.deliveries)
        self.world.run(self.consumer.attach(1, Attachment("c", PREFETCH)))
        self._publishes = publishes
        self._settled = 0
        self.publish(STANDING)
        for _ in range(4 * LOOK_US // 1000):
            self.settle()
            self.publish(PREFETCH)
        lead = self.world.hosts[self.world.leader].lead
        assert lead is not None
        telling = lead.telling
        assert telling.paced is not None
        assert telling.paced.is_on
        while not self.publisher.publishing.drained:
            telling.paced.tell_all()
            self.world.settle_down()
        self.confirms.confirmed.clear()

    def publish(self, count: int) -> PendingConfirm:
        pending = PendingConfirm(1, count)
        self.publisher.publish(self._publishes(*[b"x"] * count), pending)
        self.publisher.flush()
        self.world.settle_down()
        return pending

    def settle(self) -> None:
        self.clock.ms += 1
        last = len(self.deliveries.bodies)
        self.consumer.settle(1, ACCEPT, self._settled + 1, last)
        self._settled = last
        self.consumer.flush()
        self.world.settle_down()


@BOTH
def test_a_publish_is_confirmed_once_as_many_messages_have_left(gateway, publishes):
    scene = Scene(gateway, publishes)
    pending = scene.publish(BURST)
    assert scene.confirms.confirmed == []
    settles = 0
    while not scene.confirms.confirmed:
        scene.settle()
        settles += 1
    assert 1 <= settles <= 1 + BURST // PREFETCH  # a bit less is confirmed than leaves
    assert scene.confirms.confirmed == [pending]


@BOTH
def test_it_is_confirmed_once_by_the_leader_that_applied_it_or_the_next(gateway, publishes):
    scene = Scene(gateway, publishes)
    pending = scene.publish(BURST)
    assert scene.confirms.confirmed == []
    ready = scene.world.hosts[1].machine.ready_count
    scene.world.lead(2)
    for session in (scene.publisher, scene.consumer):
        session.relocate(2)
    scene.world.settle_down()
    assert scene.confirms.confirmed == [pending]
    assert [host.machine.ready_count for host in scene.world.hosts.values()] == [ready, ready]


class Eager(Listener):
    """A channel that publishes as soon as it gets a confirm."""

    def __init__(self) -> None:
        super().__init__()
        self.next: list[Publish] = []

    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        super().on_confirmed(client, pending_confirms)
        if self.next:
            client.publish(self.next, None)
            client.flush()


def test_what_confirms_bring_is_not_before_the_settings_of_the_next_leadership(publishes):
    eager = Eager()
    scene = Scene(1, publishes, eager)
    pending = scene.publish(BURST)
    assert eager.confirmed == []
    eager.next = publishes(b"y")
    world = scene.world
    before = len(world.log)
    world.watcher.version = 2
    world.hosts[1].leadership(1, 3, True)
    assert eager.confirmed == [pending]
    assert [entry.data[STAMP_BYTES] for entry in world.log[before:]] == [CONFIGURE]
    scene.publisher.relocate(1)
    world.settle_down()
    assert world.hosts[1].machine.ready_count == STANDING + BURST + 1 - PREFETCH


def test_it_is_confirmed_when_the_consumer_stops(publishes):
    scene = Scene(1, publishes)
    pending = scene.publish(BURST)
    assert scene.confirms.confirmed == []
    lead = scene.world.hosts[1].lead
    assert lead is not None
    telling = lead.telling
    now_us = scene.clock.monotonic_us()
    assert telling.is_behind(now_us)
    assert telling.paced is not None
    telling.paced.poll(now_us + 10 * STALLED_US)
    scene.world.settle_down()
    assert scene.confirms.confirmed == [pending]


def test_a_queue_that_was_never_behind_has_nothing_to_pace(publishes):
    world, listener = World(), Listener()
    session = world.open(1, listener)
    session.publish(publishes(*[b"x"] * STANDING), None)
    session.flush()
    world.settle_down()
    lead = world.hosts[1].lead
    assert lead is not None
    assert lead.telling.paced is None
