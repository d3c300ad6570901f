"""Output of a core for its host: things to write, to send and to apply."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.snapshot import SnapshotOffer


@final
class Ready:
    """One numbered batch of work; the host may have several under way, finished in order.

    The host makes `entries` visible in the group's log before it calls the core again, sends
    `messages` at once, writes `hard_state` and `entries` durably, then calls
    `persisted(number)` and sends `messages_after_persist`. Entries whose first index lies at or
    below the log's last index replace everything from there on.

    Attributes:
        number: counts up by one from 1; nothing to persist still needs `persisted(number)`
            when `messages_after_persist` is not empty.
        hard_state: changed hard state, or None.
        entries: entries to append, consecutive.
        messages: may leave before anything is durable.
        messages_after_persist: leave only after `hard_state` and `entries` are durable.
        committed: entries to apply now, consecutive, each durable here and committed.
        leader: member id of the leader this member knows, 0 for none.
        role: role after this Ready.
        term: term after this Ready.
        must_sync: whether the write needs a sync (term, vote or entries changed).
        offer: a snapshot to fetch from the leader, then to be given to `restore`, or None.
        membership: who belongs to the group from now on, or None while that did not change.
        read_states: (context, index) of reads that may be answered once `index` is applied.
        reads_lost: contexts of reads that will not be answered; ask again with new ones.
    """

    def __init__(self, number: i64) -> None:
        self.number = number
        self.hard_state: HardState | None = None
        self.entries: list[Entry] = []
        self.messages: list[Message] = []
        self.messages_after_persist: list[Message] = []
        self.committed: list[Entry] = []
        self.leader: i64 = 0
        self.role: i64 = 0
        self.term: i64 = 0
        self.must_sync = False
        self.offer: SnapshotOffer | None = None
        self.membership: Membership | None = None
        self.read_states: list[tuple[int, int]] = []
        self.reads_lost: list[int] = []
