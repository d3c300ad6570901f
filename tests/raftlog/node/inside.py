"""Parts of a node that only tests look into."""

from __future__ import annotations

from headrace_raftlog.model.errors import LostEntryError
from headrace_raftlog.node.node import RaftNode


def snapshot_now(node: RaftNode, group: int) -> bool:
    """Take a snapshot of a group; False where nothing was applied since the last one."""
    return node._host.snapshots.take(node._hosted(group))


def entry_data(node: RaftNode, group: int, index: int) -> bytes:
    """Return the data of an entry; a damaged one suspends the group, as for the application."""
    hosted = node._hosted(group)
    try:
        return hosted.view.entry(index).data
    except LostEntryError as error:
        node._host.suspensions.note(hosted, error.index)
        raise
