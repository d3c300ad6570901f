"""Drains a queue after healing, when it has no other users."""

from __future__ import annotations

import time
from typing import Final

from e2e.chaos.client import BROKEN, CHANNEL, ChaosClient
from e2e.chaos.cluster import ChaosCluster, ChaosNode
from e2e.chaos.history import Delivery, History, message_id
from pamqp import commands

IDLE_SECONDS: Final = 0.5  # without a delivery, after which the queue's counts are checked
DRAIN_SECONDS: Final = 60.0


def drain(cluster: ChaosCluster, node: ChaosNode, queue: str, history: History) -> str:
    """Consume and acknowledge until a queue is empty, however often that takes a new connection.

    Args:
        cluster: whose leader of the queue is asked what is left.
        node: to consume through.
        queue: the queue.
        history: gets the deliveries.

    Returns:
        "" when the queue says that it holds nothing, otherwise what it says after DRAIN_SECONDS.
    """
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        problem = ""
        try:
            with ChaosClient(node) as client:
                _take_all(client, queue, history)
        except BROKEN as error:
            problem = f"; {type(error).__name__} {error}"
        counts = cluster.queue_counts(queue)
        if counts == (0, 0):
            return ""
        if time.monotonic() > deadline:
            left = f"{queue} holds (ready, unacknowledged) {counts}, as its leader says"
            return f"{left} after {DRAIN_SECONDS:.0f} s of consuming through {node.name}{problem}"


def _take_all(client: ChaosClient, queue: str, history: History) -> None:
    client.call(commands.Basic.Consume(0, queue), commands.Basic.ConsumeOk)
    while (value := client.next(IDLE_SECONDS)) is not None:
        if isinstance(value, commands.Basic.Deliver):
            message = message_id(client.body())
            redelivered = bool(value.redelivered)
            history.deliveries.append(Delivery(message, queue, "drain", redelivered))
            client.send(commands.Basic.Ack(value.delivery_tag or 0), CHANNEL)
    # Answered after what was acknowledged before it was taken.
    client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
