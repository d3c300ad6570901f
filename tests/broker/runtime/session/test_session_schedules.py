"""Sessions and replicas under random schedules of traffic and faults: nothing lost, nothing twice.

Each example is a list of steps; afterwards everything is mended and has to come to rest.
"""

from __future__ import annotations

import asyncio
import random
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_broker.codecs.batch import message_body
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import OVERFLOW_REJECT_PUBLISH
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    RELEASE,
    Attachment,
    PendingConfirm,
    QueueListener,
)
from headrace_broker.runtime.session import lane, subscription

GATEWAYS = (1, 2, 3, 3)  # nodes of the sessions; node 3 has no replica
WINDOW_BYTES = 24  # some five bodies
COMMAND_BYTES = 150  # some three messages
LONG_SCHEDULES = 60
LONG_STEPS = 150
REST_ROUNDS = 3  # without anything left to do; what a task has just done takes one to take effect
MENDING_ROUNDS = 300  # ticks in which everything has to come to rest; retries are 32 apart at most


class Consumer:
    """Consumer as a channel knows it."""

    def __init__(self, number):
        self.number = number
        self.next = 1
        self.last_fresh = {}
        self.held = []
        self.started = None
        self.cancelling = None

    @property
    def active(self):
        return self.started is not None and self.started.done() and self.cancelling is None


class Channel(QueueListener):
    """A channel that checks its events."""

    def __init__(self, run, index):
        self.run = run
        self.index = index
        self.consumers = {}
        self.starts = {}  # number on the publish lane of a pending confirm's first publish
        self.published = 0
        self.session = run.world.open(GATEWAYS[index], self)

    def on_confirmed(self, client, pending_confirms):
        for pending_confirm in pending_confirms:
            assert pending_confirm.refused is None
            assert not pending_confirm.held
            del self.run.unconfirmed[pending_confirm]
            self.check_complete(pending_confirm)

    def on_rejected(self, client, pending_confirms):
        for pending_confirm in pending_confirms:
            assert pending_confirm.refused
            assert not pending_confirm.held
            self.note_refused(pending_confirm, self.run.unconfirmed.pop(pending_confirm))
            self.check_complete(pending_confirm)

    def on_deferred(self, client, pending_confirms):
        for pending_confirm in pending_confirms:
            assert pending_confirm.held
            self.note_refused(pending_confirm, self.run.unconfirmed[pending_confirm])
            self.run.deferred += 1
            self.check_complete(pending_confirm)

    def on_completed(self, client, pending_confirms, over):
        for pending_confirm in pending_confirms:
            self.check_complete(pending_confirm)
        finished = {
            pending_confirm for pending_confirm in pending_confirms if not pending_confirm.held
        }
        assert len(finished) == over
        for pending_confirm in finished:
            del self.run.unconfirmed[pending_confirm]

    def note_refused(self, pending_confirm, bodies):
        for number in pending_confirm.refused or ():
            assert bodies[number - 1] not in self.run.seen, "refused what it delivered"
            self.run.refused.add(bodies[number - 1])

    def check_complete(self, pending_confirm):
        """Check that publishes complete here are complete at the queue, and permanently."""
        _, rows = self.run.world.hosts[1].machine.deferred_of(self.session.session)
        start = self.starts[pending_confirm]
        for number in range(pending_confirm.first, pending_confirm.last + 1):
            seq = start + number - pending_confirm.first
            if not any(number in numbers for numbers in pending_confirm.holds or ()):
                assert not any(first <= seq < stop for first, stop in _pairs(rows))

    def on_timed_out(self, client, consumer):
        raise AssertionError("nothing times out")

    def on_writable(self, client):
        """Bytes are no matter here."""

    def on_cancelled(self, client, consumer, reason):
        raise AssertionError(reason)

    def on_delivery(self, client, run):
        consumer = self.consumers[run.consumer]
        assert consumer.cancelling is None or not consumer.cancelling.done()
        assert run.first == consumer.next
        consumer.next += len(run.positions)
        for offset, position in enumerate(run.positions):
            body = message_body(run.blob, run.base, position)
            where = (self.index, consumer.number, run.first + offset)
            self.run.delivered(consumer, body, bool(run.redelivered[offset]), where)
            consumer.held.append((run.first + offset, body))
        self.run.arrived.append((self, consumer, run))

    def settle(self, operation, count):
        """Settle the oldest `count` deliveries of every consumer."""
        for consumer in self.consumers.values():
            taken, consumer.held = consumer.held[:count], consumer.held[count:]
            for number, body in taken:
                self.run.settled(body, operation, (self.index, consumer.number, number))
                self.session.settle(consumer.number, operation, number, number)


