"""The effective limits of flow control on a node.

There is one `FlowLimits` per node. Who changes it (at run time) changes it for all at once; nobody
keeps a copy of a figure.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model import limits


@final
class FlowLimits:
    """Figures that can be changed at run time; defaults and reasons are in `model.limits`."""

    def __init__(self) -> None:
        self.account_messages: i64 = limits.ACCOUNT_MESSAGES  # debt past which a reader stops
        self.account_bytes: i64 = limits.ACCOUNT_BYTES  # the same in bytes
        self.credit: i64 = limits.CHANNEL_CREDIT  # publishes given to a channel in advance
        self.credit_more: i64 = limits.CHANNEL_CREDIT_MORE  # passed on before as many again
        self.queue_commands: i64 = limits.QUEUE_COMMANDS  # batches of a channel not applied yet
        self.queue_pending_bytes: i64 = (
            limits.QUEUE_PENDING_BYTES
        )  # of this node's publishers, per queue
        self.connection_buffer_bytes: i64 = (
            limits.CONNECTION_BUFFER_BYTES
        )  # held for one connection before it is unread
        self.node_buffer_bytes: i64 = (
            limits.NODE_BUFFER_BYTES
        )  # held for all publishing connections
        self.intake_messages: i64 = limits.INTAKE_MESSAGES  # publishes in one turn of the loop
        self.intake_bytes: i64 = limits.INTAKE_BYTES  # the same in bytes
        self.blocked_after_ms: i64 = 0  # a client is told when it was held for so long; 0 for never
        self.leaderless_ms: i64 = limits.LEADERLESS_MS  # then publishes are refused; 0 for never
        self.share: i64 = 100  # percentage of all these that holds now; less if memory is scarce

    def scaled(self, figure: i64) -> i64:
        """Return how much of one of the figures holds now, at least 1."""
        if self.share >= 100:
            return figure
        return max(figure * self.share // 100, 1)
