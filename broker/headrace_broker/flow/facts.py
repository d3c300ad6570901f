"""Facts of nodes, from which the slowness of a connection or queue is explained."""

from __future__ import annotations

from typing import final

from headrace_broker.model.flow_status import (
    AccountStatus,
    BroughtStatus,
    ConnectionFlow,
    GateFlow,
    LeaderlessStatus,
    NodeFlow,
    QueueFlow,
)


@final
class Facts:
    """Facts that the nodes have told."""

    def __init__(self) -> None:
        self.account: AccountStatus | None = None  # of the connection that is asked about
        self.queue: QueueFlow | None = None  # asked about, or behind the connection's limit
        self.leaderless: LeaderlessStatus | None = None  # that queue, without a leader
        self.hides_queue = False  # that behind the connection's limit may not be known to the asker
        self.queue_names: dict[int, tuple[str, str]] = {}  # vhost and name by group
        self.gates: list[GateFlow] = []  # of that queue, of each node
        self.accounts: list[AccountStatus] = []  # that have a tab there; where an alarm is on, all
        self.brought: list[BroughtStatus] = []  # by accounts, those gone too
        self.held: list[ConnectionFlow] = []  # connections that it stops
        self.queues: list[QueueFlow] = []  # the largest ones, for alarms
        self.nodes: list[NodeFlow] = []  # those that answered
        self.publish_rates: tuple[str, ...] = ()  # of the connection's user and vhost
        self.missing: tuple[str, ...] = ()  # names of the nodes that did not answer
