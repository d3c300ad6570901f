"""Bugs put into production code, each of which runs should find: they test the simulation.

simulation/README.md says which of them are found.

A mutation replaces a function of an interpreted module; compiled code does not look for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace_broker.runtime.cluster.boot_claim import BootClaim
from headrace_broker.runtime.cluster.steady_clock import SteadyClock
from headrace_broker.runtime.dead_letter.queue_dead_letters import QueueDeadLetters
from headrace_broker.runtime.session.publishing import Publishing
from headrace_broker.runtime.session.settling import Control
from headrace_raftlog.core import election, replication
from headrace_raftlog.core.quorum import Majority
from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.message import APPEND_REPLY, VOTE_REPLY
from headrace_raftlog.node.directory import Directory
from headrace_raftlog.node.host import Host
from headrace_raftlog.storage.disk.disk_watch import DiskWatch
from headrace_raftlog.storage.writing import writer
from headrace_raftlog.transport.peer_memory import PeerMemory


@dataclass(frozen=True)
class Mutation:
    """One bug."""

    name: str
    profile: str  # whose runs are to find it
    seeds: int  # within which they are to
    apply: Callable[[], None]


def _early(kind: int) -> Callable[[], None]:
    """Send messages of a kind before what they promise is durable."""

    def apply() -> None:
        original = Host._write

        def write(self: Host, hosted: Any, ready: Any) -> None:
            early = [each for each in ready.messages_after_persist if each.kind == kind]
            late = [each for each in ready.messages_after_persist if each.kind != kind]
            ready.messages_after_persist = late
            self._post_all(hosted, early)
            original(self, hosted, ready)

        Host._write = write  # type: ignore[method-assign]

    return apply


def _unsynced() -> None:
    def write_all(files: Any, fd: int, pieces: list[bytes], size: int, offset: int) -> None:
        del size
        files.write(fd, b"".join(pieces), offset)

    writer.write_all = write_all  # type: ignore[attr-defined]


def _counting() -> None:
    def advance_commit(state: Any) -> None:
        index = state.electorate.committed_index(state.peer_of, state.durability.last_index)
        if index > state.commit_index:
            state.commit_to(index)
            state.send_dirty = True
            replication.release(state)  # type: ignore[attr-defined]

    replication.advance_commit = advance_commit


def _restoring() -> None:
    def restore(self: RaftCore, index: int, term: int, membership: Any) -> bool:
        if self.role == 2 or term > self.written_term:
            return False
        replication.restore(self, index, term, membership)
        return True

    RaftCore.restore = restore  # type: ignore[method-assign]


def _alone() -> None:
    Majority.committed_index = lambda self, peers, own_match: own_match  # type: ignore[method-assign]


def _settles_lost() -> None:
    def resend(self: Control) -> None:
        for command in list(self.lane.pending):
            self.answer(command.number, 0, 0)

    Control.resend = resend  # type: ignore[method-assign]


def _publishes_lost() -> None:
    def resend(self: Publishing) -> None:
        for command in list(self.lane.pending):
            self.confirm(command.last)

    Publishing.resend = resend  # type: ignore[method-assign]


def _dead_letters_lost() -> None:
    QueueDeadLetters._refill = lambda self: None  # type: ignore[method-assign]


def _old_copies() -> None:
    PeerMemory.judge = lambda self, peer, running: None  # type: ignore[method-assign]
    PeerMemory.told = lambda self, node, mark, running: False  # type: ignore[method-assign]
    Directory.lost = lambda self: ""  # type: ignore[method-assign]


def _boots_repeat() -> None:
    async def wait(self: BootClaim) -> None:
        del self

    BootClaim.wait = wait  # type: ignore[method-assign]


def _hung_leads() -> None:
    DiskWatch.tick = lambda self, passed_s, step: False  # type: ignore[method-assign]


def _wall_clock() -> None:
    SteadyClock.queue_ms_at = lambda self, boot_ms: self.unix_ms()  # type: ignore[method-assign]


def _unsticky() -> None:
    election.is_sticky = lambda state, request: False


MUTATIONS: Final = (
    Mutation("votes-before-sync", "blackout", 60, _early(VOTE_REPLY)),
    Mutation("acks-before-sync", "blackout", 60, _early(APPEND_REPLY)),
    Mutation("no-sync", "blackout", 20, _unsynced),
    Mutation("old-term-by-counting", "several", 60, _counting),
    Mutation("snapshot-over-newer-entries", "loss", 20, _restoring),
    Mutation("commit-without-quorum", "process", 20, _alone),
    Mutation("settles-lost-at-failover", "process", 20, _settles_lost),
    Mutation("publishes-lost-at-failover", "process", 20, _publishes_lost),
    Mutation("dead-letters-lost-at-failover", "process", 20, _dead_letters_lost),
    Mutation("old-copy-of-a-disk-votes", "old", 20, _old_copies),
    Mutation("boot-counts-repeat", "loss", 60, _boots_repeat),
    Mutation("hung-disk-leads", "disk", 20, _hung_leads),
    Mutation("queues-follow-wall-clock", "process", 20, _wall_clock),
    Mutation("votes-beside-a-leader", "network", 30, _unsticky),
)
