"""Facts of nodes, from which the slowness of a connection or queue is explained."""

from __future__ import annotations

from typing import final

from headrace_broker.model.flow_status import (
    AccountStatus,
    BroughtStatus,
    ConnectionFlow,
    GateFlow,
    NodeFlow,
    QueueFlow,
)


@final
class Facts:
    """Facts that the nodes have told.

    Attributes:
        account: of the connection that is asked about.
        queue: that which is asked about, or which is behind the connection's limit.
        hides_queue: that which is behind the connection's limit may not be known to who asks.
        queue_names: vhost and name by group, of all queues that accounts have tabs at.
        gates: of that queue, of each node.
        accounts: that have a tab there; where an alarm is on, all.
        brought: what was brought there, by accounts that are gone too.
        held: connections that it stops.
        queues: the largest ones, for alarms.
        nodes: those that answered.
        publish_rates: what the connection's user and vhost may publish, for people.
        missing: names of the nodes that did not answer.
    """

    def __init__(self) -> None:
        self.account: AccountStatus | None = None
        self.queue: QueueFlow | None = None
        self.hides_queue = False
        self.queue_names: dict[int, tuple[str, str]] = {}
        self.gates: list[GateFlow] = []
        self.accounts: list[AccountStatus] = []
        self.brought: list[BroughtStatus] = []
        self.held: list[ConnectionFlow] = []
        self.queues: list[QueueFlow] = []
        self.nodes: list[NodeFlow] = []
        self.publish_rates: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()
