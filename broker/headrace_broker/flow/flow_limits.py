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
    """Figures that can be changed at run time; defaults and reasons are in `model.limits`.

    Attributes:
        account_messages: debt of an account past which its reader stops, in messages.
        account_octets: the same in octets.
        credit: publishes that a reader may hand to a channel in advance.
        credit_more: passed on by the channel before it grants as much again.
        commands: batches of a channel that a queue has not applied before that grants no credit.
        queue_octets: octets of this node's publishers that one queue has not applied.
        held_octets: octets of publishes held for one connection before its socket is not read.
        node_octets: octets that a node holds outside of its log for all publishing connections.
        turn_messages: publishes that a node passes on in one turn of its loop while consumers wait.
        turn_octets: the same in octets.
        tell_after_ms: a client is told when it was held for so long; 0 for never.
        leaderless_ms: after so long without a leader of their queue publishes are refused; 0 for
            never.
        share: percentage of all these that holds now; below 100 while memory is scarce.
    """

    def __init__(self) -> None:
        self.account_messages: i64 = limits.ACCOUNT_MESSAGES
        self.account_octets: i64 = limits.ACCOUNT_OCTETS
        self.credit: i64 = limits.CHANNEL_CREDIT
        self.credit_more: i64 = limits.CHANNEL_CREDIT_MORE
        self.commands: i64 = limits.QUEUE_COMMANDS
        self.queue_octets: i64 = limits.QUEUE_PENDING_OCTETS
        self.held_octets: i64 = limits.HELD_OCTETS
        self.node_octets: i64 = limits.NODE_HELD_OCTETS
        self.turn_messages: i64 = limits.TURN_MESSAGES
        self.turn_octets: i64 = limits.TURN_OCTETS
        self.tell_after_ms: i64 = 0
        self.leaderless_ms: i64 = limits.LEADERLESS_MS
        self.share: i64 = 100

    def scaled(self, figure: i64) -> i64:
        """Return how much of one of the figures holds now, at least 1."""
        if self.share >= 100:
            return figure
        return max(figure * self.share // 100, 1)
