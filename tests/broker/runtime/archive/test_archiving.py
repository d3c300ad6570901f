"""Archives of queues, asked for on the nodes that lead them and on others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.codecs.column_reader import decode_columns
from tests.broker.runtime.rpc_links import Links

from headrace_broker.catalog.access import Caller
from headrace_broker.core.queue.command.command import encode_purge
from headrace_broker.core.queue.command.leader_command import encode_configure
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.settings import (
    ARCHIVE_FULL,
    ARCHIVE_HEADERS,
    QueueSettings,
)
from headrace_broker.core.queue.state.archive_effect import ARCHIVE_OK
from headrace_broker.model.definition import Permission
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.model.session import session_id
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.archive.chunk import cut_rows
from headrace_broker.runtime.archive.columns import SCHEMA
from headrace_broker.runtime.archive.listing import ArchiveListing
from headrace_broker.runtime.archive.log import ArchiveLog
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.export.log import (
    DataGoneError,
    FencedError,
    NotYetError,
    OtherIncarnationError,
    ShardUnavailableError,
    TooManyGroupsError,
    UnknownGroupError,
    UnknownShardError,
)
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc import leader
from headrace_broker.runtime.rpc.leader import Leaders

EVERYWHERE = pytest.mark.parametrize("node", [1, 2, 3], ids=["leader", "replica", "elsewhere"])
NAMES = {1: "n1", 2: "n2", 3: "n3"}
GUEST = Caller("guest", ())


class View:
    """A catalog with one queue, in which `guest` has the wanted read permission."""

    guarded = True

    def __init__(self, queue):
        self.queue = queue
        self.read = ".*"

    def queue_by_group(self, group):
        return self.queue if group == 7 and self.queue is not None else None

    def permission(self, user, vhost):
        return Permission(user, vhost, ".*", ".*", self.read)

    def permissions(self, vhost=None):
        return [self.permission("guest", "/")]


def catalog_with(queue: Any) -> Any:
    return View(queue)


class Nodes:
    """Archives on each of a world's nodes."""

    def __init__(self, world, version=MACHINE_VERSION, mode=ARCHIVE_FULL, **bounds):
        self.world = world
        self.view = catalog_with(world.queue)
        self.requests = 0
        self.links = Links(NAMES, held=True)
        self.commands, self.clients, self.logs = {}, {}, {}
        for node, rpc in self.links.rpcs.items():
            hosts = {7: world.hosts[node]} if node in world.hosts else {}
            leaders = Leaders(rpc, hosts, lambda queue: world.leader, self._exists)
            self.commands[node] = GroupCommands(leaders, self._numberer(node))
            client = self.clients[node] = ArchiveClient(leaders, self.commands[node])
            address = f"{NAMES[node]}:7672"
            listing = ArchiveListing(node, NAMES, hosts, rpc, client, leaders.locate, address)
            self.logs[node] = ArchiveLog(self.view, self.clients[node], listing)
        world.watcher.version = version
        world.watcher.group_answered = lambda queue, answer: self.commands[world.leader].answered(
            answer
        )
        settings = QueueSettings()
        settings.archive = mode
        for name, value in bounds.items():
            setattr(settings, name, value)
        world.hosts[1].configure()
        world.hosts[1].propose(encode_configure(version, settings))
        world.settle_down()

    def _exists(self, queue):
        return self.view.queue is not None

    def _numberer(self, node):
        def number():
            self.requests += 1
            return session_id(node, 1, self.requests)

        return number

    def carry(self):
        self.links.carry()
        self.world.settle_down()

    def run(self, work):
        """Run a coroutine, carrying whenever it waits."""

        async def drive():
            task = asyncio.ensure_future(work)
            while not task.done():
                await asyncio.sleep(0)
                self.carry()
            return await task

        return asyncio.run(drive())

    def read(self, node, start, end, incarnation=None):
        """Return rows as dicts by the names of columns."""

        async def work():
            found = []
            shard = self.incarnation if incarnation is None else incarnation
            async for block in self.logs[node].read("7", shard, start, end):
                columns = decode_columns(block.schema, block.columns)
                names = [name for name, _ in block.schema.columns]
                found += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
            return found

        return self.run(work())

    @property
    def incarnation(self):
        return int(self.world.hosts[1].machine.archive().since_ms)


