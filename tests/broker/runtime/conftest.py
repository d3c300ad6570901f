"""Nodes that share one queue's log, with links that can be cut; no clock, no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import msgspec
import pytest
from e2e.harness.ports import free_ports

from headrace_broker.codecs.batch import message_body
from headrace_broker.codecs.large_payload import MARK_BYTES, body_start
from headrace_broker.config.configuration import Config, load_config
from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.state.lease_effect import LeaseGone
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.contract.host_watcher import Configuration, HostWatcher
from headrace_broker.runtime.contract.lane_port import Copying, Gathering, SessionOwner
from headrace_broker.runtime.contract.port import PendingConfirm, QueueClient, QueueListener
from headrace_broker.runtime.contract.queue_log import BUSY, NOT_LEADING, TAKEN, QueueLog
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.intake.queue_gates import QueueGates
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.session.frame import FRAMES
from headrace_broker.runtime.session.session import QueueSession
from headrace_broker.runtime.session.wire import SessionRouter, part_payload
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.pieces import Assembly, Parted, Pieces

FRAME_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Union[FRAMES])  # noqa: UP007
PART_HEAD_BYTES = 64  # of a payload that the transport asks about


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The configuration of a node that is a cluster of its own, on fresh data."""
    [port] = free_ports(1)
    path = tmp_path / "node.toml"
    path.write_text(
        f"""
        [node]
        id = 1
        name = "n1"
        data_dir = "{tmp_path / "data"}"
        [cluster]
        nodes = [{{ id = 1, name = "n1", address = "127.0.0.1:{port}" }}]
        [raft]
        tick_ms = 20
        [limits]
        message_bytes_max = 1024
        [log]
        segment_bytes = 2097152
        """
    )
    return load_config(path, {})


class SharedLog(QueueLog):
    """The view that one node has of a log all nodes agree on."""

    def __init__(self, world: World, node: int) -> None:
        self._world = world
        self._node = node

    def propose(self, data: bytes, urgent: bool) -> int:
        if self._world.busy:
            return BUSY
        if self._world.leader != self._node:
            return NOT_LEADING
        self._world.urgent.append(urgent)
        self._world.log.append(Entry(len(self._world.log) + 1, 1, ENTRY_NORMAL, data))
        return TAKEN

    def entry_at_hand(self, index: int, done: Callable[[], None]) -> bytes | None:
        if index in self._world.gone:
            raise KeyError(index)
        if self._world.disk_is_slow:
            waiting = self._world.reading.setdefault(int(index), [])
            if done not in waiting:
                waiting.append(done)
            return None
        return self._world.log[index - 1].data

    def entry_bytes(self, index: int) -> int:
        return len(self._world.log[index - 1].data)

    def give_up(self, done: Callable[[], None]) -> None:
        for waiting in self._world.reading.values():
            if done in waiting:
                waiting.remove(done)

    def forget(self, index: int) -> None:
        if not self.holds(index):
            self._world.forgotten.append(index)

    def leader(self) -> int:
        return self._world.leader


class Watcher(HostWatcher):
    """Notes what replicas tell their node."""

    def __init__(self) -> None:
        self.unused = 0
        self.rejected: list[str] = []
        self.version = 1
        self.settings = QueueSettings()
        self.arguments: dict[str, Any] = {}
        self.due: list[int] = []
        self.lots: list[list[DeadLetter]] = []  # those handed over together
        self.all_dead_letters: list[DeadLetter] = []
        self.letters_lost = 0
        self.congested = False
        self.kept = 0
        self.kept_causes: dict[int, int] = {}
        self.forgotten: list[int] = []
        self.leaders: list[int] = []
        self.lease_answers: list[GroupAnswer] = []
        self.leases_gone: list[LeaseGone] = []

    def recent(self) -> RecentlyApplied:
        return RecentlyApplied(())

    def queue_leader_changed(self, queue: Queue, leader: int) -> None:
        """Leaders change only through `World.lead`, which relocates sessions itself."""
        self.leaders.append(leader)

    def queue_unused(self, queue: Queue) -> None:
        self.unused += 1

    def command_rejected(self, queue: Queue, reason: str) -> None:
        self.rejected.append(reason)

    def configuration(self, queue: Queue) -> Configuration:
        return Configuration(self.version, self.settings, self.arguments)

    def queue_due(self, queue: Queue, due_ms: int) -> None:
        self.due.append(due_ms)

    def dead_lettered(
        self, queue: Queue, arguments: dict[str, Any], letters: list[DeadLetter]
    ) -> None:
        self.all_dead_letters += letters
        self.lots.append(letters)

    def dead_letters_lost(self, queue: Queue, count: int) -> None:
        self.letters_lost += count

    def dead_letters_congested(self, queue: Queue) -> bool:
        return self.congested

    def dead_letters_kept(self, queue: Queue, ids: list[int], causes: list[int]) -> None:
        self.kept += 1
        self.kept_causes.update(zip(ids, causes, strict=True))

    def dead_letters_forgotten(self, queue: Queue, ids: list[int]) -> None:
        self.forgotten += ids

    def group_answered(self, queue: Queue, answer: GroupAnswer) -> None:
        self.lease_answers.append(answer)

    def lease_gone(self, queue: Queue, gone: LeaseGone) -> None:
        self.leases_gone.append(gone)


