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
        self.account_octets: i64 = limits.ACCOUNT_OCTETS  # the same in octets
        self.credit: i64 = limits.CHANNEL_CREDIT  # publishes given to a channel in advance
        self.credit_more: i64 = limits.CHANNEL_CREDIT_MORE  # passed on before as many again
        self.commands: i64 = limits.QUEUE_COMMANDS  # batches of a channel not applied yet
        self.queue_octets: i64 = limits.QUEUE_PENDING_OCTETS  # of this node's publishers, per queue
        self.held_octets: i64 = limits.HELD_OCTETS  # held for one connection before it is unread
        self.node_octets: i64 = limits.NODE_HELD_OCTETS  # held for all publishing connections
        self.turn_messages: i64 = limits.TURN_MESSAGES  # publishes in one turn of the loop
        self.turn_octets: i64 = limits.TURN_OCTETS  # the same in octets
        self.tell_after_ms: i64 = 0  # a client is told when it was held for so long; 0 for never
        self.leaderless_ms: i64 = limits.LEADERLESS_MS  # then publishes are refused; 0 for never
        self.share: i64 = 100  # percentage of all these that holds now; less if memory is scarce

    def scaled(self, figure: i64) -> i64:
        """Return how much of one of the figures holds now, at least 1."""
        if self.share >= 100:
            return figure
        return max(figure * self.share // 100, 1)