def fill(world, listener, publishes):
    """Publish six messages in two entries, and purge them."""
    session = world.open(1, listener)
    for bodies in ((b"a", b"bb", b"ccc"), (b"d", b"", b"f")):
        session.publish(publishes(*bodies), PendingConfirm(1, 3))
        session.flush()
        world.settle_down()
    world.hosts[1].propose(encode_purge(session_id(2, 1, 77), 1))
    world.settle_down()


@pytest.fixture
def nodes(world, listener, publishes):
    nodes = Nodes(world)
    fill(world, listener, publishes)
    return nodes


@pytest.fixture
def at_once(monkeypatch):
    """Ask again without a pause."""
    monkeypatch.setattr(leader, "ATTEMPT_SECONDS", 0.01)
    monkeypatch.setattr(leader, "PAUSE_SECONDS", 0.0)


@EVERYWHERE
def test_rows_are_read_wherever_the_queue_is_led(nodes, node):
    rows = nodes.read(node, 0, 6)
    assert [row["payload"] for row in rows] == [b"a", b"bb", b"ccc", b"d", b"", b"f"]
    assert [row["archive_index"] for row in rows] == list(range(6))
    assert {row["outcome"] for row in rows} == {"purged"}
    assert [row["payload_bytes"] for row in nodes.read(node, 2, 4)] == [3, 1]
    assert nodes.read(node, 6, 6) == []
    assert list(rows[0]) == [name for name, _ in SCHEMA.columns]


def test_headers_are_told_without_bodies(world, listener, publishes):
    nodes = Nodes(world, mode=ARCHIVE_HEADERS)
    fill(world, listener, publishes)
    rows = nodes.read(1, 0, 6)
    assert [(row["payload"], row["payload_bytes"]) for row in rows[:3]] == [
        (None, 1),
        (None, 2),
        (None, 3),
    ]
    assert rows[0]["properties"] is not None


def test_little_of_large_entries_is_read_in_several_steps(world, listener, publishes):
    nodes = Nodes(world, mode=ARCHIVE_HEADERS)
    session = world.open(1, listener)
    for dead_letter in (b"a", b"b", b"c", b"d"):
        session.publish(publishes(dead_letter * (3 << 20)), PendingConfirm(1, 1))
        session.flush()
        world.settle_down()
    world.hosts[1].propose(encode_purge(session_id(2, 1, 77), 1))
    world.settle_down()
    assert cut_rows(world.hosts[1], Entries(world.hosts[1].log), 0, 1024, 1 << 20).row_count == 3
    assert [row["archive_index"] for row in nodes.read(3, 0, 4)] == [0, 1, 2, 3]


@EVERYWHERE
def test_shards_are_those_that_the_caller_may_read(nodes, node):
    found = nodes.run(nodes.logs[node].shards(GUEST))
    assert [(shard.name, shard.first_index, shard.next_index) for shard in found.shards] == [
        ("7", 0, 6)
    ]
    [shard] = found.shards
    assert (shard.node, shard.byte_count, shard.incarnation) == ("n1", 8, nodes.incarnation)
    assert shard.address == "n1:7672"
    assert found.missing == ()
    assert nodes.run(nodes.logs[node].shards(GUEST, "/", "another")).shards == []
    nodes.view.read = "^$"
    assert nodes.run(nodes.logs[node].shards(GUEST)).shards == []
    with pytest.raises(AmqpError, match="read access to queue"):
        nodes.logs[node].check(GUEST, "7")


@EVERYWHERE
def test_groups_commit_wherever_the_queue_is_led(nodes, node):
    log = nodes.logs[node]
    group = nodes.run(log.open_group("7", "lake", b"a"))
    assert (group.name, group.epoch, group.committed) == ("lake", 1, 0)
    group = nodes.run(log.commit("7", "lake", 1, nodes.incarnation, 4))
    assert (group.committed, group.shard.first_index, group.shard.next_index) == (4, 4, 6)
    with pytest.raises(DataGoneError) as gone:
        nodes.read(node, 3, 6)
    assert gone.value.first_index == 4
    listed = nodes.run(log.groups(GUEST)).groups
    assert [(each.shard.name, each.name, each.committed) for each in listed] == [("7", "lake", 4)]
    assert nodes.run(log.groups(GUEST, "7", "none")).groups == []
    nodes.run(log.close_group("7", "lake", 0))
    assert nodes.run(log.groups(GUEST, "7")).groups == []