class StoppedClock(Clock):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def unix_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def boottime_us(self) -> int:
        return self.ms * 1000


class Listener(QueueListener):
    """A channel that only takes notes."""

    def __init__(self) -> None:
        self.confirmed: list[PendingConfirm] = []
        self.rejected: list[PendingConfirm] = []
        self.bodies: list[bytes] = []
        self.deliveries: list[tuple[int, int, bytes, bool]] = []
        self.cancelled: list[tuple[int, str]] = []
        self.timed_out: list[int] = []
        self.writable = 0

    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        self.confirmed.extend(pending_confirms)

    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        self.rejected.extend(pending_confirms)

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None:
        for offset, position in enumerate(run.positions):
            body = message_body(run.blob, run.base, position)
            again = bool(run.redelivered[offset])
            self.bodies.append(body)
            self.deliveries.append((run.consumer, run.first + offset, body, again))

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None:
        self.cancelled.append((consumer, reason))

    def on_timed_out(self, client: QueueClient, consumer: int) -> None:
        self.timed_out.append(consumer)

    def on_writable(self, client: QueueClient) -> None:
        self.writable += 1


class Owner(SessionOwner):
    """Says where the leader is; one that hosts no replica can only name a member to ask."""

    def __init__(self, world: World, closed: list[int], hosting: bool) -> None:
        self._world = world
        self._hosting = hosting
        self._asked = 0
        self.closed = closed
        self.gathering: list[Gathering] = []
        self.copying: list[Copying] = []
        self.now_ms = 1_000

    def locate(self, queue: Queue) -> int:
        if self._hosting:
            return self._world.leader
        self._asked += 1
        return queue.members[self._asked % len(queue.members)]

    def machine_version(self, queue: Queue) -> int:
        return self._world.watcher.version

    def session_closed(self, session: int) -> None:
        self.closed.append(session)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def send_later(self, gathering: Gathering) -> None:
        self.gathering.append(gathering)

    def copy_in_turns(self, copying: Copying) -> None:
        self.copying.append(copying)

    def close_in_turn(self, closing: Gathering) -> None:
        closing.send_close()

    def turn(self) -> None:
        """Pass the time in which settles may gather, and large commands take to be copied."""
        while self.gathering:
            self.gathering.pop().time_is_up()
        self.copying = [each for each in self.copying if each.copy_some()]


def kind_of(payload: bytes) -> str:
    """Return the tag of a payload."""
    start = body_start(payload)
    head = payload[MARK_BYTES:start] if start else payload
    return str(FRAME_DECODER.decode(head).__struct_config__.tag)


def arrive(board: SessionRouter, payload: bytes) -> None:
    """Hand over a payload as the transport does large ones."""
    cut, room = 0, 0
    if len(payload) >= LARGE_BYTES:
        cut, room = part_payload(payload[:PART_HEAD_BYTES], len(payload))
    if cut:
        tail = Assembly(len(payload) - cut, room)
        tail.add(payload, cut)
        board.receive_parted(Parted(payload[:cut], tail))
    elif not board.receive_large(payload):
        board.receive(FRAME_DECODER.decode(payload))


