"""The catalog on this node: group 0 applied to the machine, and changes carried to its leader.

A change is proposed by the node that leads group 0; the others send it there, resend it while it
stays unanswered or when the leader changes, and learn the result by applying it themselves. So
whoever got a result reads what it wrote, and a change that reached the log twice is made once
(`catalog.request`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from array import array
from collections.abc import Callable
from typing import Any, Final, Protocol, final

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.event import ClusterVersionRaised, Event, NodeAdded, NodeRemoved
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.proposal import (
    administrator_problem,
    command_problem,
    without_administrator,
)
from headrace_broker.catalog.request import (
    ENVELOPE_BYTES,
    Request,
    decode_envelope,
    encode_envelope,
)
from headrace_broker.catalog.result import Ok, Refused, Repeated, Result, UpgradePending
from headrace_broker.catalog.store import SNAPSHOT_VERSION
from headrace_broker.catalog.version import CATALOG_VERSION
from headrace_broker.catalog.voters import catalog_voters, split_members
from headrace_broker.model.build_info import VERSION
from headrace_broker.model.definition import Binding, Node
from headrace_broker.model.limits import CATALOG_COMMAND_BYTES_MAX, CATALOG_REQUESTS_MAX
from headrace_broker.runtime.cluster.boot_claim import BootClaim, Booted
from headrace_broker.runtime.cluster.default_user import DefaultUser
from headrace_broker.runtime.cluster.version_gate import VersionGate
from headrace_broker.runtime.contract.plain_table import plain_command
from headrace_broker.runtime.security import audit_command
from headrace_broker.runtime.session.reachability import CatalogReach
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import ReadTimeoutError
from headrace_raftlog.model.group import CATALOG_GROUP, QUEUED
from headrace_raftlog.model.limits import GROUP_MEMBERS_MAX
from headrace_raftlog.model.membership import Membership, member_node

DEFAULT_VHOST: Final = "/"
PLACING: Final = (NodeAdded, NodeRemoved, ClusterVersionRaised)  # after which others may vote

log = logging.getLogger("headrace.catalog")

Listener = Callable[[list[Event]], None]


class CatalogUnavailableError(Exception):
    """A change was not applied here in time; whether it will be is not known."""


class RaftHost(Booted, Protocol):
    """Required interface of the node's replicated logs (`headrace_raftlog.node`)."""

    def create_group(
        self,
        group: int,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        handler: Any,
        campaign: bool = False,
    ) -> None:
        """Start a group's replica on this node."""

    def propose(self, group: int, data: bytes) -> int:
        """Append an entry; return its index or QUEUED, or a negative number when not taken."""

    def members(self, group: int) -> Membership:
        """Return who belongs to a group, as far as this node knows."""

    def set_members(self, group: int, nodes: tuple[int, ...], voting: tuple[int, ...]) -> None:
        """Say on which nodes a group's members shall live, and which of these shall vote."""

    async def read_barrier(self, group: int, seconds: float) -> None:
        """Wait until all that was committed before is applied here.

        Raises ReadTimeoutError: nobody confirmed that in time.
        """

    def leader(self, group: int) -> int:
        """Return the leader's node id, 0 when none is known."""

    def serving(self, group: int) -> bool:
        """Return whether this node leads the group and has applied all earlier commits."""


class CatalogTiming(msgspec.Struct, frozen=True):
    """Durations and time limits."""

    answer_seconds: float = 10.0  # wait for a change to be applied here; several elections fit in
    resend_seconds: float = 0.5  # after so long a change without an answer is sent again


@final
class _Pending:
    """A change on its way."""

    def __init__(self, data: bytes, answer: asyncio.Future[Result]) -> None:
        self.data = data
        self.answer = answer
        self.proposed_term = 0  # term in which this node itself has appended it, 0 for none