class Run:
    """One example."""

    def __init__(self, world, publishes):
        self.world = world
        self.publishes = publishes
        self.published = 0
        self.unconfirmed = {}  # bodies by pending confirm
        self.refused = set()
        self.deferred = 0
        self.seen = set()
        self.may_return = set()
        self.holder = {}
        self.accepted = {}
        self.done = set()
        self.arrived = []
        self.channels = [Channel(self, index) for index in range(len(GATEWAYS))]

    # What is expected

    def delivered(self, consumer, body, again, where):
        assert body not in self.done, "an acknowledged message came back"
        assert body not in self.refused, "delivered what it refused"
        if again:
            assert body not in self.seen or body in self.may_return, "delivered twice"
        else:
            assert body not in self.seen, "delivered twice and not flagged"
            publisher, number = body.split(b"-")
            assert consumer.last_fresh.get(publisher, -1) < int(number), "out of order"
            consumer.last_fresh[publisher] = int(number)
        self.seen.add(body)
        self.may_return.discard(body)
        self.accepted.pop(body, None)
        self.holder[body] = where

    def settled(self, body, operation, where):
        if self.holder[body] != where or body in self.may_return:
            return  # void: it is somebody else's by now, or will be
        if operation == RELEASE:
            self.may_return.add(body)
        else:
            self.accepted[body] = where[0]

    def note_done(self):
        """Take note which acknowledgements the queue has answered."""
        for body, index in list(self.accepted.items()):
            lanes = self.channels[index].session.control.lane
            if not lanes.pending and not lanes.gathered:
                del self.accepted[body]
                if body not in self.may_return:
                    self.done.add(body)

    # Steps

    async def step(self, kind, who, amount):
        channel = self.channels[who]
        getattr(self, "do_" + kind)(channel, amount)
        await asyncio.sleep(0)
        self.note_done()

    def do_publish(self, channel, amount):
        bodies = []
        for _ in range(amount + 1):
            bodies.append(b"%d-%04d" % (channel.index, self.published))
            self.published += 1
        pending_confirm = PendingConfirm(1, len(bodies))
        pending_confirm.patient = True
        self.unconfirmed[pending_confirm] = bodies
        channel.starts[pending_confirm] = channel.published + 1
        channel.published += len(bodies)
        channel.session.publish(self.publishes(*bodies), pending_confirm)
        channel.session.flush()

    def do_attach(self, channel, amount):
        if len(channel.consumers) < 4:
            consumer = Consumer(len(channel.consumers) + 1)
            channel.consumers[consumer.number] = consumer
            work = channel.session.attach(consumer.number, Attachment("c", 2 * amount + 1))
            consumer.started = asyncio.ensure_future(work)

    def do_cancel(self, channel, amount):
        for consumer in channel.consumers.values():
            if consumer.active:
                work = channel.session.cancel(consumer.number)
                consumer.cancelling = asyncio.ensure_future(work)
                return

    def do_accept(self, channel, amount):
        channel.settle(ACCEPT, amount + 1)
        channel.session.flush()

    def do_release(self, channel, amount):
        channel.settle(RELEASE, 1)
        channel.session.flush()

    def do_consume(self, channel, amount):
        arrived, self.arrived = self.arrived, []
        for to, consumer, run in arrived:
            to.session.consumed(consumer.number, 6 * len(run.positions))

    def do_carry(self, channel, amount):
        self.world.carry()

    def do_apply(self, channel, amount):
        self.world.apply_new()

    def do_settle_down(self, channel, amount):
        self.world.settle_down()

    def do_lead(self, channel, amount):
        if amount % 2:
            self.world.lose_uncommitted()
        else:
            self.world.apply_new()
        self.world.lead(1 + amount // 2 % 2, known=amount > 3)
        for each in self.channels:
            if GATEWAYS[each.index] in self.world.hosts:
                each.session.relocate(self.world.leader)

    def do_cut(self, channel, amount):
        if self.world.cut:
            return
        self.world.break_links()
        for each in self.channels:
            if each.session.target != GATEWAYS[each.index]:
                each.session.relocate(0)

    def do_heal(self, channel, amount):
        if not self.world.cut:
            return
        self.world.cut = False
        for node, board in self.world.boards.items():
            for other in self.world.boards:
                if other != node:
                    board.forget(other)
        for each in self.channels:
            session = each.session
            if session.target != GATEWAYS[each.index]:
                session.relocate(session._owner.locate(session.queue))

    def do_node_down(self, channel, amount):
        node = GATEWAYS[channel.index]
        if not self.world.cut or node == self.world.leader:
            return
        self.world.apply_new()
        for body, (index, _, _) in self.holder.items():
            if GATEWAYS[index] == node and body not in self.done:
                self.may_return.add(body)
        self.world.hosts[self.world.leader].node_down(node, 0)
        self.world.apply_new()  # at once, so that it is plain whose acknowledgements are void

    def do_suspect(self, channel, amount):
        self.do_cut(channel, 0)
        self.do_node_down(channel, 0)
        if amount:
            self.do_heal(channel, 0)
            self.world.settle_down()

    def do_full(self, channel, amount):
        self.world.full ^= {GATEWAYS[channel.index]}

    def do_busy(self, channel, amount):
        self.world.busy = not self.world.busy

    def do_tick(self, channel, amount):
        for each in self.channels:
            each.session.tick()
        for host in self.world.hosts.values():
            host.configure()
        for board in self.world.boards.values():
            board.mend()

    # The end

    async def come_to_rest(self):
        self.world.busy = False
        self.world.full.clear()
        self.do_heal(None, 0)
        self.do_attach_last()
        machine = self.world.hosts[self.world.leader].machine
        rest = 0
        for _ in range(MENDING_ROUNDS):
            self.do_tick(None, 0)
            self.world.settle_down()
            self.do_consume(None, 0)
            self.world.settle_down()
            for channel in self.channels:
                channel.settle(ACCEPT, 1000)
                channel.session.flush()
            self.world.settle_down()
            await asyncio.sleep(0)
            self.note_done()
            left = machine.ready_count + machine.unsettled_count
            quiet = self.is_complete() and not left and self.is_quiet()
            rest = rest + 1 if quiet else 0
            if rest == REST_ROUNDS:
                break
        self.check(machine)

    def do_attach_last(self):
        """Make some consumer take the rest."""
        channel = self.channels[0]
        consumer = Consumer(99)
        channel.consumers[99] = consumer
        consumer.started = asyncio.ensure_future(channel.session.attach(99, Attachment("last", 3)))

    def is_complete(self):
        return len(self.seen) + len(self.refused) == self.published

    def is_quiet(self):
        return not self.unconfirmed and all(
            not channel.session.publishing.lane.pending
            and not channel.session.publishing.holding
            and not channel.session.control.lane.pending
            and all(
                task is None or task.done()
                for consumer in channel.consumers.values()
                for task in (consumer.started, consumer.cancelling)
            )
            for channel in self.channels
        )

    def check(self, machine):
        assert not self.unconfirmed, "publishes never confirmed"
        assert self.is_complete(), "messages lost, or refused and not told so"
        assert (machine.ready_count, machine.unsettled_count) == (0, 0), "messages stuck"
        assert self.is_quiet(), "a session is stuck"
        assert self.world.watcher.rejected == []
        assert len({host.machine.digest() for host in self.world.hosts.values()}) == 1
        attached = {(info.session, info.number) for info in machine.consumers() if info.attached}
        assert self.world.hosts[self.world.leader]._feeds.count == len(attached)
        for channel in self.channels:
            for consumer in channel.consumers.values():
                consumer.started.result()
                if consumer.cancelling is not None:
                    consumer.cancelling.result()
            alive = [each for each in channel.consumers.values() if each.cancelling is None]
            assert set(channel.session.consuming.subscriptions) == {each.number for each in alive}

    async def close(self):
        for channel in self.channels:
            channel.session.close()
        self.world.settle_down()
        machine = self.world.hosts[1].machine
        assert not any(each.session.session in machine._state.sessions for each in self.channels)
        assert self.world.hosts[self.world.leader]._feeds.count == 0
        owed = [(each.messages, each.byte_count) for each in self.world.ledger.accounts.values()]
        assert set(owed) == {(0, 0)}, "loans that were not repaid"
        assert self.world.gates.by_group[self.world.queue.group].byte_count == 0


def _pairs(rows):
    return zip(rows[::2], rows[1::2], strict=True)


KINDS = sorted(
    name[3:] for name in vars(Run) if name.startswith("do_") and name != "do_attach_last"
)
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 4)),
    min_size=20,
    max_size=80,
)