class World:
    """Nodes 1 and 2, both replicas of one queue, and node 3, a gateway; node 1 leads at first.

    Attributes:
        leader: node id that takes proposals.
        busy: whether proposals are refused for want of room.
        cut: whether payloads between the nodes are lost.
        full: node ids to which payloads are refused, as by a full outbox.
        urgent: of each entry, whether it may pass others.
        clock: gives the time stamps of commands, where nodes have none of their own.
        log: all entries; `settle_down` applies what is new on both nodes.
        disk_is_slow: entries have to be read first; `read_all` ends that.
        reading: whom to call back for each of them.
        gone: entries that the log has no more.
    """

    def __init__(self, clocks: Mapping[int, Clock] | None = None) -> None:
        self.leader = 1
        self.busy = False
        self.cut = False
        self.full: set[int] = set()
        self.log: list[Entry] = []
        self.disk_is_slow = False
        self.reading: dict[int, list[Callable[[], None]]] = {}
        self.gone: set[int] = set()
        self.forgotten: list[int] = []
        self.urgent: list[bool] = []
        self.queue = Queue("/", "work", "quorum", 7, (1, 2))
        self.watcher = Watcher()
        self.clock = StoppedClock()
        self.owner = Owner(self, [], True)
        self.stranger = Owner(self, self.owner.closed, False)
        self.traffic = Traffic()
        self.ledger = Ledger(FlowLimits())
        self.gates = QueueGates(self.ledger.limits, Intake(self.ledger.limits))
        self.sent: list[tuple[int, str]] = []
        self._wire: list[tuple[int, bytes]] = []
        self._applied = 0
        self._numbers: Iterator[int] = iter(range(1, 1000))
        self.boards = {node: SessionRouter(node, self._send) for node in (1, 2, 3)}
        self.hosts: dict[int, QueueHost] = {}
        for node in self.queue.members:
            board = self.boards[node]
            log = SharedLog(self, node)
            clock = (clocks or {}).get(node, self.clock)
            host = QueueHost(self.queue, node, log, board, self.watcher, clock)
            self.hosts[node] = host
            board.hosts[self.queue.group] = host
        self.hosts[1].leadership(1, 1, True)

    def _send(self, node: int, payload: bytes | Pieces) -> bool:
        data = payload.joined() if isinstance(payload, Pieces) else payload
        self.sent.append((node, kind_of(data)))
        if self.cut or node in self.full:
            return False
        self._wire.append((node, data))
        return True

    def open(self, node: int, listener: QueueListener) -> QueueSession:
        """Start a session whose gateway is `node`."""
        number = session_id(node, 1, next(self._numbers))
        board = self.boards[node]
        owner = self.owner if node in self.hosts else self.stranger
        account = self.ledger.open(Cause(f"n/{number}", CONNECTION, "", f"n{node}"))
        pending = self.gates.enter(self.queue.group)
        session = QueueSession(
            number, self.queue, listener, board, owner, self.traffic, account, pending
        )
        board.sessions[number] = session.end
        return session

    def carry(self) -> None:
        """Carry the payloads that were sent, and apply nothing."""
        wire, self._wire = self._wire, []
        for node, payload in wire:
            arrive(self.boards[node], payload)

    def settle_down(self) -> None:
        """Carry payloads and apply entries until nothing moves."""
        owners = (self.owner, self.stranger)
        while (
            self._wire
            or self._applied < len(self.log)
            or any(o.gathering or o.copying for o in owners)
        ):
            for owner in owners:
                owner.turn()
            self.carry()
            self.apply_new()

    def read_all(self) -> None:
        """Let everything that waits for the slow disk be read; it is fast from now on."""
        self.disk_is_slow = False
        reading, self.reading = self.reading, {}
        for waiting in reading.values():
            for done in waiting:
                done()

    def apply_new(self) -> None:
        """Apply the entries that are new on both nodes, and carry nothing."""
        new = self.log[self._applied :]
        self._applied = len(self.log)
        for host in self.hosts.values():
            host.apply(new)

    def lead(self, node: int, known: bool = True) -> None:
        """Make `node` the leader, `known` to the others; the test has to relocate sessions."""
        self.leader = node
        for other, host in self.hosts.items():
            host.leadership(node if known or other == node else 0, 2, other == node)

    def break_links(self) -> None:
        """Lose payloads between nodes, those in flight and later ones."""
        self.cut = True
        self._wire.clear()

    def lose_uncommitted(self) -> None:
        """Drop unapplied proposals, as a deposed leader does."""
        del self.log[self._applied :]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine, settling down whenever it waits."""

        async def drive() -> Any:
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.sleep(0)
                self.settle_down()
            return await task

        return asyncio.run(drive())


@pytest.fixture
def world() -> World:
    """A fresh pair of nodes."""
    return World()


@pytest.fixture(scope="session")
def make_world() -> type[World]:
    """Makes fresh sets of nodes."""
    return World


@pytest.fixture
def listener() -> Listener:
    """A channel that only takes notes."""
    return Listener()


@pytest.fixture(scope="session")
def publishes() -> Callable[..., list[Publish]]:
    """Make publishes to the queue with the given bodies."""

    def make(*bodies: bytes) -> list[Publish]:
        return [Publish(1, b"\x00\x04work", False, False, b"\x00\x00", body) for body in bodies]

    return make


@pytest.fixture(scope="session")
def make_listener() -> type[Listener]:
    """Makes channels that only take notes."""
    return Listener