@final
class CatalogService:
    """The node's catalog. Everything is called on the event loop's thread.

    It is the handler of group 0: `apply` and `leadership` are for the replicated log.
    """

    def __init__(
        self,
        raft: RaftHost,
        node: int,
        nodes: list[Node],
        send: Callable[[int, bytes], bool],
        timing: CatalogTiming | None = None,
        default_user: DefaultUser | None = None,
    ) -> None:
        """Prepare; `start` joins group 0.

        Args:
            raft: the node's replicated logs, not yet used here.
            node: this node's id.
            nodes: all nodes of the configuration, this one among them.
            send: carries a payload to `handle_forward` of another node; False when it could not.
            timing: how long things may take.
            default_user: the administrator of a new cluster; by default `guest`.
        """
        self._default_user = default_user if default_user is not None else DefaultUser()
        self.catalog = Catalog()  # the state to read; replaced never, changed by nobody else
        self.reach = CatalogReach(node)  # says whether the catalog's leader is reached
        self.serving = False  # whether this node leads the catalog and is ready to
        self.dropped_count = 0  # forwarded requests that were not taken (the sender tries again)
        self._one_by_one = asyncio.Lock()
        # tells why a binding must not be proposed, "" when it may
        self.binding_problem: Callable[[Binding], str] = lambda _: ""
        # called once this node leads the catalog
        self.on_serving: Callable[[], None] = lambda: None
        self._raft = raft
        self._node = node
        self._nodes = tuple(sorted(nodes, key=lambda each: each.id))
        self._send = send
        self._timing = timing if timing is not None else CatalogTiming()
        self._term = 0
        self._listeners: list[Listener] = []
        self._pending: dict[int, _Pending] = {}
        self._claim = BootClaim(raft, node, self.catalog.seen_boot, self._ask_as)
        self._next_number = self._claim.number + 1
        self._gate = VersionGate(self.catalog, node)
        self._slots = asyncio.Semaphore(CATALOG_REQUESTS_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._seeding: asyncio.Task[None] | None = None
        self._seeded = asyncio.Event()
        self._joined = False
        self._announced: commands.AnnounceNode | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._announce_again = False
        self._stopped = False

    @property
    def leader(self) -> int:
        """Node id of the catalog's leader as far as known, 0 for none."""
        return self.reach.leader

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each lot of changes, in order, before anybody gets their results.

        It first gets what the catalog holds already. A listener that raises stops the node.
        """
        contents = self.catalog.contents()
        if contents:
            listener(contents)
        self._listeners.append(listener)

    def start(self) -> None:
        """Join group 0: its state is restored, then the log's entries after that are applied.

        The group was founded by the configured nodes on their first disks, whose member ids are
        their node ids; a node on another disk is admitted by the others.
        """
        voters, learners = split_members([node.id for node in self._nodes])
        campaign = self._node == voters[0]
        self._raft.create_group(CATALOG_GROUP, voters, learners, self, campaign=campaign)
        self._joined = True
        self._place()

    def _place(self) -> None:
        """Place the catalog's log on all nodes, of which a few vote."""
        nodes = tuple(sorted(node.id for node in self.catalog.nodes()))
        if self._joined and not self._stopped and 0 < len(nodes) <= GROUP_MEMBERS_MAX:
            sitting = {member_node(each) for each in self._raft.members(CATALOG_GROUP).voters}
            voting = catalog_voters(self.catalog, sitting, self._node)
            self._raft.set_members(CATALOG_GROUP, nodes, voting)

    async def stop(self) -> None:
        """End all pending requests: their waiters get CatalogUnavailableError."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in list(self._pending.values()):
            if not pending.answer.done():
                pending.answer.set_exception(CatalogUnavailableError("the node is stopping"))
        await self._claim.stop()
        tasks = [task for task in (self._seeding, self._announcing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._seeding = self._announcing = None

    async def submit(self, command: commands.AnyCommand, seconds: float | None = None) -> Result:
        """Make a change and wait until it is applied on this node.

        Args:
            command: arguments may hold what AMQP libraries decode (timestamps, decimals, ...).
            seconds: how long to wait; by default `CatalogTiming.answer_seconds`, and less where
                no leader has been reached for `leaderless-ms`.

        Raises CatalogUnavailableError: no result in time; the change may still be made later.
        """
        user = self.catalog.user(without_administrator(command))
        lock = self._one_by_one if user is not None and user.tags else contextlib.nullcontext()
        try:
            async with lock:  # two administrators must not go because each sees the other
                result = await self._submit(command, seconds)
        except CatalogUnavailableError:
            audit_command.record_lost(command)
            raise
        audit_command.record(command, result)
        return result

    async def _submit(self, command: commands.AnyCommand, seconds: float | None) -> Result:
        problem = command_problem(command)
        if not problem and isinstance(command, commands.Bind):
            problem = self.binding_problem(command.binding)
        if not problem and administrator_problem(command, self.catalog.users()):
            await self.catch_up()  # another node may have another administrator by now
            problem = administrator_problem(command, self.catalog.users())
        if problem:
            return Refused(problem)
        limit = seconds if seconds is not None else self._timing.answer_seconds
        if problem := await self._gate.wait(command, limit):
            return UpgradePending(problem)
        try:
            encoded = commands.encode_command(self._gate.stamped(plain_command(command)))
        except commands.CommandError as error:
            return Refused(str(error))
        if len(encoded) > CATALOG_COMMAND_BYTES_MAX:
            return Refused(
                f"the command has {len(encoded)} bytes, more than {CATALOG_COMMAND_BYTES_MAX}"
            )
        try:
            async with self.reach.patience(limit, seconds is not None), self._slots:
                await self._claim.wait()
                result = await self._request(encoded)
                while isinstance(result, Repeated):
                    # First heard of here as a repetition: it was passed over, not applied.
                    result = await self._request(encoded)
                return result
        except TimeoutError:
            raise CatalogUnavailableError(self.reach.why_not_made(limit)) from None

    async def _request(self, command: bytes) -> Result:
        self._next_number += 1
        return await self._ask_as(self._next_number - 1, command)

    async def _ask_as(self, number: int, command: bytes) -> Result:
        """Send a change under a number of its own until it is answered."""
        if self._stopped:
            raise CatalogUnavailableError("the node is stopping")
        data = encode_envelope(Request(self._node, self._raft.boot, number), command)
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        pending = _Pending(data, answer)
        self._pending[number] = pending
        self._offer(pending)
        self._arm()
        try:
            return await answer
        finally:
            del self._pending[number]

    async def barrier(self, seconds: float | None = None) -> None:
        """Wait until everything that was decided before this call is applied here.

        Raises CatalogUnavailableError: as `submit`.
        """
        result = await self.submit(commands.Barrier(), seconds)
        assert isinstance(result, Ok)

    async def catch_up(self) -> None:
        """Wait until everything that was decided before this call is applied here.

        As `barrier`, but nothing is written: the leader is asked how far it is, once for all who
        ask at the same time.

        Raises CatalogUnavailableError: not in time, for there is no quorum.
        """
        limit = self._timing.answer_seconds
        try:
            async with self.reach.patience(limit, whole=False):
                await self._raft.read_barrier(CATALOG_GROUP, limit)
        except (ReadTimeoutError, TimeoutError) as error:
            raise CatalogUnavailableError(
                f"{self.reach.why_not(limit)}; whether this node knows of all that was declared is "
                "not known"
            ) from error

    async def wait_ready(self, seconds: float) -> None:
        """Wait until the catalog has its first contents and this node is up to date.

        Raises CatalogUnavailableError: not in time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._seeded.wait()
                await self.barrier(seconds)
        except TimeoutError:
            raise CatalogUnavailableError(self.reach.why_not_made(seconds)) from None

    def announce(self, what: commands.AnnounceNode) -> None:
        """Announce this node to the cluster.

        It is told again whenever another node is news: one that has just become able to read such
        an announcement passed over the earlier ones.
        """
        self._announced = what
        self._announce()

    def _announce(self) -> None:
        self._announce_again = True
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.get_running_loop().create_task(self._announce_soon())

    async def _announce_soon(self) -> None:
        while self._announce_again and not self._stopped:
            self._announce_again = False
            assert self._announced is not None, "there is something to tell"
            try:
                result = await self.submit(self._announced, self._timing.answer_seconds)
            except CatalogUnavailableError as error:
                log.warning("node announcement not committed yet: %s", error)
                self._announce_again = True
            else:
                if isinstance(result, Refused | UpgradePending):
                    log.error("node announcement rejected: %s", result.reason)

    def _offer(self, pending: _Pending) -> None:
        """Propose a change, or send it to the leader; the timer repeats failed attempts."""
        if self._raft.serving(CATALOG_GROUP):
            if pending.proposed_term == self._term != 0:
                return  # appended in this term and still leading: it is in the log and only slow
            if self._append(pending.data) >= QUEUED:
                pending.proposed_term = self._term
            return
        leader = self._raft.leader(CATALOG_GROUP)
        if leader not in (0, self._node):
            self._send(leader, pending.data)

    def _append(self, data: bytes) -> int:
        """Propose an entry, or take it for lost while a node would not know it."""
        if not self._gate.passes(data):
            return QUEUED - 1
        return self._raft.propose(CATALOG_GROUP, data)

    def _offer_all(self) -> None:
        for pending in list(self._pending.values()):
            if not pending.answer.done():
                self._offer(pending)

    def _arm(self) -> None:
        if self._timer is None and self._pending and not self._stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._timing.resend_seconds, self._resend)

    def _resend(self) -> None:
        self._timer = None
        self._offer_all()
        self._arm()

    def handle_forward(self, peer: int, payload: bytes) -> None:
        """Receive a request of another node's catalog service; malformed ones are dropped."""
        request = decode_envelope(payload)
        fits = len(payload) <= ENVELOPE_BYTES + CATALOG_COMMAND_BYTES_MAX
        if request is None or request.node != peer or not fits:
            self.dropped_count += 1
            log.warning("node %d sent a malformed catalog request", peer)
            return
        serving = self._raft.serving(CATALOG_GROUP)
        if not serving or self._append(payload) < QUEUED:
            self.dropped_count += 1

    # The handler of group 0

    def apply(self, entries: list[Entry]) -> None:
        """Apply committed entries: first the state, then the listeners, then the waiters."""
        events: list[Event] = []
        answers: list[tuple[int, Result]] = []
        for entry in entries:
            known = self.catalog.seen_boot(self._node)
            result, changes = self.catalog.apply(entry.index, entry.data)
            events += changes
            request = decode_envelope(entry.data)
            if request is not None and request.node == self._node and request.boot > known:
                self._claim.first_of_boot = request
            if request is not None and request[:2] == (self._node, self._raft.boot):
                answers.append((request.number, result))
        self._tell(events)
        for number, result in answers:
            pending = self._pending.get(number)
            if pending is not None and not pending.answer.done():
                pending.answer.set_result(result)

    def snapshot(self) -> tuple[bytes, array[int]]:
        """Return the catalog's state; no entry is needed once it is in there."""
        return self.catalog.snapshot(), array("Q")

    def quiesced(self) -> None:
        """Take no notice."""

    def held(self) -> array[int]:
        """Return nothing: readers of the catalog read its tables."""
        return array("Q")

    def digest(self) -> tuple[str, bytes]:
        """Return a digest of the catalog's state, and of which version that is."""
        version = f"{VERSION} catalog {CATALOG_VERSION} snapshot {SNAPSHOT_VERSION}"
        return version, bytes.fromhex(self.catalog.digest())

    def restore(self, state: bytes) -> None:
        """Take over a state that `snapshot` gave, here or on another node.

        A change that waits here and is part of that state has no answer in it: it is sent again,
        is found to be a repetition, and is asked for anew, which tells how things are.
        Raises SnapshotError: the bytes are not such a state; nothing changed.
        """
        self._tell(self.catalog.load(state))

    def _tell(self, events: list[Event]) -> None:
        if events:
            for listener in self._listeners:
                listener(events)
            if any(isinstance(event, PLACING) for event in events):
                self._place()
                self._gate.changed()
            if self._announced is not None and any(
                isinstance(event, NodeAdded) and event.node.id != self._node for event in events
            ):
                self._announce()
        if self.catalog.bootstrapped:
            self._seeded.set()

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        """Note the leader; pending requests go there once this loop turn is over."""
        self.reach.leader = leader
        self.reach.poll()
        self.serving = serving
        self._term = term
        if leader and not self._stopped:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._offer_all)
            if serving:
                self._place()
                loop.call_soon(self.on_serving)
            if serving and (self._seeding is None or self._seeding.done()):
                self._seeding = loop.create_task(self._seed())

    # First contents

    async def _seed(self) -> None:
        """Give a new cluster its first contents: from then on the catalog says who is in it."""
        while self.serving and not self._stopped and not self.catalog.bootstrapped:
            user = await asyncio.to_thread(self._default_user.user)
            command = commands.Bootstrap(self._nodes, DEFAULT_VHOST, user, grant=True)
            try:
                result = await self.submit(command, self._timing.answer_seconds)
            except CatalogUnavailableError as error:
                log.warning("catalog bootstrap not committed yet: %s", error)
                continue
            if isinstance(result, Refused):
                log.error("catalog bootstrap rejected: %s", result.reason)
                return
