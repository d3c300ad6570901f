"""Telemetry of a node that is active, is stopped, and is released."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.codecs.column_reader import decode_columns

from headrace_broker.catalog.event import PolicyChanged, QueueAdded, QueueChanged, QueueRemoved
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import Activity
from headrace_broker.flow.alarm import NodeReport
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.rate_history import Moves
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.flow import CONNECTION, DEAD_LETTERS, LIMIT_WATERMARK, Cause
from headrace_broker.model.limits import SAMPLE_TURN_ROWS, TELEMETRY_QUEUE_EVENTS_MAX
from headrace_broker.runtime.alarm.alarms import AlarmStatus
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.contract.queue_log import COMMAND_OVERHEAD_BYTES
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.replica.queue_meter import QueueMeter
from headrace_broker.runtime.telemetry import episodes as module
from headrace_broker.runtime.telemetry.edges import EdgeTaker
from headrace_broker.runtime.telemetry.episodes import Episodes
from headrace_broker.runtime.telemetry.queue_notes import QueueNotes
from headrace_broker.runtime.telemetry.sampler import SCANNED_ROWS, SampleTaker
from headrace_broker.runtime.telemetry.schema import (
    DEBT_EDGES,
    FLOW_EVENTS,
    FLOW_SAMPLES,
    QUEUE_EVENTS,
    SCHEMAS,
    DebtEdge,
    FlowEvent,
    QueueEvent,
    Sample,
)
from headrace_broker.runtime.telemetry.sources import Moment, Sources
from headrace_broker.runtime.telemetry.telemetry import Seen, encode

SECOND_US = 1_000_000
START_MS = 1_700_000_000_000
ROWS = 100


class World:
    """A node with two queues, of which tests change what they want to be seen."""

    def __init__(self, rows_max: int = ROWS) -> None:
        self.limits = FlowLimits()
        self.ledger = Ledger(self.limits)
        self.traffic = Traffic()
        self.infos: dict[str, ConnectionInfo] = {}
        self.alarms: list[AlarmStatus] = []
        self.hosts: dict[int, Any] = {}
        self.queues: dict[int, Queue] = {}
        self.now_us = 10 * SECOND_US
        self.at_ms = START_MS
        for group in (1, 2):
            self.queue(group)
        self.sources = Sources(
            node="n1",
            view=SimpleNamespace(queue_by_group=self.queues.get),  # type: ignore[arg-type]
            ledger=self.ledger,
            limits=self.limits,
            hosts=self.hosts,
            recent=SimpleNamespace(reader=lambda: self.hosts.keys),  # type: ignore[arg-type]
            traffic=self.traffic,
            connections=lambda: self.infos,
            gate=lambda group: None,
            alarms=lambda: self.alarms,
            report=lambda: NodeReport(1),
            clock_us=lambda: self.now_us,
        )
        self.edges = EdgeTaker(self.sources, rows_max)
        self.samples = SampleTaker(self.sources, rows_max)
        self.episodes = Episodes(self.sources, lambda: 4)

    def queue(self, group: int) -> None:
        queue = Queue("/", f"q{group}", QUEUE_QUORUM, group=group, members=(1, 2, 3))
        self.queues[group] = queue
        machine = SimpleNamespace(
            **dict.fromkeys(
                (
                    *("ready_count", "ready_bytes", "unsettled_count", "unsettled_bytes"),
                    *("consumer_count", "deferred_count"),
                ),
                0,
            ),
            saturated=False,
            settings=QueueMachine().settings,
            oldest_ms=lambda: 0,
            consumers=list,
        )
        self.hosts[group] = SimpleNamespace(
            queue=queue, machine=machine, moves=Moves(), serving=True, lead=None
        )

    def connect(self, number: int) -> ConnectionInfo:
        info = ConnectionInfo(f"n1/4/{number}", f"client {number}", "peer", START_MS)
        info.user, info.vhost, info.flow = "app", "/", Activity(0)
        info.account = self.ledger.open(Cause(info.id, CONNECTION, info.name, "n1"))
        info.account.cause.user = "app"
        self.infos[info.id] = info
        return info

    def disconnect(self, info: ConnectionInfo) -> None:
        assert info.account is not None
        del self.infos[info.id]
        self.ledger.close(info.account)

    def publish(self, info: ConnectionInfo, group: int, messages: int, exchange: str = "") -> None:
        """Messages of 100 bytes are handed over and done, and the queue has them."""
        assert info.account is not None
        balance = info.account.balance(group)
        balance.borrow(messages, 100 * messages)
        balance.came_through(exchange, messages)
        balance.repay(messages, 100 * messages)
        self.hosts[group].moves.arrived += messages

    def second(self) -> Moment:
        self.now_us += SECOND_US
        self.at_ms += 1000
        return Moment(self.at_ms, 1000, self.now_us)

    def poll(self) -> tuple[list[Sample], list[DebtEdge], list[FlowEvent]]:
        """Let a second pass; what a look finds, decoded from its blocks."""
        moment = self.second()
        edges = asyncio.run(self.edges.take(moment, SampleTurns(0)))
        events = self.episodes.take(moment)
        pieces = self.samples.take(moment, self.edges.brought, 0, self.edges.left_out)
        parts = [part for piece in pieces for part in piece]
        blocks = encode(moment, "n1", Seen(parts, {DEBT_EDGES: edges, FLOW_EVENTS: events}))
        found: dict[str, list[tuple[Any, ...]]] = {}
        for name, each in blocks.items():
            found[name] = [
                row
                for block in each
                for row in zip(*decode_columns(SCHEMAS[name], block), strict=True)
            ]
        return (
            [Sample(*row) for row in found[FLOW_SAMPLES]],
            [DebtEdge(*row) for row in found[DEBT_EDGES]],
            [FlowEvent(*row) for row in found[FLOW_EVENTS]],
        )


def of_kind(samples: list[Sample], kind: str) -> list[Sample]:
    return [sample for sample in samples if sample.kind == kind]


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (FLOW_SAMPLES, Sample),
        (DEBT_EDGES, DebtEdge),
        (FLOW_EVENTS, FlowEvent),
        (QUEUE_EVENTS, QueueEvent),
    ],
)
def test_schema_has_a_column_for_each_field(log: str, kind: Any) -> None:
    assert tuple(name for name, _ in SCHEMAS[log].columns) == kind._fields


def test_idle_node_tells_of_itself_each_second() -> None:
    world = World()
    for _ in range(2):
        samples, edges, events = world.poll()
        [node] = samples
        assert (node.kind, node.id, node.at, node.published) == ("node", "n1", world.at_ms, 0)
        assert (node.queues, node.connections, node.left_out) == (2, 0, 0)
        assert (edges, events) == ([], [])


def test_what_moves_is_told_with_what_it_moved_and_once_more_at_its_end() -> None:
    world = World()
    info = world.connect(1)
    world.publish(info, 1, 5)
    world.traffic.publish += 5
    samples, _, _ = world.poll()
    [node], [queue], [connection] = (
        of_kind(samples, kind) for kind in ("node", "queue", "connection")
    )
    assert node.published == 5
    assert (queue.id, queue.name, queue.vhost, queue.published) == ("1", "q1", "/", 5)
    assert (connection.id, connection.user, connection.published) == ("n1/4/1", "app", 5)
    assert (connection.published_octets, connection.blocked_ms) == (500, 0)
    samples, _, _ = world.poll()
    assert [(each.name, each.published) for each in of_kind(samples, "queue")] == [("q1", 0)]
    samples, _, _ = world.poll()
    assert of_kind(samples, "queue") == of_kind(samples, "connection") == []


def test_leader_tells_what_it_measured_since_the_last_look() -> None:
    world = World()
    host = world.hosts[1]
    meter = QueueMeter(Clock())
    host.lead = SimpleNamespace(meter=meter)
    host.log = SimpleNamespace(window_bytes=lambda: 1 << 20)
    host.machine.unsettled_count = host.machine.consumer_count = 2
    for _ in range(2):
        meter.proposed(b"command")
    meter.applied(b"command", 0)
    [told] = of_kind(world.poll()[0], "queue")
    byte_count = len(b"command") + COMMAND_OVERHEAD_BYTES
    assert (told.pending_commands, told.pending_command_octets) == (1, byte_count)
    assert told.pending_command_octets_max == 1 << 20
    assert told.commit_ms_p50 == told.commit_ms_p99 is not None
    assert told.consumer_busy_ms == 0
    [told] = of_kind(world.poll()[0], "queue")
    assert (told.pending_commands, told.commit_ms_p50, told.commit_ms_p99) == (1, None, None)
    meter.applied(b"command", 2)
    meter._busy_us = 5_000_000  # nobody had asked for a while
    [told] = of_kind(world.poll()[0], "queue")
    assert told.consumer_busy_ms == 2000
    world.hosts[1].lead = None
    [told] = of_kind(world.poll()[0], "queue")
    assert told.pending_commands is told.consumer_busy_ms is None


def test_edge_names_account_exchange_and_queue() -> None:
    world = World()
    info = world.connect(1)
    world.publish(info, 1, 3, "orders")
    world.publish(info, 1, 1, "audit")
    world.publish(info, 2, 2, "orders")
    assert info.account is not None
    info.account.balance(2).borrow(1, 700)
    _, edges, _ = world.poll()
    told = [(e.queue, e.exchange, e.copies, e.octets, e.charged_messages) for e in edges]
    assert told == [
        ("q1", "orders", 3, 300, 4),
        ("q1", "audit", 1, 100, None),
        ("q2", "orders", 2, 600, 3),
        ("q2", None, 1, 300, None),
    ]
    assert {(e.account, e.origin_account, e.user) for e in edges} == {("n1/4/1", "n1/4/1", "app")}
    assert [e.replica_octets for e in edges] == [600, 200, 1200, 600]
    assert (edges[2].repaid_messages, edges[2].owed_messages, edges[2].owed_octets) == (2, 1, 700)


def test_work_of_who_has_left_is_told() -> None:
    world = World()
    info = world.connect(1)
    world.publish(info, 1, 3)
    world.disconnect(info)
    _, edges, _ = world.poll()
    assert [(edge.account, edge.copies) for edge in edges] == [("n1/4/1", 3)]
    assert world.poll()[1] == []


def test_accounts_without_a_connection_are_told() -> None:
    world = World()
    account = world.ledger.open(Cause("n1/dead-letters", DEAD_LETTERS, "dead-letters", "n1"))
    account.balance(1).borrow(2, 20)
    [told] = of_kind(world.poll()[0], "account")
    assert (told.id, told.account_kind, told.debt_messages) == ("n1/dead-letters", DEAD_LETTERS, 2)


def test_blocked_connection_is_told_with_reason_queue_and_paired_end() -> None:
    world = World()
    info = world.connect(1)
    info.flow.stop(LIMIT_WATERMARK, 2, world.now_us + SECOND_US // 2)
    samples, _, events = world.poll()
    [told] = of_kind(samples, "connection")
    assert (told.blocked_by, told.blocked_vhost, told.blocked_queue) == ("watermark", "/", "q2")
    assert 400 <= (told.blocked_ms or 0) <= 600
    [blocked] = events
    assert (blocked.event, blocked.id, blocked.queue) == ("blocked", info.id, "q2")
    assert (blocked.started_at, blocked.account) == (world.at_ms - 500, info.id)
    assert world.poll()[2] == []
    info.flow.go(world.now_us + 1000)
    assert world.poll()[2] == []  # it counts as blocked for a second
    [unblocked] = world.poll()[2]
    assert (unblocked.event, unblocked.episode) == ("unblocked", blocked.episode)
    assert (unblocked.duration_ms, unblocked.started_at) == (3500, blocked.started_at)
    assert 1400 <= (unblocked.blocked_ms or 0) <= 1600


def test_episodes_are_told_apart_and_end_with_a_lost_connection() -> None:
    world = World()
    infos = [world.connect(number) for number in (1, 2)]
    for info in infos:
        info.flow.stop(LIMIT_WATERMARK, 1, world.now_us)
    begun = world.poll()[2]
    assert len({event.episode for event in begun}) == 2
    world.disconnect(infos[0])
    [ended] = world.poll()[2]
    assert (ended.event, ended.id, ended.episode) == ("unblocked", infos[0].id, begun[0].episode)


def test_saturated_queue_and_alarm_are_paired() -> None:
    world = World()
    world.hosts[1].machine.saturated = True
    world.alarms = [
        AlarmStatus("n1", "memory", "scarce", world.now_us - 3 * SECOND_US),
        AlarmStatus("n2", "disk", "full", world.now_us),  # n2 tells of that
    ]
    told = [(event.event, event.id, event.reason) for event in world.poll()[2]]
    assert told == [("saturated", "1", "watermark"), ("alarm_set", "n1/memory", "memory")]
    world.hosts[1].machine.saturated = False
    world.alarms = []
    ended = {event.event: event.duration_ms for event in world.poll()[2]}
    assert ended == {"saturation_cleared": 1000, "alarm_cleared": 5000}


def test_redeliveries_and_dead_letters_are_counted() -> None:
    world = World()
    world.traffic.redeliver += 3
    world.episodes.dead_lettered(world.queues[2], "expired", 2)
    world.episodes.dead_lettered(world.queues[2], "expired", 1)
    told = [(event.event, event.queue, event.reason, event.messages) for event in world.poll()[2]]
    assert told == [("redelivered", None, None, 3), ("dead_lettered", "q2", "expired", 3)]
    assert world.poll()[2] == []


def test_open_episodes_are_bounded_and_those_left_out_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "TELEMETRY_EPISODES_MAX", 1)
    world = World()
    for number in (1, 2, 3):
        world.connect(number).flow.stop(LIMIT_WATERMARK, 1, world.now_us)
    assert len(world.poll()[2]) == 1
    assert world.episodes.left_out == 2


def test_a_connection_that_closes_during_a_look_is_told_once() -> None:
    world = World()
    infos = [world.connect(number) for number in range(SCANNED_ROWS + 10)]
    for info in infos:
        assert info.account is not None
        info.account.balance(1).borrow(1, 100)
    moment = world.second()
    asyncio.run(world.edges.take(moment, SampleTurns(0)))
    told: list[str] = []
    for piece in world.samples.take(moment, world.edges.brought, 0, 0):
        if infos[0].id in world.infos:
            world.disconnect(infos[0])
        told += [
            row[0] for part in piece for row in part.rows if part.kind in (CONNECTION, "account")
        ]
    assert told.count(infos[0].id) == 1


def test_what_is_owed_is_as_of_when_moves_were_taken() -> None:
    world = World()
    infos = [world.connect(number) for number in range(2 * SAMPLE_TURN_ROWS)]
    balances = [info.account.balance(1) for info in infos if info.account is not None]
    for balance in balances:
        balance.borrow(5, 500)

    async def repaid_meanwhile() -> list[DebtEdge]:
        look = asyncio.create_task(world.edges.take(world.second(), SampleTurns(0)))
        while not look.done():
            await asyncio.sleep(0)
            balances[0].repay_all()
        return await look

    first = asyncio.run(repaid_meanwhile())[0]
    assert (first.charged_messages, first.repaid_messages, first.owed_messages) == (5, 0, 5)


def test_rows_are_bounded_and_those_left_out_counted() -> None:
    world = World(rows_max=10)
    for group in range(3, 40):
        world.queue(group)
    for number in range(20):
        world.publish(world.connect(number), number + 1, number + 1)
    samples, edges, _ = world.poll()
    assert len(samples) == len(edges) == 10
    node = samples[-1]
    assert (node.kind, node.left_out) == ("node", (20 + 20 - 9) + (20 - 10))
    assert {edge.copies for edge in edges} == set(range(11, 21)), "the largest ones stay"


def test_large_looks_come_in_several_blocks() -> None:
    world = World(rows_max=5000)
    for group in range(3, 2500):
        world.queue(group)
        world.hosts[group].moves.arrived += 1
    samples, _, _ = world.poll()
    assert len(of_kind(samples, "queue")) == 2497
    assert samples[-1].kind == "node"
    assert all(each.at == world.at_ms and each.node == "n1" for each in samples)


def test_queue_events_are_noted_by_who_records() -> None:
    records = [False]
    notes = QueueNotes("n1", lambda: records[0], lambda node: f"n{node}", lambda: START_MS)
    queue = Queue("/", "q", QUEUE_QUORUM, group=7, members=(1, 2))
    notes.on_events([QueueAdded(queue)])
    assert notes.take() == []
    records[0] = True
    moved = Queue("/", "q", QUEUE_QUORUM, group=7, members=(2, 3))
    notes.on_events(
        [
            QueueAdded(queue),
            QueueChanged(moved),
            PolicyChanged("/", "p", False, None),
            QueueRemoved(moved),
        ]
    )
    notes.led(queue)
    notes.purged(queue, 12)
    told = [(row.event, row.queue, row.member, row.leader, row.detail) for row in notes.take()]
    assert told == [
        ("declared", "q", None, None, "n1,n2"),
        ("member_added", "q", "n3", None, None),
        ("member_removed", "q", "n1", None, None),
        ("policy_changed", "", None, None, "policy 'p' deleted"),
        ("deleted", "q", None, None, None),
        ("leader_elected", "q", None, "n1", None),
        ("purged", "q", None, None, "12"),
    ]


def test_queue_events_are_bounded() -> None:
    notes = QueueNotes("n1", lambda: True, str, lambda: START_MS)
    queue = Queue("/", "q", QUEUE_QUORUM, group=7, members=(1,))
    for _ in range(TELEMETRY_QUEUE_EVENTS_MAX + 3):
        notes.led(queue)
    assert len(notes.take()) == TELEMETRY_QUEUE_EVENTS_MAX
    assert notes.left_out == 3


class Untouchable:
    """A replica that nobody may look at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a queue in which nothing has changed")


