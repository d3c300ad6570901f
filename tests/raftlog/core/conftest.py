"""A core with a host that keeps its contract, driven by hand."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace_raftlog.core.durability import NO_WRITES
from headrace_raftlog.core.log_view import NO_ENTRIES
from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.core.state import (
    NO_MESSAGES,
    NO_PEERS,
    NO_PROGRESS,
    NO_VOTES,
    NOT_UNCOMMITTED,
)
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import CoreOptions, GroupConfig
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import (
    APPEND_REPLY,
    HEARTBEAT_REPLY,
    PRE_VOTE_REPLY,
    VOTE_REPLY,
    Message,
)
from headrace_raftlog.model.ready import Ready
from headrace_raftlog.model.snapshot import Snapshot, SnapshotOffer
from headrace_simulation.simulator.memory_log import MemoryLog

GROUP = 7


class Host:
    """Member 1 of a group (unless told otherwise); the other members are the test."""

    def __init__(
        self,
        voters: tuple[int, ...] = (1, 2, 3),
        learners: tuple[int, ...] = (),
        outgoing: tuple[int, ...] = (),
        member: int = 1,
        terms: tuple[int, ...] = (),
        hard_state: HardState | None = None,
        applied: int = 0,
        seed: int = 1,
        entries: tuple[Entry, ...] = (),
        view: Callable[[MemoryLog], GroupLog] | None = None,
        group: int = GROUP,
        **options: int,
    ) -> None:
        self.voters = voters
        self.member = member
        self.group = group
        self.log = MemoryLog(
            [Entry(index, term, ENTRY_NORMAL, b"old") for index, term in enumerate(terms, 1)]
        )
        if entries:
            self.log.append(list(entries))
        if hard_state is None:
            hard_state = HardState(terms[-1] if terms else 0, 0, 0)
        self.core = RaftCore(
            GroupConfig(group, member, voters, learners, outgoing),
            CoreOptions(**options),
            view(self.log) if view is not None else self.log,
            hard_state,
            applied,
            seed,
        )
        self.applied: list[Entry] = []
        self.offers: list[SnapshotOffer] = []
        self.read_states: list[tuple[int, int]] = []
        self.reads_lost: list[int] = []

    def ready(self) -> Ready:
        """Take one Ready: entries become visible, committed ones are applied, none is durable."""
        ready = self.core.ready()
        if ready.entries:
            self.log.append(ready.entries)
        if ready.committed:
            self.applied.extend(ready.committed)
            self.core.applied(ready.committed[-1].index)
        if ready.offer is not None:
            self.offers.append(ready.offer)
        self.read_states += ready.read_states
        self.reads_lost += ready.reads_lost
        return ready

    def drain(self) -> list[Message]:
        """Handle and persist everything; return all messages in the order of their leaving."""
        messages: list[Message] = []
        while self.core.has_ready():
            ready = self.ready()
            messages += ready.messages
            if ready.must_sync or ready.messages_after_persist:
                self.core.persisted(ready.number)
            messages += ready.messages_after_persist
        return messages

    def step(self, kind: int, source: int, term: int, **fields: Any) -> list[Message]:
        """Let a message arrive and return what leaves in answer."""
        self.core.step(Message(kind, self.group, source, self.member, term, **fields))
        return self.drain()

    def tick(self, count: int = 1) -> list[Message]:
        """Let time pass and return what leaves."""
        for _ in range(count):
            self.core.tick()
        return self.drain()

    def restore(self, index: int, term: int, membership: Membership | None = None) -> bool:
        """Restore a snapshot as a host does; the acknowledgement leaves with the next `ready`."""
        if membership is None:
            membership = Membership(self.voters)
        keep = self.log.term_at(index) == term
        if not self.core.restore(index, term, membership):
            return False
        self.log.install(Snapshot(index, term, membership, b"", array("Q")), keep)
        return True

    def compact(self, index: int) -> None:
        """Let a snapshot of its own replace the log up to `index`, which is applied."""
        membership = self.core.membership_at(index)
        term = self.log.term_at(index)
        self.log.save(Snapshot(index, term, membership, b"", array("Q")))

    def others(self) -> list[int]:
        """Return the other voters."""
        return [voter for voter in self.voters if voter != self.member]

    def elect(self, *supporters: int) -> list[Message]:
        """Win an election with the votes of `supporters` (default: all others)."""
        self.core.campaign()
        self.drain()
        for supporter in supporters or self.others():
            self.step(PRE_VOTE_REPLY, supporter, self.core.term + 1)
        messages: list[Message] = []
        for supporter in supporters or self.others():
            messages += self.step(VOTE_REPLY, supporter, self.core.term)
        return messages

    def acknowledge(self, peer: int, index: int) -> list[Message]:
        """Let `peer` report that it holds everything up to `index`."""
        return self.step(APPEND_REPLY, peer, self.core.term, index=index)

    def hear(self, peer: int) -> list[Message]:
        """Let `peer` answer a heartbeat that left just now."""
        return self.step(HEARTBEAT_REPLY, peer, self.core.term, index=self.core.last_index)

    def terms(self) -> list[int]:
        """Return the terms of the log."""
        return [entry.term for entry in self.log.items]


@pytest.fixture(autouse=True)
def shared() -> Iterator[None]:
    """Check that nothing was put into what all members share while they have none of it."""
    yield
    assert not any((NO_VOTES, NO_PEERS, NO_PROGRESS, NOT_UNCOMMITTED, NO_MESSAGES))
    assert not any((NO_ENTRIES, NO_WRITES))


@pytest.fixture
def host() -> Callable[..., Host]:
    """Return the constructor of hosts."""
    return Host


@pytest.fixture
def leader(host: Callable[..., Host]) -> Host:
    """Return the leader of term 1 of three members, whose no-op is committed everywhere."""
    leader = host(quiesce_ticks=0)
    leader.elect()
    leader.acknowledge(2, 1)
    leader.acknowledge(3, 1)
    return leader
