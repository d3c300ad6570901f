"""A disk that writes in order, takes its time, and forgets what it had not synced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.message import Message
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.parameters import Parameters

STALL: Final = 0.01  # probability that a sync takes ten times as long as it may


@dataclass
class Write:
    """One Ready's part for the disk, and the messages that wait for it.

    Attributes:
        claims: for each message, the term of the entry that it acknowledges, or 0.
    """

    number: int
    hard_state: HardState | None
    entries: list[Entry]
    messages: list[Message] = field(default_factory=list)
    claims: list[int] = field(default_factory=list)


class Disk:
    """What one member has written; survives its crashes, but for what was under way.

    Attributes:
        hard_state: durable hard state.
        entries: durable log, index 1 first.
    """

    def __init__(self, loop: Loop, parameters: Parameters) -> None:
        self.loop = loop
        self.parameters = parameters
        self.hard_state = HardState(0, 0, 0)
        self.entries: list[Entry] = []
        self._queue: list[Write] = []
        self._syncing: list[Write] = []
        self._generation = 0
        self._done: Callable[[list[Write]], None] | None = None

    def open(self, done: Callable[[list[Write]], None]) -> None:
        """Begin a new life; `done` gets the writes that one sync made durable, in order."""
        self._done = done

    def submit(self, write: Write) -> None:
        """Queue a write; all that gathers during one sync shares the next."""
        self._queue.append(write)
        if not self._syncing:
            self._start()

    def term_at(self, index: int) -> int:
        """Return the durable term of `index`, 0 where nothing is durable."""
        return self.entries[index - 1].term if 0 < index <= len(self.entries) else 0

    def power_off(self) -> None:
        """Lose a suffix of what is not synced, possibly in the middle of a write."""
        rng = self.loop.rng
        records: list[HardState | Entry] = []
        for write in self._syncing + self._queue:
            if write.hard_state is not None:
                records.append(write.hard_state)
            records.extend(write.entries)
        kept = rng.choice((0, len(records), rng.randint(0, len(records))))
        for record in records[:kept]:
            self._store(record)
        self._syncing = []
        self._queue = []
        self._generation += 1
        self._done = None

    def _start(self) -> None:
        self._syncing = self._queue
        self._queue = []
        rng = self.loop.rng
        latency = 1 + int(rng.random() * self.parameters.disk_latency_max)
        if rng.random() < STALL:
            latency *= 10
        self.loop.after(latency, self._finish, self._generation)

    def _finish(self, generation: int) -> None:
        if generation != self._generation:
            return
        batch = self._syncing
        for write in batch:
            if write.hard_state is not None:
                self._store(write.hard_state)
            for entry in write.entries:
                self._store(entry)
        self._syncing = []
        if self._queue:
            self._start()
        assert self._done is not None
        self._done(batch)

    def _store(self, record: HardState | Entry) -> None:
        if isinstance(record, HardState):
            self.hard_state = record
            return
        del self.entries[record.index - 1 :]
        self.entries.append(record)
