"""Which replicas run here, who leads, and what becomes of sessions as nodes come and go."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest
from msgspec import structs

from headrace_broker.core.queue.command.command import NodeDown, encode_attach, stamp_command
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.messages.effect import REASON_REJECTED, Acquired
from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM, Queue
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.session import BOOT_MAX, session_id
from headrace_broker.runtime.contract import queue_log
from headrace_broker.runtime.contract.port import Attachment, PendingConfirm
from headrace_broker.runtime.contract.queue_log import NOT_LEADING, TAKEN, RaftQueueLog
from headrace_broker.runtime.hosting import hosting as module
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.replica.dead_letter_queue import DeadRun
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import BUSY, NOT_LEADER, QUEUED

MEMBERS = (1, 2, 3)
QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, MEMBERS, founders=MEMBERS)
ELSEWHERE = Queue("/", "far", QUEUE_QUORUM, 8, (2, 3, 4))
MEMORY = Queue("/", "here", QUEUE_CLASSIC, 9, (1,), durable=False, auto_delete=True)


class Raft:
    """Groups of node 1 that commit nothing by themselves."""

    def __init__(self):
        self.boot = 5
        self.groups = {}
        self.created = []
        self.removed = []
        self.left = []
        self.leaders = {}
        self.members = {}
        self.renewed = {}
        self.dead = []
        self.unreadable = KeyError()
        self.proposed = []
        self.busy = False

    def create_group(self, group, voters, learners, handler, campaign=False):
        if group in self.removed:
            raise KeyError(group)
        self.groups[group] = handler
        self.created.append((group, voters, campaign))

    def remove_group(self, group):
        self.removed.append(group)

    def leave_group(self, group):
        self.left.append(group)

    def leader(self, group):
        return self.leaders.get(group, 0)

    def set_members(self, group, nodes, revision):
        self.members[group] = nodes

    def entry_dead(self, group, index):
        self.dead.append((group, index))

    def entry_at_hand(self, group, index, done):
        raise self.unreadable

    def member_of(self, node):
        return self.renewed.get(node, node)

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

    def downs(self):
        commands = [decode_command(data) for _, data in self.proposed]
        return [(c.node, c.boot_keep) for c in commands if isinstance(c, NodeDown)]


class Node:
    """Node 1 of four."""

    def __init__(self):
        raft: Any = Raft()
        self.raft, self.sent = raft, []
        self.hosting = Hosting(raft, 1, [2, 3, 4], self._send)
        self.hosting.departures.settle()
        self.account = self.hosting.ledger.open(Cause("n1/1/1", CONNECTION, "", "n1"))
        self.failures: list[BaseException] = []
        self.hosting.on_unreadable = self.failures.append

    def _send(self, node, payload):
        self.sent.append(node)
        return True

    def attach_from(self, node, boot):
        """Let a session of another node have a consumer."""
        session = session_id(node, boot, 1)
        data = stamp_command(1, encode_attach(session, 1, 1, 10, False, b"c"))
        self.raft.groups[7].apply([Entry(1, 1, ENTRY_NORMAL, data)])


@pytest.fixture
def run():
    """Run a scenario with a node on an event loop; timers fire at once when asked to."""

    def runner(scenario):
        async def work():
            node = Node()
            try:
                return await scenario(node)
            finally:
                node.hosting.stop()

        return asyncio.run(work())

    return runner


@pytest.fixture
def no_grace(monkeypatch):
    """Let a node be given up as soon as the loop turns."""
    monkeypatch.setattr(module, "NODE_DOWN_GRACE_SECONDS", 0.0)


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


def test_replica_starts_on_members_and_the_first_campaigns(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        node.hosting.add_queue(QUEUE)
        node.hosting.add_queue(ELSEWHERE)
        assert node.raft.created == [(7, (1, 2, 3), True)]
        assert list(node.hosting.hosts) == [7]

    run(scenario)


def test_replica_of_a_queue_removed_in_an_earlier_life_does_not_start(run):
    async def scenario(node):
        node.raft.removed.append(7)
        node.hosting.add_queue(QUEUE)
        assert node.hosting.hosts == {}
        assert node.hosting.session_router.hosts == {}
        node.hosting.remove_queue(QUEUE)

    run(scenario)


def test_memory_queue_serves_at_once_and_tells_when_it_is_unused(run, listener, publishes):
    async def scenario(node):
        unused: list[Queue] = []
        node.hosting.on_unused = unused.append
        node.hosting.add_queue(MEMORY)
        session = node.hosting.open_session(MEMORY, listener, node.account)
        await session.attach(1, Attachment("c", 10))
        pending_confirm = PendingConfirm(1, 1)
        session.publish(publishes(b"a"), pending_confirm)
        session.flush()
        await turns()
        assert listener.confirmed == [pending_confirm]
        assert listener.bodies == [b"a"]
        assert unused == []
        session.close()
        await turns()
        assert unused == [MEMORY]
        assert len(node.hosting._sessions) == 0
        assert node.hosting._by_group == {}

    run(scenario)


def test_removed_queue_ends_sessions_in_a_turn_of_their_own(run, listener, publishes):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        session = node.hosting.open_session(QUEUE, listener, node.account)
        pending_confirm = PendingConfirm(1, 1)
        session.publish(publishes(b"a"), pending_confirm)
        session.flush()
        node.hosting.remove_queue(QUEUE)
        assert listener.confirmed == []  # this is within an apply
        await turns()
        assert listener.confirmed == [pending_confirm]
        assert node.raft.removed == [7]
        session.close()
        assert len(node.hosting._sessions) == 0

    run(scenario)


def test_sessions_follow_the_leader(run, listener):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        session = node.hosting.open_session(QUEUE, listener, node.account)
        assert session.target == 0
        node.raft.lead(7, 2)
        assert session.target == 0
        await turns()
        assert session.target == 2
        node.raft.lead(7, 1)  # not serving yet
        await turns()
        assert session.target == 0
        node.raft.lead(7, 1, serving=True)
        await turns()
        assert session.target == 1

    run(scenario)


def test_wait_leader_waits_for_one_that_serves(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        waiting = asyncio.ensure_future(node.hosting.wait_leader(QUEUE, 10.0))
        await turns()
        node.raft.lead(7, 1)
        await turns()
        assert not waiting.done()
        node.raft.lead(7, 1, serving=True)
        await turns()
        assert await waiting
        assert await node.hosting.wait_leader(QUEUE, 0.0)

    run(scenario)


def test_wait_leader_in_vain_leaves_nothing_behind(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        assert not await node.hosting.wait_leader(QUEUE, 0.0)
        assert node.hosting._leader_waiters == {}

    run(scenario)


def test_wait_leader_ends_when_the_queue_is_removed(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        waiting = asyncio.ensure_future(node.hosting.wait_leader(QUEUE, 10.0))
        await turns()
        node.hosting.remove_queue(QUEUE)
        await turns()
        assert await waiting
        assert await node.hosting.wait_leader(QUEUE, 0.0)
        assert node.hosting._leader_waiters == {}

    run(scenario)


def test_locate_asks_only_members_that_run(run):
    async def scenario(node):
        assert node.hosting.locate(ELSEWHERE) == 0
        node.hosting.peer_changed(3, True, 1)
        assert [node.hosting.locate(ELSEWHERE) for _ in range(2)] == [3, 3]
        node.hosting.peer_changed(4, True, 1)
        assert {node.hosting.locate(ELSEWHERE) for _ in range(2)} == {3, 4}
        node.hosting.remove_queue(ELSEWHERE)
        assert node.hosting._asked == {}
        assert node.hosting.locate(MEMORY) == 1

    run(scenario)


def test_sessions_leave_a_node_that_went_and_try_again_when_it_is_back(run, listener):
    async def scenario(node):
        node.hosting.peer_changed(3, True, 1)
        session = node.hosting.open_session(ELSEWHERE, listener, node.account)
        assert session.target == 3
        node.hosting.peer_changed(3, False, 1)
        assert session.target == 0
        node.hosting.peer_changed(3, True, 2)
        assert session.target == 3

    run(scenario)


def test_silent_node_is_given_up_after_its_grace(run, no_grace):
    async def scenario(node):
        node.hosting.peer_changed(2, True, 1)
        node.hosting.add_queue(QUEUE)
        node.raft.lead(7, 1, serving=True)
        await turns()
        node.attach_from(2, 1)
        node.hosting.peer_changed(2, False, 1)
        assert node.raft.downs() == []
        await turns()
        assert node.raft.downs() == [(2, 0)]

    run(scenario)


def test_node_that_flaps_gets_its_whole_grace_each_time(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        node.hosting.peer_changed(2, True, 1)
        node.hosting.peer_changed(2, False, 1)
        first = node.hosting._grace_handles[2]
        node.hosting.peer_changed(2, True, 1)
        assert first.cancelled()
        node.hosting.peer_changed(2, False, 1)
        assert node.hosting._grace_handles[2].when() >= first.when()
        node.hosting.stop()
        assert node.hosting._grace_handles == {}

    run(scenario)


def test_rebooted_node_ends_its_old_sessions_and_so_does_this_one(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        node.attach_from(2, 1)
        node.hosting.peer_changed(2, True, 2)
        assert node.raft.downs() == []  # another node leads
        node.raft.lead(7, 1, serving=True)
        await turns()
        assert node.raft.downs() == [(2, 2)]
        node.hosting.peer_changed(2, True, 3)
        assert node.raft.downs() == [(2, 2), (2, 3)]

    run(scenario)


def test_sessions_of_an_earlier_boot_of_this_node_end(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        node.attach_from(1, 4)
        node.raft.lead(7, 1, serving=True)
        await turns()
        assert node.raft.downs() == [(1, 5)]

    run(scenario)


def test_report_that_a_busy_log_refused_is_made_later(run, no_grace):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        node.raft.lead(7, 1, serving=True)
        await turns()
        node.attach_from(2, 1)
        node.raft.busy = True
        node.hosting.peer_changed(2, True, 2)
        node.hosting._tick()
        assert node.raft.downs() == []
        node.raft.busy = False
        node.hosting._tick()
        assert node.raft.downs() == [(2, 2)]
        node.hosting._tick()
        assert node.raft.downs() == [(2, 2)]

    run(scenario)


class Failing:
    """A session with a bug."""

    def tick(self):
        raise ZeroDivisionError


def test_a_session_that_raises_does_not_end_the_ticks(run, listener):
    async def scenario(node):
        node.hosting.start()
        session = node.hosting.open_session(ELSEWHERE, listener, node.account)
        before = node.hosting._tick_handle
        failing: Any = Failing()
        node.hosting._sessions[session.session] = failing
        with pytest.raises(ZeroDivisionError):
            node.hosting._tick()
        assert node.hosting._tick_handle is not before

    run(scenario)


def test_group_is_founded_by_the_members_of_its_first_days_and_lives_where_it_shall(run):
    async def scenario(node):
        founders = (1, 77 << 10 | 2, 3)
        node.hosting.add_queue(Queue("/", "q", QUEUE_QUORUM, 11, MEMBERS, founders=founders))
        assert node.raft.created == [(11, founders, True)]
        assert node.raft.members == {11: MEMBERS}

    run(scenario)


def test_members_on_other_than_their_first_disks_are_named(run):
    async def scenario(node):
        assert node.hosting.renewed_members() == ()
        node.raft.renewed = {3: 77 << 10 | 3}
        assert node.hosting.renewed_members() == (77 << 10 | 3,)

    run(scenario)


def test_entry_without_messages_is_dead_to_the_log(run):
    async def scenario(node):
        node.hosting.add_queue(QUEUE)
        node.attach_from(2, 1)
        assert node.raft.dead == [(7, 1)]

    run(scenario)


@pytest.mark.parametrize("outcome", [QUEUED, 1, NOT_LEADER, BUSY])
def test_what_the_log_answers_to_a_proposal(run, outcome):
    async def scenario(node):
        taken = []

        def propose(group, data, urgent):
            taken.append((group, data, urgent))
            return outcome

        node.raft.propose = propose
        log = RaftQueueLog(node.raft, 7, node.failures.append)
        expected = {NOT_LEADER: NOT_LEADING, BUSY: queue_log.BUSY}.get(outcome, TAKEN)
        assert log.propose(b"x", True) == expected
        assert taken == [(7, b"x", True)]

    run(scenario)


def test_log_that_cannot_be_read_stops_the_node(run):
    async def scenario(node):
        error = OSError(errno.EMFILE, "too many open files")
        node.raft.unreadable = error
        log = RaftQueueLog(node.raft, 7, node.hosting._unreadable)
        with pytest.raises(OSError, match="too many"):
            log.entry_at_hand(1, print)
        assert node.failures == [error]
        node.raft.unreadable = KeyError()
        with pytest.raises(KeyError):
            log.entry_at_hand(1, print)
        assert node.failures == [error]

    run(scenario)


def test_boot_counts_beyond_session_ids_end_no_living_session(run):
    async def scenario(node):
        late = 3 * BOOT_MAX + 9  # of a node that lost its data
        node.hosting.add_queue(QUEUE)
        node.attach_from(2, late)
        node.raft.lead(7, 1, serving=True)
        node.hosting.peer_changed(2, True, late)
        await turns()
        assert node.raft.downs() == []
        node.hosting.peer_changed(2, True, late + 1)
        assert node.raft.downs() == [(2, 10)]

    run(scenario)


@pytest.mark.parametrize("deleted", [True, False])
def test_whoever_waits_for_the_disk_is_gone_before_the_group_is(
    run, world, listener, publishes, deleted
):
    session = world.open(3, listener)
    for body in (b"a", b"b"):
        session.publish(publishes(body), None)
        session.flush()
        world.settle_down()
    world.disk_is_slow = True
    world.run(session.attach(1, Attachment("c", 1)))
    feeds, gets, dying = (host := world.hosts[1])._feeds, host.lead.gets, host.dying
    dying.accept(DeadRun([Acquired(2, 2, 0, 1, 0, 0)], REASON_REJECTED, [0], {}))

    async def scenario(node):
        get = asyncio.ensure_future(session.get())
        await turns()
        world.settle_down()
        assert (feeds.count, gets.waiting_count, dying.unread_count) == (1, 1, 1)
        node.hosting._register(QUEUE, host)
        if deleted:
            node.hosting.remove_queue(QUEUE)
        else:
            node.hosting.move_queue(structs.replace(QUEUE, members=(2, 3)))
        assert [node.raft.removed, node.raft.left] == ([[7], []] if deleted else [[], [7]])
        assert (sum(map(len, world.reading.values())), world.watcher.letters_lost) == (0, 1)
        assert (feeds.count, gets.waiting_count, dying.unread_count) == (0, 0, 0)
        world.gone.update((1, 2))
        world.read_all()
        await turns()
        assert (get.done(), listener.bodies) == (False, [])
        get.cancel()

    run(scenario)
