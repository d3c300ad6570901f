"""The messages that are left of a queue in a damaged data directory.

Up to the first entry that is not intact the queue is rebuilt as its replica would have it: what was
consumed is gone. Behind it nobody can tell which messages later settlements meant, so every message
that is readable there counts as waiting; some of them may have been consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, final

from typing_extensions import override

from headrace_broker.cli.backup.data_file import Block
from headrace_broker.codecs.batch import batch_count, message_body_bytes
from headrace_broker.core.queue.command.command import Enqueue, stamp_of
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.snapshot.frozen import READY, FrozenRun
from headrace_broker.model.limits import BACKUP_CHUNK_BYTES, BACKUP_CHUNK_MESSAGES_MAX
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.lease.chunk import cut_batch
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.inspection.salvage import SalvagedGroup

NOTHING_LEADS: Final = 0


@final
class _SalvagedLog(QueueLog):
    """The entries that are left, as what cuts messages out reads them."""

    def __init__(self, group: SalvagedGroup) -> None:
        self._group = group

    @override
    def propose(self, data: bytes, urgent: bool) -> int:
        raise AssertionError("nothing is written to what is salvaged")

    @override
    def entry_at_hand(self, index: int, done: Callable[[], None]) -> bytes:
        del done  # there is no event loop to keep
        return self._group.entry(index).data

    @override
    def forget(self, index: int) -> None:
        raise AssertionError("nothing is forgotten of what is salvaged")

    @override
    def leader(self) -> int:
        return NOTHING_LEADS


@final
class SalvagedQueue:
    """A queue's messages, and what of it is not readable."""

    def __init__(self, group: SalvagedGroup) -> None:
        self.applied_index = 0  # the queue is rebuilt up to here; nothing behind is consumed
        self.messages = 0  # that were given out
        self.byte_count = 0  # of their bodies
        self.repeated = 0  # messages among them that may have been consumed
        self.unreadable: dict[int, list[int]] = {}  # ids of messages by damaged log position
        self.problem = group.problem  # why no node would serve the queue, '' where one would
        self._group = group
        self._log = _SalvagedLog(group)
        self._machine = self._rebuild()
        self.last_id = int(self._machine.last_id)  # id of the newest message

    def blocks(self) -> Iterator[Block]:
        """Return the messages in the order of their ids."""
        frozen = self._machine.freeze()
        after = 0
        while True:
            run = frozen.read(after, BACKUP_CHUNK_MESSAGES_MAX, BACKUP_CHUNK_BYTES)
            if not run.messages:
                break
            after = int(run.messages[-1].message_id)
            yield from self._cut(run)
        for index in range(self.applied_index + 1, self._group.last + 1):
            yield from self._cut(self._behind(index))

    def _rebuild(self) -> QueueMachine:
        snapshot = self._group.snapshot
        machine = QueueMachine()
        first = 1
        if snapshot is not None:
            machine = QueueMachine.restore(snapshot.state)
            first = snapshot.index + 1
        self.applied_index = first - 1
        for index in range(first, self._group.last + 1):
            entry = self._entry(index)
            if entry is None:
                break
            if entry.kind == ENTRY_NORMAL:
                machine.apply(index, entry.data)
            self.applied_index = index
        return machine

    def _entry(self, index: int) -> Entry | None:
        """Return an entry, None for one that is not intact, which is noted."""
        try:
            return self._group.entry(index)
        except (KeyError, CorruptLogError, OSError):
            self.unreadable.setdefault(index, [])
            return None

    def _behind(self, index: int) -> FrozenRun:
        """Return the messages of an entry behind the first that is not intact."""
        run = FrozenRun()
        entry = self._entry(index)
        command = decode_command(entry.data) if entry and entry.kind == ENTRY_NORMAL else None
        if entry is None or not isinstance(command, Enqueue):
            return run
        base = command.batch_offset
        for position in range(batch_count(entry.data, base)):
            self.last_id += 1
            byte_count = message_body_bytes(entry.data, base, position)
            message = Acquired(self.last_id, index, position, byte_count, 0, 0)
            message.arrived_ms = stamp_of(entry.data)
            run.messages.append(message)
            run.states.append(READY)
        self.repeated += len(run.messages)
        return run

    def _cut(self, run: FrozenRun) -> Iterator[Block]:
        """Return blocks of the messages of a run whose entries are intact."""
        whole = FrozenRun()
        for message, state in zip(run.messages, run.states, strict=True):
            index = int(message.entry_index)
            if index not in self.unreadable and self._entry(index) is not None:
                whole.messages.append(message)
                whole.states.append(state)
            else:
                self.unreadable.setdefault(index, []).append(int(message.message_id))
        while whole.messages:
            most = len(whole.messages)
            count, batch = cut_batch(
                Entries(self._log), whole.messages, 0, most, BACKUP_CHUNK_BYTES
            )
            yield Block(whole.heads(count), batch)
            self.messages += count
            self.byte_count += sum(int(message.byte_count) for message in whole.messages[:count])
            whole.messages = whole.messages[count:]
            whole.states = whole.states[count:]
