"""Settings of queues, sent a few at a time and again after a refusal of the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.leader_command import Configure
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.flow.cause_runs import CauseRuns
from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM, Queue
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.limits import CONFIGURE_TURN_MS, TIMER_WAKES_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.session import tells_deaths
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.host_watcher import Configuration
from headrace_broker.runtime.hosting import hosting as module
from headrace_broker.runtime.hosting.ends import Duties
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_raftlog.model.group import BUSY, NOT_LEADER

MEMBERS = (1, 2, 3)
QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, MEMBERS, founders=MEMBERS)
MEMORY = Queue("/", "here", QUEUE_CLASSIC, 9, (1,), durable=False, auto_delete=True)


class Raft:
    """Groups that commit nothing by themselves."""

    boot = 5

    def __init__(self):
        self.groups = {}
        self.leaders = {}
        self.proposed = []
        self.busy = False

    def create_group(self, group, voters, learners, handler, campaign=False):
        self.groups[group] = handler

    def set_members(self, group, nodes, revision):
        """Ignore it: members do not change here."""

    def leader(self, group):
        return self.leaders.get(group, 0)

    def propose(self, group, data, urgent=False):
        if self.leaders.get(group) != 1:
            return NOT_LEADER
        if self.busy:
            return BUSY
        self.proposed.append((group, data))
        return len(self.proposed)

    def lead(self, group, leader, serving=False):
        self.leaders[group] = leader
        self.groups[group].leadership(leader, 1, serving)


class Node:
    """Node 1 of three."""

    def __init__(self):
        self.raft = Raft()
        raft: Any = self.raft
        self.hosting = Hosting(raft, 1, [2, 3], lambda node, payload: True)
        self.account = self.hosting.ledger.open(Cause("n1/1/1", CONNECTION, "", "n1"))


@pytest.fixture
def run():
    """Run a scenario with a node on an event loop."""

    def runner(scenario):
        async def work():
            node = Node()
            try:
                return await scenario(node)
            finally:
                node.hosting.stop()

        return asyncio.run(work())

    return runner


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


class Plans(Duties):
    """Duties that only return a queue's settings, and record their calls."""

    def __init__(self, hosting):
        super().__init__(hosting)
        self.length = 5
        self.heard = []

    def configuration(self, queue):
        settings = QueueSettings()
        settings.max_length = self.length
        return Configuration(MACHINE_VERSION, settings, {"max-length": self.length})

    def led(self, host):
        self.heard.append("led")

    def configured(self, host):
        self.heard.append("configured")

    def left(self, queue):
        self.heard.append("left")


def lengths(node):
    commands = [decode_command(data) for _, data in node.raft.proposed]
    return [int(c.settings.max_length) for c in commands if isinstance(c, Configure)]


def test_queue_is_told_what_it_is_to_be_before_anything_else(run):
    async def scenario(node):
        node.hosting.duties = plans = Plans(node.hosting)
        node.hosting.add_queue(QUEUE)
        node.raft.lead(7, 1, serving=True)
        await turns()
        assert lengths(node) == [5]
        assert plans.heard == ["led"]
        plans.length = 6
        for groups in ([7], [7, 99]):
            node.hosting.configure(groups)
            await turns(1)
        assert lengths(node) == [5, 6]
        assert plans.heard == ["led", "configured", "configured"]
        node.raft.lead(7, 2)
        await turns()
        node.hosting.configure([7])
        await turns()
        assert lengths(node) == [5, 6]
        assert plans.heard[-1] == "left"

    run(scenario)


class CountingClock(Clock):
    """A clock that advances by some milliseconds at each reading."""

    def __init__(self, step_ms):
        self.ms = 0
        self.step_ms = step_ms

    def monotonic_ms(self):
        self.ms += self.step_ms
        return self.ms


def test_many_queues_that_change_share_the_turns_of_the_loop(run):
    async def scenario(node):
        node.hosting.duties = plans = Plans(node.hosting)
        queues = [
            Queue("/", f"q{group}", QUEUE_QUORUM, group, MEMBERS, founders=MEMBERS)
            for group in range(100, 101 + TIMER_WAKES_MAX)
        ]
        for queue in queues:
            node.hosting.add_queue(queue)
            node.raft.lead(queue.group, 1, serving=True)
        await turns()
        told = len(lengths(node))
        plans.length = 6
        node.hosting.clock = CountingClock(0)
        node.hosting.configure(queue.group for queue in queues)
        await turns(1)
        assert len(lengths(node)) - told == TIMER_WAKES_MAX
        await turns(1)
        assert len(lengths(node)) - told == TIMER_WAKES_MAX + 1

    run(scenario)


def test_queues_whose_settings_take_long_to_work_out_leave_the_turn_to_others(run):
    async def scenario(node):
        node.hosting.duties = plans = Plans(node.hosting)
        for group in (7, 8, 9):
            queue = Queue("/", f"q{group}", QUEUE_QUORUM, group, MEMBERS, founders=MEMBERS)
            node.hosting.add_queue(queue)
            node.raft.lead(group, 1, serving=True)
        await turns()
        plans.length = 6
        node.hosting.clock = CountingClock(CONFIGURE_TURN_MS)
        node.hosting.configure([7, 8, 9])
        for told in ([6], [6, 6], [6, 6, 6]):
            await turns(1)
            assert lengths(node)[3:] == told

    run(scenario)


def test_settings_that_the_log_does_not_take_are_told_later(run, monkeypatch):
    monkeypatch.setattr(module, "SESSION_TICK_SECONDS", 0.0)

    async def scenario(node):
        node.hosting.duties = plans = Plans(node.hosting)
        node.hosting.add_queue(QUEUE)
        node.raft.busy = True
        node.raft.lead(7, 1, serving=True)
        await turns()
        assert not node.hosting.hosts[7].serving
        assert "led" not in plans.heard
        node.hosting.start()
        await turns(10)
        assert lengths(node) == []
        node.raft.busy = False
        await turns(10)
        assert node.hosting.hosts[7].serving
        assert "led" in plans.heard
        assert lengths(node) == [5]

    run(scenario)


def test_sessions_for_dead_letters_are_marked_and_count_as_no_clients(run, listener):
    async def scenario(node):
        node.hosting.add_queue(MEMORY)
        dead_letters = node.hosting.open_dead_letter_session(MEMORY, listener, CauseRuns())
        clients = node.hosting.open_session(MEMORY, listener, node.account)
        assert (tells_deaths(dead_letters.session), tells_deaths(clients.session)) == (True, False)
        dead_letters.publish([Publish(1, b"\x00\x00", False, False, b"\x00\x00", b"x")], None)
        dead_letters.flush()
        await turns()
        assert node.hosting.traffic.publish == 0
        assert node.hosting.hosts[9].machine.ready_count == 1

    run(scenario)
