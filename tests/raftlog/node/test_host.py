"""The pump without a network: one voter, or messages caught on their way out."""

from __future__ import annotations

import errno
import threading
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import BUSY, LEADER, NOT_LEADER, CoreOptions
from headrace_raftlog.model.limits import WRITE_BACKLOG_BYTES_MAX
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    VOTE,
    VOTE_REPLY,
    Message,
)
from headrace_raftlog.model.snapshot import SnapshotOffer
from headrace_raftlog.node.host import Host, HostPort
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.memory_files import MemoryFiles
from headrace_raftlog.storage.options import LogOptions
from headrace_raftlog.storage.shared_log import SharedLog

DEADLINE_S = 30.0


class World:
    """Stands for loop and network; `settle` runs turns until nothing is left to do."""

    def __init__(self, directory: Path, options: CoreOptions, files: Files | None = None) -> None:
        self.turns: list[Callable[[], None]] = []
        self.posted: list[Message] = []
        self.events: list[str] = []
        self.failures: list[BaseException] = []
        self.accepts = True
        self.writes = 0
        self.log = SharedLog.open(str(directory), LogOptions(segment_bytes=1 << 20), files=files)
        self._durable: list[object] = []
        self._arrived = threading.Condition()
        self.log.on_durable = self._from_writer
        self.offers: list[tuple[HostedGroup, SnapshotOffer]] = []
        self.up: list[int] = []
        port = HostPort(
            self._post,
            self._flush,
            self.turns.append,
            self.failures.append,
            self._leader,
            lambda hosted, offer: self.offers.append((hosted, offer)),
            lambda: self.up,
            lambda: 77,
        )
        self.host = Host(1, 1, options, self.log, port)

    def settle(self, tokens: int = 0) -> None:
        """Run all turns, then wait for so many finished writes and run on."""
        self.run_turns()
        while tokens > 0:
            with self._arrived:
                assert self._arrived.wait_for(lambda: self._durable, DEADLINE_S)
                done, self._durable = self._durable, []
            tokens -= len(done)
            self.writes += len(done)
            self.host.durable(done)
            self.run_turns()

    def run_turns(self) -> None:
        while self.turns:
            self.turns.pop(0)()

    def _post(self, message: Message) -> bool:
        self.posted.append(message)
        return self.accepts

    def _flush(self) -> None:
        self.events.append("flush")

    def _leader(self, group: int, leader: int) -> None:
        self.events.append(f"leader of {group} is {leader}")

    def _from_writer(self, tokens: list[object]) -> None:
        with self._arrived:
            self._durable += tokens
            self._arrived.notify()


class Machine:
    def __init__(self, events: list[str], name: str) -> None:
        self.events = events
        self.name = name
        self.react: Callable[[], object] | None = None

    def apply(self, entries: list[Entry]) -> None:
        self.events += [f"{self.name} applies {entry.data.decode()}" for entry in entries]
        if self.react is not None:
            self.react()

    def snapshot(self) -> tuple[bytes, array[int]]:
        self.events.append(f"{self.name} snapshot")
        return self.name.encode(), array("Q")

    def restore(self, state: bytes) -> None:
        self.events.append(f"{self.name} restores {state.decode()}")

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        self.events.append(f"{self.name} led by {leader}, serving {serving}")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, CoreOptions())
    yield made
    made.log.close()


def alone(world: World, group: int) -> Machine:
    machine = Machine(world.events, f"g{group}")
    world.host.create_group(group, (1,), (), machine, True)
    return machine


def serve(world: World, *groups: int) -> list[Machine]:
    machines = [alone(world, group) for group in groups]
    world.run_turns()
    found = [world.host.find(group) for group in groups]
    while not all(h is not None and h.core.ready_to_serve for h in found):
        world.settle(1)
    world.events.clear()
    return machines


def test_proposals_of_one_turn_make_one_turn_of_the_pump(world: World) -> None:
    serve(world, 1)
    writes = world.writes
    assert [world.host.propose(1, b"%d" % i, False) for i in range(3)] == [2, 3, 4]
    assert len(world.turns) == 1
    world.settle(1)
    assert world.writes == writes + 1
    assert [e for e in world.events if "applies" in e] == [f"g1 applies {i}" for i in range(3)]


def test_dirty_groups_are_served_in_the_order_they_became_dirty(world: World) -> None:
    serve(world, 1, 2, 3)
    for group in (3, 1, 2, 3):
        world.host.propose(group, b"x", False)
    world.settle(3)
    applied = [e for e in world.events if "applies" in e]
    assert applied == ["g3 applies x", "g3 applies x", "g1 applies x", "g2 applies x"]


def test_nothing_is_applied_before_it_is_durable(world: World) -> None:
    serve(world, 1)
    world.host.propose(1, b"x", False)
    world.run_turns()
    assert [e for e in world.events if "applies" in e] == []
    world.settle(1)
    assert [e for e in world.events if "applies" in e] == ["g1 applies x"]


def test_handler_may_propose_and_remove_while_it_applies(world: World) -> None:
    [machine, _] = serve(world, 1, 2)
    machine.react = lambda: world.host.propose(2, b"from g1", False)
    world.host.propose(1, b"x", False)
    world.settle(2)
    assert [e for e in world.events if "applies" in e] == ["g1 applies x", "g2 applies from g1"]
    machine.react = lambda: world.host.remove_group(1)
    world.host.propose(1, b"last", False)
    world.settle(1)
    assert world.host.find(1) is None
    assert world.host.propose(1, b"x", False) == NOT_LEADER
    assert world.failures == []


