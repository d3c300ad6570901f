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
    """Facts that the nodes have told."""

    def __init__(self) -> None:
        self.account: AccountStatus | None = None  # of the connection that is asked about
        # that which is asked about, or which is behind the connection's limit
        self.queue: QueueFlow | None = None
        # that which is behind the connection's limit may not be known to who asks
        self.hides_queue = False
        # vhost and name by group, of all queues that accounts have tabs at
        self.queue_names: dict[int, tuple[str, str]] = {}
        self.gates: list[GateFlow] = []  # of that queue, of each node
        self.accounts: list[AccountStatus] = []  # that have a tab there; where an alarm is on, all
        # what was brought there, by accounts that are gone too
        self.brought: list[BroughtStatus] = []
        self.held: list[ConnectionFlow] = []  # connections that it stops
        self.queues: list[QueueFlow] = []  # the largest ones, for alarms
        self.nodes: list[NodeFlow] = []  # those that answered
        # what the connection's user and vhost may publish, for people
        self.publish_rates: tuple[str, ...] = ()
        self.missing: tuple[str, ...] = ()  # names of the nodes that did not answer