def test_what_is_refused_is_said_so(nodes, monkeypatch):
    log, since = nodes.logs[3], nodes.incarnation
    with pytest.raises(NotYetError) as early:
        nodes.read(3, 2, 7)
    assert early.value.next_index == 6
    with pytest.raises(OtherIncarnationError) as other:
        nodes.read(3, 0, 6, incarnation=5)
    assert other.value.incarnation == since
    with pytest.raises(UnknownGroupError):
        nodes.run(log.commit("7", "lake", 1, since, 4))
    nodes.run(log.open_group("7", "lake", b"a"))
    nodes.run(log.open_group("7", "lake", b"b"))
    with pytest.raises(FencedError) as fenced:
        nodes.run(log.commit("7", "lake", 1, since, 4))
    assert fenced.value.epoch == 2
    with pytest.raises(NotYetError):
        nodes.run(log.commit("7", "lake", 2, since, 7))
    with pytest.raises(OtherIncarnationError):
        nodes.run(log.commit("7", "lake", 2, 5, 6))
    for number in range(63):
        nodes.run(nodes.logs[1].open_group("7", f"g{number}", b"a"))
    with pytest.raises(TooManyGroupsError):
        nodes.run(log.open_group("7", "one more", b"a"))
    for name in ("8", "x", "-7"):
        with pytest.raises(UnknownShardError):
            log.check(GUEST, name)


def test_a_queue_that_is_gone_has_no_leader_or_no_archive_is_said_so(world, at_once, monkeypatch):
    nodes = Nodes(world, mode=0)
    with pytest.raises(UnknownShardError, match="never had"):
        nodes.run(nodes.logs[1].open_group("7", "lake", b"a"))
    assert nodes.run(nodes.logs[1].shards(GUEST)).shards == []
    world.leader = 0
    with monkeypatch.context() as patched:
        patched.setattr(leader, "ANSWER_SECONDS_MAX", 0.05)
        with pytest.raises(ShardUnavailableError, match="no leader"):
            nodes.run(nodes.logs[3].open_group("7", "lake", b"a"))
    nodes.view.queue = None
    with pytest.raises(UnknownShardError):
        nodes.run(nodes.logs[3].open_group("7", "lake", b"a"))


def test_before_all_replicas_know_archives_groups_wait(world, at_once):
    nodes = Nodes(world, version=3)
    with pytest.raises(ShardUnavailableError, match="not all of its replicas"):
        nodes.run(nodes.logs[2].open_group("7", "lake", b"a"))


def test_an_answer_that_is_lost_is_asked_for_again_and_fences_nobody(nodes, at_once):
    nodes.links.lost = ["answer", "archive_command"]
    first = nodes.run(nodes.clients[3].open_group(nodes.world.queue, b"lake", b"a"))
    assert nodes.links.lost == []
    again = nodes.run(nodes.clients[2].open_group(nodes.world.queue, b"lake", b"a"))
    assert first.status == again.status == ARCHIVE_OK
    assert first.group.epoch == again.group.epoch == 1


def test_a_guessed_shard_tells_no_name_to_who_may_do_nothing_there(nodes):
    nodes.view.permission = lambda user, vhost: None
    stranger = Caller("stranger", ("management",))
    texts = []
    for shard in ("7", "8"):
        with pytest.raises(UnknownShardError) as refusal:
            nodes.logs[1].check(stranger, shard)
        texts.append(str(refusal.value).replace(shard, "N"))
    assert texts[0] == texts[1]
    monitor = Caller("monitor", ("monitoring",))
    with pytest.raises(AmqpError, match="refused for user 'monitor'"):
        nodes.logs[1].check(monitor, "7")
