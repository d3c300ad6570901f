"""Which queues live on this node, and which sessions of its gateways talk to which queue."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, final

from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.flow.account import Account, Ledger
from headrace_broker.flow.cause_runs import CauseRuns
from headrace_broker.flow.effort import EffortTurns
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import DEAD_LETTERS, Cause
from headrace_broker.model.limits import CONFIGURE_TURN_MS, TIMER_WAKES_MAX
from headrace_broker.model.session import NO_BOOT, boot_mark, session_id
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.port import QueueListener
from headrace_broker.runtime.contract.queue_log import MemoryQueueLog, QueueLog, RaftQueueLog
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.dead_letter.session import DeadLetterSession
from headrace_broker.runtime.hosting.departures import Departures
from headrace_broker.runtime.hosting.ends import Duties, Owner, ignore
from headrace_broker.runtime.hosting.sibling_leads import SiblingLeads
from headrace_broker.runtime.intake.intake_turns import IntakeTurns
from headrace_broker.runtime.intake.intake_watch import IntakePoller, IntakeWatch
from headrace_broker.runtime.intake.outflow_watch import OutflowWatch
from headrace_broker.runtime.intake.queue_gates import QueueGates
from headrace_broker.runtime.replica.filtering import FilterTurns
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.session.reachability import LeaderView, Reachability
from headrace_broker.runtime.session.session import QueueSession
from headrace_broker.runtime.session.wire import Send, SessionRouter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headrace_raftlog.node.node import RaftNode

NODE_DOWN_GRACE_SECONDS: Final = 2.0  # of a node unheard, before its consumers' messages return
SESSION_TICK_SECONDS: Final = 0.5  # how often sessions look for lost answers

log = logging.getLogger("headrace.queue")


def _call_soon(callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(callback)


def _call_later(seconds: float, callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, callback)


def _clock_us() -> int:
    return time.monotonic_ns() // 1000


def _cpu_us() -> int:
    return time.thread_time_ns() // 1000


@final
class Hosting:
    """Starts and stops replicas by the catalog, and keeps sessions in touch with leaders."""

    def __init__(
        self,
        raft: RaftNode,
        node: int,
        peers: list[int],
        send: Send,
        clock: Clock | None = None,
        ledger: Ledger | None = None,
        siblings: Collection[int] = (),
    ) -> None:
        self.clock = Clock() if clock is None else clock  # gives the time stamps of commands
        self.session_router = SessionRouter(node, send)  # connects sessions and replicas
        self.hosts: dict[int, QueueHost] = {}  # replicas on this node by queue group
        self.sibling_leads = SiblingLeads(siblings, self.hosts, send)  # queues led next door
        self.recent = RecentlyApplied(self.hosts)  # in the order of what was applied to them
        self.on_unused: Callable[[Queue], None] = ignore  # an auto-delete queue's last one went
        # called when a message that a queue still holds cannot be read; the node must stop
        self.on_unreadable: Callable[[BaseException], None] = ignore
        self._unreadable = lambda error: self.on_unreadable(error)  # one object for all logs
        self.traffic = Traffic()  # counts what goes through the sessions of clients
        self.ledger = Ledger(FlowLimits()) if ledger is None else ledger  # the accounts of these
        # called with a session's id and whose it is when it begins
        self.on_session: Callable[[int, Account], None] = ignore
        # called with its id when its queue has forgotten it
        self.on_session_over: Callable[[int], None] = ignore
        self.departures = Departures(self._leave)  # of replicas of queues that are elsewhere now
        self.turns = IntakeTurns(_call_soon, _cpu_us)  # budgets of publishes
        self.intake = Intake(self.ledger.limits, self.turns)  # held for, taken from publishers
        self.turns.intake = self.intake
        self.effort_turns = EffortTurns(_call_soon, _cpu_us)  # methods of each in a turn
        # what is under way to each queue from here
        self.queue_gates = QueueGates(self.ledger.limits, self.intake, self.turns)
        self._peers_up: dict[int, int] = dict.fromkeys(peers, 0)  # boot count, 0 for down
        # bounds what comes into queues that are deep
        self.outflow = OutflowWatch(self.queue_gates, self._peers_up.keys(), send, _cpu_us)
        watch = IntakeWatch(self.intake, self.turns, self.outflow)
        self._looker = IntakePoller(watch, _clock_us, _call_later)
        self.duties = Duties(self)  # what this node does for the queues that it leads
        # called with what a queue led here answers to a group
        self.on_group_answer: Callable[[GroupAnswer], None] = ignore
        self._dead_letter_traffic = Traffic()
        self._dead_letter_account = Account(Cause("", DEAD_LETTERS, "", ""), self.ledger.limits)
        self._raft = raft
        raft.on_diverged = self.rebuild
        self._node = node
        self._filter_turns = FilterTurns()
        self._owner = Owner(self)
        self._sessions: dict[int, QueueSession] = {}
        self._by_group: dict[int, dict[int, QueueSession]] = {}
        self._next_number = 1
        self._asked: dict[int, int] = {}
        self._moved: dict[int, Queue] = {}  # by group, those that are not where they began
        self.leaders = LeaderView(node, raft, self.hosts, self._moved, self._peers_up)
        limits, has_leader = self.ledger.limits, self.leaders.has_leader
        self.reachability = Reachability(limits, has_leader, lambda: _clock_us() // 1000)
        self._gone: set[int] = set()  # node ids that belong to the cluster no more
        self._leader_waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._tick_handle: asyncio.TimerHandle | None = None
        self._grace_handles: dict[int, asyncio.TimerHandle] = {}
        self._owed: set[tuple[int, int]] = set()  # groups and nodes: NODE_DOWN was not taken
        self._unconfigured: dict[int, None] = {}  # groups that are to be told what holds now
        self._configure_handle: asyncio.Handle | None = None
        self._refusing: set[int] = set()  # groups: CONFIGURE was not taken

    def start(self) -> None:
        """Begin the periodic checks of silent sessions and of the intake."""
        self._looker.start()
        self._tick_later()

    def _tick_later(self) -> None:
        self._tick_handle = asyncio.get_running_loop().call_later(SESSION_TICK_SECONDS, self._tick)

    def stop(self) -> None:
        """End the periodic looks."""
        self._looker.stop()
        self._owner.turns.stop()
        for handle in (self._tick_handle, self._configure_handle, *self._grace_handles.values()):
            if handle is not None:
                handle.cancel()
        self._tick_handle = None
        self._grace_handles.clear()

    def _tick(self) -> None:
        self._tick_later()
        self.session_router.mend()
        self.sibling_leads.poll()
        owed, self._owed = self._owed, set()
        for group, node in owed:
            if (host := self.hosts.get(group)) is not None:
                self._report(host, node)
        refusing, self._refusing = self._refusing, set()
        self.configure(refusing)
        for session in list(self._sessions.values()):
            session.tick()
        self.reachability.poll(self._by_group)
        self.ledger.sweep()

    # Replicas

    def add_queue(self, queue: Queue) -> None:
        """Start this node's replica of a queue, if it is to have one, or is not to go yet."""
        if queue.revision:
            self._moved[queue.group] = queue
        if queue.group in self.hosts:
            return
        if self._node not in (*queue.members, *queue.leaving):
            if queue.revision:
                self.departures.leave(queue)  # it may have been there before this node slept
            return
        self.departures.stay(queue.group)
        if queue.logged:
            host = self._host(queue, RaftQueueLog(self._raft, queue.group, self._unreadable))
            self._register(queue, host)
            prefers = queue.members[0] == self._node
            try:
                self._raft.create_group(queue.group, queue.founders, (), host, campaign=prefers)
            except KeyError:  # an old catalog entry is applied anew; its removal follows
                self._unregister(queue)
            else:
                self._raft.set_members(queue.group, queue.members, revision=queue.revision)
        else:
            memory = MemoryQueueLog(self._node, asyncio.get_running_loop())
            host = self._host(queue, memory)
            memory.apply = host.apply_one
            self._register(queue, host)
            host.leadership(self._node, 1, True)

    def _host(self, queue: Queue, queue_log: QueueLog) -> QueueHost:
        board, turns = self.session_router, self._filter_turns
        return QueueHost(queue, self._node, queue_log, board, self.duties, self.clock, turns)

    def _register(self, queue: Queue, host: QueueHost) -> None:
        self.hosts[queue.group] = host
        self.session_router.hosts[queue.group] = host

    def _unregister(self, queue: Queue) -> QueueHost | None:
        self.session_router.hosts.pop(queue.group, None)
        host = self.hosts.pop(queue.group, None)
        if host is not None:
            host.leadership(0, 0, False)  # waiters for the disk are gone before the log is
            host.dying.end()
        return host

    def move_queue(self, queue: Queue) -> None:
        """Follow a queue to other nodes: start its replica here, have it join or go, or end it."""
        self._moved[queue.group] = queue
        host = self.hosts.get(queue.group)
        if host is None:
            self.add_queue(queue)
        elif self._node in (*queue.members, *queue.leaving):
            self.departures.stay(queue.group)
            host.queue = queue
            self._raft.set_members(queue.group, queue.members, revision=queue.revision)
            self.configure((queue.group,))
        else:
            self.departures.leave(queue)
        asyncio.get_running_loop().call_soon(self._relocate, queue)

    def _leave(self, queue: Queue) -> None:
        if self._unregister(queue) is not None:
            self.duties.left(queue)
        self._raft.leave_group(queue.group)

    def _relocate(self, queue: Queue) -> None:
        """Make sessions without a leader search the nodes where the queue is now."""
        for session in list(self._by_group.get(queue.group, {}).values()):
            if session.target in (0, self._node):
                session.relocate(self.locate(queue))

    def rebuild(self, group: int) -> None:
        """Begin a replica anew that differs from the others, and is brought up to date by them."""
        host = self.hosts.get(group)
        if host is not None:
            self._leave(host.queue)
            self.add_queue(host.queue)

    def remove_queue(self, queue: Queue) -> None:
        """Stop this node's replica and tell the sessions that the queue is gone."""
        host = self._unregister(queue)
        self.departures.stay(queue.group)
        self._asked.pop(queue.group, None)
        moved = self._moved.pop(queue.group, None)
        if host is not None:
            self.duties.left(queue)
        if queue.logged and (host is not None or moved is not None):
            self._raft.remove_group(queue.group)
        asyncio.get_running_loop().call_soon(self._deleted, queue)

    def _deleted(self, queue: Queue) -> None:
        """Notify the sessions, in a turn in which no log is applied."""
        for session in list(self._by_group.get(queue.group, {}).values()):
            session.on_deleted()
        self._answer_waiters(queue.group)

    def _answer_waiters(self, group: int) -> None:
        for waiter in self._leader_waiters.pop(group, []):
            if not waiter.done():
                waiter.set_result(None)

    def renewed_members(self) -> tuple[int, ...]:
        """Return the member ids of the nodes that lost their data once."""
        ids = [(node, self._raft.member_of(node)) for node in (self._node, *self._peers_up)]
        return tuple([member for node, member in ids if member != node])

    def leader_changed(self, queue: Queue, leader: int) -> None:
        """Turn to a queue's new leader once the current loop turn is over."""
        self.sibling_leads.changed(queue.group)
        asyncio.get_running_loop().call_soon(self._follow, queue, leader)

    def _follow(self, queue: Queue, leader: int) -> None:
        host = self.hosts.get(queue.group)
        if host is None:
            return
        if leader:
            self._answer_waiters(queue.group)
        if not host.leading:
            self.duties.left(queue)
        elif not host.serving:
            self._refusing.add(queue.group)
        if host.serving:
            self.duties.led(host)
            self._report(host, self._node)
            for peer in self._gone:
                self._report(host, peer)
            for peer, boot in self._peers_up.items():
                if boot:
                    self._report(host, peer)
                else:
                    self._after_grace(peer)
        for session in list(self._by_group.get(queue.group, {}).values()):
            session.relocate(leader)

    def configure(self, groups: Iterable[int]) -> None:
        """Update settings of queues that are led here: soon, a few at a time."""
        self._unconfigured.update(dict.fromkeys(groups))
        if self._unconfigured and self._configure_handle is None:
            self._configure_handle = asyncio.get_running_loop().call_soon(self._configure_some)

    def _configure_some(self) -> None:
        self._configure_handle = None
        until_ms = self.clock.monotonic_ms() + CONFIGURE_TURN_MS
        for group in list(self._unconfigured)[:TIMER_WAKES_MAX]:
            if self.clock.monotonic_ms() > until_ms:
                break
            del self._unconfigured[group]
            if (host := self.hosts.get(group)) is None or not host.leading:
                continue
            if not host.configure():
                self._refusing.add(group)
            elif host.serving:
                self.duties.configured(host)
        self.configure(())

    async def wait_leader(self, queue: Queue, seconds: float) -> bool:
        """Wait until a leader of the queue is known here; return False when the time is over.

        At once for a queue that is deleted meanwhile, or of which there is no replica here.
        """
        if self._node not in queue.members or not queue.logged:
            return True
        host = self.hosts.get(queue.group)
        if host is None or host.serving or self._raft.leader(queue.group) not in (0, self._node):
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._leader_waiters.setdefault(queue.group, [])
        waiters.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            return False
        finally:
            waiters.remove(waiter)
            if not waiters and self._leader_waiters.get(queue.group) is waiters:
                del self._leader_waiters[queue.group]
        return True

    # Sessions

    def open_session(self, queue: Queue, listener: QueueListener, account: Account) -> QueueSession:
        """Start a client's session with a queue; the account is charged for it."""
        number = self.new_session_id()
        self.on_session(number, account)
        board, traffic = self.session_router, self.traffic
        pending = self.queue_gates.enter(queue.group)
        return self._add(
            QueueSession(number, queue, listener, board, self._owner, traffic, account, pending)
        )

    def open_dead_letter_session(
        self, queue: Queue, listener: QueueListener, causes: CauseRuns
    ) -> QueueSession:
        """Start a session of the node's own with a queue, by which it sends dead letters.

        The sender charges each dead letter to its cause; the session itself charges no account.
        """
        number = self.new_session_id(deaths=True)
        reach = DeadLetterSession(self.session_router, causes)
        traffic, account = self._dead_letter_traffic, self._dead_letter_account
        pending = self.queue_gates.enter(queue.group)
        return self._add(
            QueueSession(number, queue, listener, reach, self._owner, traffic, account, pending)
        )

    def new_session_id(self, deaths: bool = False) -> int:
        """Return an unused session id; it may also name something without a session."""
        number = session_id(self._node, self._raft.boot, self._next_number, deaths)
        self._next_number += 1
        return number

    def _add(self, session: QueueSession) -> QueueSession:
        self._sessions[session.session] = session
        self._by_group.setdefault(session.queue.group, {})[session.session] = session
        self.session_router.sessions[session.session] = session.end
        return session

    def limits_changed(self) -> None:
        """Make queues and sessions compare their pending work with changed limits."""
        self.queue_gates.poll()
        self.intake.poll()
        for session in list(self._sessions.values()):
            session.publishing.poll()

    def session_closed(self, session: int) -> None:
        """Forget a session that its queue has forgotten."""
        closed = self._sessions.pop(session, None)
        self.session_router.sessions.pop(session, None)
        self.on_session_over(session)
        if closed is not None:
            closed.link.account.close_balance(closed.queue.group)
            self.queue_gates.leave(closed.queue.group)
            if (group := self._by_group.get(closed.queue.group)) is not None:
                group.pop(session, None)
                if not group:
                    del self._by_group[closed.queue.group]

    def locate(self, queue: Queue) -> int:
        """Return the node to talk to about a queue: its leader, or a member to ask for it."""
        if not queue.logged:
            return queue.members[0]
        queue = self._moved.get(queue.group, queue)
        if queue.group in self.hosts:
            leader = self._raft.leader(queue.group)
            if leader or not queue.revision:
                return leader  # a replica that has yet to join knows of none
        turn = self._asked.get(queue.group, -1) + 1
        self._asked[queue.group] = turn
        running = [node for node in queue.members if self._peers_up.get(node)]
        return running[turn % len(running)] if running else 0

    def machine_version(self, queue: Queue) -> int:
        """Return the newest machine version that all nodes with a replica of a queue know."""
        return self.duties.machine_version(self._moved.get(queue.group, queue))

    def peer_added(self, peer: int) -> None:
        """Note that a node belongs to the cluster."""
        self._peers_up.setdefault(peer, 0)
        self._gone.discard(peer)

    def peer_removed(self, peer: int) -> None:
        """Note that a node belongs to it no more: its sessions end."""
        self.peer_changed(peer, False, 0)
        self._peers_up.pop(peer, None)
        self._gone.add(peer)
        if (handle := self._grace_handles.pop(peer, None)) is not None:
            handle.cancel()
        for host in self.hosts.values():
            self._report(host, peer)

    def peer_changed(self, peer: int, up: bool, boot: int) -> None:
        """Note that a node came or went; resend to it, or give its consumers' messages back."""
        self.session_router.forget(peer)
        self.sibling_leads.peer_changed(peer, up)
        if (handle := self._grace_handles.pop(peer, None)) is not None:
            handle.cancel()
        if up:
            self._peers_up[peer] = boot
            for host in self.hosts.values():
                self._report(host, peer)
            for session in list(self._sessions.values()):
                if session.target in (0, peer):
                    session.relocate(self.locate(session.queue))
            return
        self._peers_up[peer] = 0
        for session in list(self._sessions.values()):
            if session.target == peer:
                session.relocate(0)
        self._after_grace(peer)

    def own_boot(self) -> None:
        """Note that this node's boot count is certain: sessions of its other ones end."""
        for host in self.hosts.values():
            self._report(host, self._node)

    def _after_grace(self, peer: int) -> None:
        """Give a node up when it stays away; a replica that leads since then is seen to as well."""
        if peer not in self._grace_handles:
            later = asyncio.get_running_loop().call_later
            self._grace_handles[peer] = later(NODE_DOWN_GRACE_SECONDS, self._give_up, peer)

    def _give_up(self, peer: int) -> None:
        del self._grace_handles[peer]
        for host in self.hosts.values():
            self._report(host, peer)

    def _report(self, host: QueueHost, node: int) -> None:
        """Replicate a node's state through a leading replica; repeat later if need be."""
        if node in self._gone:
            kept = NO_BOOT
        else:
            boot = self._raft.boot if node == self._node else self._peers_up.get(node, 0)
            if not boot and node in self._grace_handles:
                return  # it may come back; its time is not over
            kept = boot_mark(boot)
        if not host.node_down(node, kept):
            self._owed.add((host.queue.group, node))