def test_queue_in_which_nothing_changed_is_not_looked_at() -> None:
    world = World()
    recent = RecentlyApplied(world.hosts)
    world.sources = world.sources._replace(recent=recent)
    samples, episodes = SampleTaker(world.sources, 100), Episodes(world.sources, lambda: 4)

    def names(moment: Moment) -> list[str]:
        parts = [part for parts in samples.take(moment, {}, 0, 0) for part in parts]
        return [row[1] for part in parts if part.kind == "queue" for row in part.rows]

    world.hosts[1].machine.saturated = True
    recent.note(1, 0)
    untouchable: Any = Untouchable()
    untouchable.serving = False  # which a count of the queues of the node reads
    world.hosts[2] = untouchable
    for _ in range(3):
        moment = world.second()
        assert names(moment) == ["q1"]
        episodes.take(moment)
        assert len(episodes._open) == 1
    world.hosts[1].machine.saturated = False
    recent.note(1, 0)
    moment = world.second()
    assert names(moment) == ["q1"], "its last figures"
    episodes.take(moment)
    assert not episodes._open
    assert names(world.second()) == []


def test_queue_that_changed_before_a_sample_that_failed_is_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    recent = RecentlyApplied(world.hosts)
    world.sources = world.sources._replace(recent=recent)
    samples, episodes = SampleTaker(world.sources, 100), Episodes(world.sources, lambda: 4)
    world.hosts[1].machine.saturated = True
    recent.note(1, 0)
    moment = world.second()
    with monkeypatch.context() as patch:
        patch.setattr(world.hosts[1], "moves", None)
        patch.setattr(world.hosts[1], "queue", None)
        with pytest.raises(AttributeError):
            list(samples.take(moment, {}, 0, 0))
        with pytest.raises(AttributeError):
            episodes.take(moment)
    found = [part for parts in samples.take(world.second(), {}, 0, 0) for part in parts]
    assert [row[1] for part in found if part.kind == "queue" for row in part.rows] == ["q1"]
    episodes.take(moment)
    assert len(episodes._open) == 1
