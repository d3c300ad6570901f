"""The messages of a queue as they stood at one moment, read in the order of their ids.

What waits in packed pages shares their bytes with the queue: a page that is drained meanwhile
lives on here until it was read. Messages on their own are written down, some 25 bytes each.
Nothing else is kept for a message, so that a queue of millions is frozen in milliseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heapreplace
from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import ACCEPT, U32_MAX, write_u32
from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.batch_page import decode_batches, encode_batches
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.snapshot.restoring_section import read_acquired
from headrace_broker.core.queue.snapshot.section import write_message
from headrace_broker.core.queue.state.lane import Lane
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.ready_list import KEY_LAST_VALUE

READY: Final = 1  # it waits
UNSETTLED: Final = 2  # a consumer or a group has it
DELAYED: Final = 3  # it waits for its time
DEAD: Final = 4  # it is on its way to the dead-letter exchange, and kept until it is there

ENTRY_MAX: Final = (1 << 62) - 1  # beyond every log position

_BLOCK_MESSAGES: Final = 256  # messages on their own that are written down together


@final
class FrozenRun:
    """Messages that follow one another, by their ids."""

    def __init__(self) -> None:
        self.messages: list[Acquired] = []  # which ones
        self.states: list[int] = []  # of each, READY, UNSETTLED, DELAYED or DEAD

    def heads(self, count: i64) -> bytes:
        """Return what the queue knows of the first `count` messages; see `runtime.backup.chunk`."""
        out = BytesWriter()
        for at in range(count):
            message = self.messages[at]
            write_i64_be(out, message.message_id)
            write_i64_be(out, message.arrived_ms)
            write_i64_be(out, message.expires_ms)
            write_i64_be(out, message.due_ms)
            write_u32(out, min(message.acquired_count, U32_MAX))
            write_u32(out, min(message.delivery_count, U32_MAX))
            write_u32(out, message.byte_count)
            out.append(int(message.priority))
            out.append(self.states[at])
            out.append(0)
            out.append(0)
        return out.getvalue()


@final
class _Source:
    """Messages of one state and kind in blocks, by their ids."""

    def __init__(self, state: i64, priority: i64, key: bytes, batches: bool) -> None:
        self.state = state
        self.next_id: i64 = 0  # no message that is left has a lower one; 0 when none is left
        self._priority = priority
        self._key = key
        self._in_batches = batches
        self._blocks: list[bytes] = []
        self._firsts: list[int] = []  # no id in the block is lower
        self._lasts: list[int] = []  # nor higher
        self._at: i64 = 0  # the block that is open
        self._exact = False  # it is decoded, and `next_id` is that of a message
        self._batches: list[Batch] = []  # what is left of it, last one first
        self._messages: list[Acquired] = []  # likewise

    def add(self, block: bytes, first_id: i64, last_id: i64) -> None:
        """Put a block at the end."""
        self._blocks.append(block)
        self._firsts.append(first_id)
        self._lasts.append(last_id)

    def seek(self, after: i64) -> None:
        """Go on with the first message behind an id."""
        self._enter(bisect_right(self._lasts, after))
        if self.next_id > 0 and self.next_id <= after:
            self._open(after)

    def settle(self) -> bool:
        """Set `next_id` to that of a message; return whether it was."""
        if self._exact or self.next_id == 0:
            return True
        self._open(0)
        return False

    def take(self) -> Acquired:
        """Take the message `next_id`, which was settled."""
        if self._in_batches:
            batch = self._batches[-1]
            message = batch.message(batch.next, self._priority, self._key)
            batch.next += 1
            if batch.next == batch.stop:
                self._batches.pop()
        else:
            message = self._messages.pop()
        self._find_next()
        return message

    def _enter(self, at: i64) -> None:
        self._at = at
        self._exact = False
        self._batches = []
        self._messages = []
        self.next_id = self._firsts[at] if at < len(self._blocks) else 0

    def _open(self, after: i64) -> None:
        """Decode the block and pass over what is not behind an id."""
        block = self._blocks[self._at]
        if self._in_batches:
            batches = decode_batches(block)
            batches.reverse()
            while batches and batches[-1].id_base + batches[-1].stop <= after + 1:
                batches.pop()
            if batches:
                batches[-1].next = max(batches[-1].next, after + 1 - batches[-1].id_base)
            self._batches = batches
        else:
            messages = _decode_messages(block)
            messages.reverse()
            while messages and messages[-1].message_id <= after:
                messages.pop()
            self._messages = messages
        self._exact = True
        self._find_next()

    def _find_next(self) -> None:
        if self._batches:
            self.next_id = self._batches[-1].first_id
        elif self._messages:
            self.next_id = self._messages[-1].message_id
        else:
            self._enter(self._at + 1)


@final
class FrozenQueue:
    """The messages of a queue at one moment."""

    def __init__(self, last_id: i64) -> None:
        self.count: i64 = 0  # how many there are
        self.byte_count: i64 = 0  # of their bodies
        self.last_id = last_id  # id of the newest message that the queue ever had
        self._sources: list[_Source] = []
        self._heap: list[tuple[int, int]] = []  # (next id, index of the source)
        self._after: i64 = -1  # where it stands
        self._in_order = True  # of the log

    def read(self, after: i64, most: i64, bytes_max: i64) -> FrozenRun:
        """Return messages behind an id, up to and with one whose body exceeds a size.

        Reading on is cheap; another place costs a search and the decoding of some pages.
        """
        if after != self._after:
            self._seek(after)
        run = FrozenRun()
        heap = self._heap
        byte_count: i64 = 0
        while heap and byte_count < bytes_max and len(run.messages) < most:
            source = self._sources[heap[0][1]]
            if source.settle():
                message = source.take()
                run.messages.append(message)
                run.states.append(int(source.state))
                byte_count += message.byte_count
                self._after = message.message_id
            if source.next_id == 0:
                heappop(heap)
            else:
                heapreplace(heap, (source.next_id, heap[0][1]))
        return run

    def first_entry(self, after: i64) -> i64:
        """Return a log position below which no message behind an id stands.

        Ids and positions ascend together, unless a newer value took the id of an older one.
        """
        if not self._in_order:
            return 0
        run = self.read(after, 1, 1)
        return run.messages[0].entry_index if run.messages else ENTRY_MAX

    def _seek(self, after: i64) -> None:
        heap: list[tuple[int, int]] = []
        for place, source in enumerate(self._sources):
            source.seek(after)
            if source.next_id > 0:
                heap.append((source.next_id, place))
        heapify(heap)
        self._heap = heap
        self._after = after

    def add_lane(self, lane: Lane) -> None:
        """Take over the pages of a lane."""
        if not lane.pages:
            return
        source = _Source(READY, lane.priority, lane.key, True)
        for page in lane.pages:
            if page.packed:
                source.add(page.packed, page.first_id, page.last_id)
            else:
                waiting = page.waiting()
                if waiting:
                    source.add(encode_batches(waiting), waiting[0].first_id, page.last_id)
            self.count += page.count
        self._sources.append(source)

    def add_messages(self, messages: list[Acquired], state: i64) -> None:
        """Write down messages in any order."""
        if not messages:
            return
        ordered = sorted(messages, key=_id)
        source = _Source(state, 0, b"", False)
        for start in range(0, len(ordered), _BLOCK_MESSAGES):
            block = ordered[start : start + _BLOCK_MESSAGES]
            out = BytesWriter()
            for message in block:
                write_message(out, message)
                if message.key.startswith(KEY_LAST_VALUE):
                    self._in_order = False
            source.add(out.getvalue(), block[0].message_id, block[-1].message_id)
        self.count += len(ordered)
        self._sources.append(source)


def freeze(state: QueueState) -> FrozenQueue:
    """Return the messages of a queue as they are now, without accepted ones."""
    frozen = FrozenQueue(state.ready.next_id - 1)
    loose: list[Acquired] = list(state.ready.groups.loose.messages.values())
    for lane in [*state.ready.lanes, *state.ready.fair.of_values()]:
        frozen.add_lane(lane)
        loose.extend(lane.loose.messages.values())
    held: list[Acquired] = []
    accepted: i64 = 0
    for session in state.sessions.values():
        for consumer in session.consumers.values():
            held.extend(consumer.unsettled.values())
    for group in state.leases.groups.values():
        for lease in group.leases.values():
            held.extend(lease.messages)
    for leaving in state.leases.leaving:
        left = leaving.messages[leaving.next :]
        if leaving.operation == ACCEPT:
            for message in left:
                accepted += message.byte_count
        else:
            held.extend(left)
    frozen.add_messages(loose, READY)
    frozen.add_messages(held, UNSETTLED)
    frozen.add_messages(list(state.delayed.messages.values()), DELAYED)
    frozen.add_messages([dead.message for dead in state.dead.values()], DEAD)
    frozen.byte_count = state.held_bytes - accepted
    return frozen


def _decode_messages(block: bytes) -> list[Acquired]:
    reader = ByteReader(block, 0)
    messages: list[Acquired] = []
    while not reader.at_end():
        message = read_acquired(reader)
        assert not reader.failed, "what was written down here is read here"
        messages.append(message)
    return messages


def _id(message: Acquired) -> int:
    return message.message_id