def test_leadership_is_told_on_change_only_and_after_the_entries(world: World) -> None:
    alone(world, 1)
    world.run_turns()
    world.host.tick()
    world.settle(2)
    world.host.tick()
    world.settle()
    assert [event for event in world.events if event != "flush"] == [
        "g1 led by 0, serving False",
        "g1 led by 1, serving False",
        "leader of 1 is 1",
        "g1 led by 1, serving True",
    ]


def test_vote_request_leaves_only_after_the_own_vote_is_durable(world: World) -> None:
    world.host.create_group(1, (1, 2, 3), (), Machine(world.events, "g1"), True)
    world.run_turns()
    assert {m.kind for m in world.posted} == {PRE_VOTE}
    world.host.receive([Message(PRE_VOTE_REPLY, 1, 2, 1, 1)])
    world.run_turns()
    assert {m.kind for m in world.posted} == {PRE_VOTE}
    world.settle(1)
    assert {m.kind for m in world.posted} == {PRE_VOTE, VOTE}


def test_messages_of_unknown_groups_wait_and_those_of_removed_ones_do_not(world: World) -> None:
    append = Message(APPEND, 7, 2, 1, 3, entries=[Entry(1, 3, 0, b"x")], commit=1)
    world.host.receive([append])
    world.host.create_group(7, (1, 2, 3), (), Machine(world.events, "g7"), False)
    world.settle(1)
    assert "g7 applies x" in world.events
    assert "g7 led by 2, serving False" in world.events
    world.host.remove_group(7)
    world.host.receive([append])
    assert world.host._held.count == 0


def test_call_for_silence_of_a_leader_that_is_down_silences_no_group(world: World) -> None:
    append = Message(APPEND, 7, 2, 1, 3, entries=[Entry(1, 3, 0, b"x")], commit=1)
    silence = Message(HEARTBEAT, 7, 2, 1, 3, index=1, log_term=3, commit=1, quiesce=True)
    for lost, quiesced in ((3, True), (2, False)):
        append.group = silence.group = group = 10 + lost
        world.host.receive([append, silence])
        world.host.peer_changed(lost, False)
        world.host.create_group(group, (1, 2, 3), (), Machine(world.events, "g"), False)
        hosted = world.host.find(group)
        assert hosted is not None
        assert hosted.core.quiesced == quiesced


def test_entries_are_dropped_while_the_disk_is_far_behind(tmp_path: Path) -> None:
    files = MemoryFiles()
    world = World(tmp_path, CoreOptions(), files)
    files.fault = full_on_write
    data = bytes(1 << 19)
    taken = 0
    for group in range(WRITE_BACKLOG_BYTES_MAX // len(data) + 10):
        world.host.create_group(group, (1, 2), (), Machine(world.events, "g"), False)
        world.host.receive([Message(APPEND, group, 2, 1, 1, entries=[Entry(1, 1, 0, data)])])
        world.run_turns()
        hosted = world.host.find(group)
        assert hosted is not None
        taken += hosted.core.last_index
    assert taken == WRITE_BACKLOG_BYTES_MAX // len(data)
    world.host.receive([Message(HEARTBEAT, group, 2, 1, 1)])
    assert hosted is not None
    assert hosted.core.leader == 2
    assert world.failures == []
    world.log.close()


def full_on_write(call: str, path: str) -> None:
    if call == "write":
        raise OSError(errno.ENOSPC, "no space left on device", path)


def test_full_disk_makes_the_leader_busy(world: World) -> None:
    serve(world, 1)
    world.host.disk_full = True
    assert world.host.propose(1, b"x", False) == BUSY
    world.host.disk_full = False
    assert world.host.propose(1, b"x", False) > 0


def test_what_is_raised_stops_the_host_once_and_for_all(world: World) -> None:
    [machine, _] = serve(world, 1, 2)

    def fail() -> None:
        raise ZeroDivisionError

    machine.react = fail
    world.host.propose(1, b"x", False)
    world.host.propose(2, b"y", False)
    world.settle(2)
    assert [type(error) for error in world.failures] == [ZeroDivisionError]
    assert world.host.stopped
    posted = len(world.posted)
    world.host.tick()
    world.host.peer_changed(2, False)
    world.host.receive([Message(APPEND, 1, 2, 1, 99)])
    world.host.fail(RuntimeError())
    world.run_turns()
    assert len(world.posted) == posted
    assert world.host.propose(2, b"z", False) == NOT_LEADER
    assert len(world.failures) == 1


def test_dropped_message_makes_the_leader_probe(world: World) -> None:
    world.host.create_group(1, (1, 2), (), Machine(world.events, "g1"), True)
    world.run_turns()
    world.host.receive([Message(PRE_VOTE_REPLY, 1, 2, 1, 1)])
    world.settle(1)
    world.host.receive([Message(VOTE_REPLY, 1, 2, 1, 1)])
    world.settle(1)
    hosted = world.host.find(1)
    assert hosted is not None
    assert hosted.core.role == LEADER
    world.host.receive([Message(APPEND_REPLY, 1, 2, 1, 1, index=1)])
    world.settle()
    progress = hosted.core.progress(2)
    assert progress is not None
    world.accepts = False
    world.host.propose(1, b"lost", False)
    world.settle(1)
    assert progress.next_index == progress.match + 1
    assert progress.probe_sent
