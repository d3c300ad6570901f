"""Reports of the transport to the node above it."""

from __future__ import annotations

from typing import Protocol

from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.pieces import Parted
from headrace_raftlog.transport.identity import StreamIdentity


class TransportEvents(Protocol):
    """Called on the event loop; the calls must not block and may call the transport."""

    def on_messages(self, messages: list[Message]) -> None:
        """Take the Raft messages of one frame, in order; only between up and down reports."""

    def on_met(self, peer: StreamIdentity) -> None:
        """Note who answers or calls; before any up report, and again when it has changed."""

    def on_stranger(self, stranger: StreamIdentity) -> str:
        """Note that a node calls that is no peer; return why it is refused, for its log."""

    def on_rival(self, peer: StreamIdentity, text: str) -> None:
        """Note, perhaps again, a member of the cluster to which this node belonged before.

        This node has lost that disk and founded a second cluster; `text` says what to do.
        """

    def on_removed(self) -> None:
        """Note that a peer says, perhaps again, that this node was removed from the cluster."""

    def on_outdated(self, reason: ForgottenError | CloneError) -> None:
        """Note that a peer knows, perhaps again, that this process must not take part."""

    def on_payload(self, peer: int, payload: bytes) -> None:
        """Take a payload; only ever between the peer's up and down reports."""

    def part(self, head: bytes, size: int) -> tuple[int, int]:
        """Return where a large payload is to be parted, and the room before its second part.

        Args:
            head: its first bytes, at most PART_HEAD_BYTES.
            size: bytes of it.

        Returns:
            0 for nowhere; otherwise at most the length of `head`.
        """

    def on_parted(self, peer: int, payload: Parted) -> None:
        """Take a payload that was parted; as `on_payload`."""

    def on_peer(self, peer: int, up: bool, boot: int) -> None:
        """Note that the peer with this boot count can be reached, or no longer.

        After a down report everything sent and not answered may be lost, in both directions.
        """

    def on_failure(self, error: BaseException) -> None:
        """Note a bug of the transport: it no longer serves one of its peers."""
