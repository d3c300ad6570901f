"""Handing the leadership over.

The leader stops taking proposals, brings its successor up to date, and tells it to campaign at
once. It is one attempt: if another leader is not there within an election timeout, it goes on.

Source: thesis section 3.10.
"""

from __future__ import annotations

from headrace_raftlog.core.progress import Progress
from headrace_raftlog.core.state import RaftState
from headrace_raftlog.model.message import TIMEOUT_NOW, Message


def begin(state: RaftState, progress: Progress) -> None:
    """Begin to hand over to a voter."""
    state.transferee = progress.member
    state.transfer_elapsed = 0
    state.send_dirty = True
    hand_over(state, progress)


def hand_over(state: RaftState, progress: Progress) -> None:
    """Tell the successor to campaign, if `progress` is its own and it has the whole log."""
    if progress.member == state.transferee and progress.match >= state.log.last_index:
        state.send(Message(TIMEOUT_NOW, state.group, state.member, progress.member, state.term))


def tick(state: RaftState) -> None:
    """Let one tick pass; give up after an election timeout."""
    if state.transferee == 0:
        return
    state.transfer_elapsed += 1
    if state.transfer_elapsed >= state.options.election_ticks:
        state.transferee = 0
