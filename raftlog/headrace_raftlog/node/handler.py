"""The interface of a group's application to its host."""

from __future__ import annotations

from array import array
from typing import Protocol

from headrace_raftlog.model.entry import Entry


class GroupHandler(Protocol):
    """The state machine of one group. Called on the event loop; its exceptions are fatal."""

    def apply(self, entries: list[Entry]) -> None:
        """Apply committed entries.

        Args:
            entries: of kind ENTRY_NORMAL, in log order, each once per life of the process
                (indexes of other kinds are left out). Durable on a majority and on this node.
        """

    def leadership(self, leader: int, term: int, serving: bool) -> None:
        """Note a change of leadership.

        Args:
            leader: node id of the leader, 0 while unknown.
            term: the term.
            serving: this node leads, and everything ever committed has been applied.
        """

    def quiesced(self) -> None:
        """Note that the group is quiescent: there may be nothing to apply for a long time."""

    def snapshot(self) -> tuple[bytes, array[int]]:
        """Return the state after everything applied so far.

        Returns:
            The state, opaque, and the indexes (typecode Q, ascending) of applied entries that are
            still read; all other applied entries may vanish from now on.
        """

    def held(self) -> array[int]:
        """Return the indexes (typecode Q, ascending) of dead entries that are still read here.

        They stay in this member's log behind its snapshot, until `entry_dead` is told of them; no
        snapshot names them, and other members know nothing of them.
        """

    def digest(self) -> tuple[str, bytes]:
        """Return a digest of the state after everything applied so far, and its version.

        Members that applied the same entries return the same digest, whether by one run or from a
        snapshot on, unless their versions differ: those of the code and of the state machine. It
        covers nothing that is local to a member. "" as version: it is not compared.
        """

    def restore(self, state: bytes) -> None:
        """Begin anew with a state that `snapshot` returned, here or on another member.

        Called before the first `apply`, or at any time in place of entries that this member
        missed; what was applied before is contained or void.
        """
