"""Proposals that wait until the window of uncommitted bytes opens.

Draining has priority: urgent proposals (settles) pass normal ones (publishes), and have room of
their own in the queue, so that a flood of publishes never keeps a queue from being drained.
"""

from __future__ import annotations

from mypy_extensions import i64

from headrace_raftlog.core.proposal_queue import ProposalQueue
from headrace_raftlog.core.state import RaftState, entry_cost
from headrace_raftlog.model.entry import CHECKPOINT, ENTRY_NOOP, ENTRY_NORMAL
from headrace_raftlog.model.group import BUSY, QUEUED


def propose(state: RaftState, blobs: list[bytes], urgent: bool) -> i64:
    """Append a leader's proposal, or let it wait; return its first index, QUEUED or BUSY."""
    size: i64 = 0
    for blob in blobs:
        size += entry_cost(blob)
    queue = state.queue
    if state.transferee != 0:
        return BUSY
    if (queue is None or not queue.blocks(urgent)) and _fits(state, size):
        return state.append_own(ENTRY_NORMAL, blobs)
    options = state.options
    bound: i64 = options.queued_bytes_max
    if urgent:
        bound += options.urgent_bytes_max
    waiting: i64 = queue.size if queue is not None else 0
    if waiting > 0 and waiting + size > bound:
        return BUSY  # one always waits, however long, or it would need a moment without others
    if queue is None:
        queue = ProposalQueue()
        state.queue = queue
    queue.add(blobs, size, urgent)
    return QUEUED


def propose_checkpoint(state: RaftState) -> i64:
    """Append a no-op at which members take the digest of their states; return its index or BUSY."""
    if state.queue is not None or state.transferee != 0:
        return BUSY
    return state.append_own(ENTRY_NOOP, [CHECKPOINT])


def release(state: RaftState) -> None:
    """Append what waits and fits the window now, unless the leadership is being handed over."""
    queue = state.queue
    if queue is None or state.transferee != 0:
        return
    size: i64 = queue.first_size()
    while size >= 0 and _fits(state, size):
        state.append_own(ENTRY_NORMAL, queue.pop())
        size = queue.first_size()
    if size < 0:
        state.queue = None


def _fits(state: RaftState, size: i64) -> bool:
    """Return whether the window takes `size` bytes; it always takes one proposal alone."""
    uncommitted: i64 = state.uncommitted_bytes
    return uncommitted == 0 or uncommitted + size <= state.options.uncommitted_bytes_max