def explore(world, publishes, steps, length_max, high):
    """Run one example to its end; return how many pending confirms were deferred.

    The queue refuses what is above `length_max` and defers above `high`, 0 for no limit.
    """

    async def work():
        world.watcher.version = MACHINE_VERSION
        if length_max:
            world.watcher.settings.max_length = length_max
            world.watcher.settings.overflow = OVERFLOW_REJECT_PUBLISH
        world.watcher.settings.high_watermark = high
        world.watcher.settings.low_watermark = high // 2
        assert world.hosts[1].configure()
        world.settle_down()
        run = Run(world, publishes)
        for kind, who, amount in steps:
            await run.step(kind, who, amount)
        await run.come_to_rest()
        await run.close()
        return run.deferred

    with (
        mock.patch.object(subscription, "DELIVERY_WINDOW_BYTES", WINDOW_BYTES),
        mock.patch.object(lane, "COMMAND_BYTES_MAX", COMMAND_BYTES),
    ):
        return asyncio.run(work())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(steps=STEPS, length_max=st.sampled_from([0, 1, 5]), high=st.sampled_from([0, 1, 4, 9]))
def test_everything_arrives_once_whatever_happens_on_the_way(
    make_world, publishes, steps, length_max, high
):
    explore(make_world(), publishes, steps, length_max, high)


@pytest.mark.parametrize("seed", range(LONG_SCHEDULES))
def test_everything_arrives_once_in_long_schedules(world, publishes, seed):
    chance = random.Random(seed)
    rarely = {"busy", "full", "cut", "node_down", "cancel", "lead", "suspect"}
    weights = [1 if kind in rarely else 3 for kind in KINDS]
    weights[KINDS.index("publish")] = 6
    steps = [("attach", who, chance.randrange(5)) for who in range(len(GATEWAYS))]
    steps += [
        (kind, chance.randrange(len(GATEWAYS)), chance.randrange(5))
        for kind in chance.choices(KINDS, weights, k=LONG_STEPS)
    ]
    length_max, high = chance.choice([0, 0, 6]), seed % 3 * 4
    deferred = explore(world, publishes, steps, length_max, high)
    assert (deferred > 0) == (high > 0)
