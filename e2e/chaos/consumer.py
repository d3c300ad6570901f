"""A consumer with manual acknowledgements that writes down everything it is given."""

from __future__ import annotations

import random
from typing import Final

from e2e.chaos.client import BROKEN, CHANNEL, ChaosClient, ChaosWorker, describe
from e2e.chaos.cluster import ChaosNode
from e2e.chaos.history import Delivery, History, message_id
from pamqp import commands

PREFETCH: Final = 50
HELD_MAX: Final = 10  # deliveries left unacknowledged before all are acknowledged at once
REQUEUE_RATE: Final = 0.02
IDLE_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 0.1
DELIVERIES_PER_CONNECTION: Final = (300, 3000)


class ChaosConsumer(ChaosWorker):
    """Consumes one queue until told to stop.

    It leaves a connection only when that breaks or after some thousand deliveries, some of which
    are then not acknowledged, and never because nothing comes: deliveries have to resume by
    themselves.

    Attributes:
        queue: what it consumes.
        seen: ids of all messages it got.
        received: how many deliveries it got.
    """

    def __init__(
        self, name: str, nodes: list[ChaosNode], queue: str, history: History, seed: int
    ) -> None:
        super().__init__(name)
        self.seen: set[str] = set()
        self.received = 0
        self._place = "not connected"
        self._nodes = nodes
        self.queue = queue
        self._history = history
        self._random = random.Random(seed)
        self._held = 0
        self._held_tag = 0

    def __str__(self) -> str:
        return f"{self.name} of {self.queue}, {self._place}, {self.received} received"

    def work(self) -> None:
        """Consume over as many connections as it takes."""
        while not self._halt.is_set():
            try:
                with ChaosClient(self._random.choice(self._nodes)) as client:
                    self._place = f"on {client.node}"
                    self._one_connection(client)
            except BROKEN as error:
                self.errors[describe(error)] += 1
                self._place = f"not connected ({type(error).__name__} {error})"
                self._halt.wait(RETRY_SECONDS)

    def _one_connection(self, client: ChaosClient) -> None:
        client.call(commands.Basic.Qos(0, PREFETCH), commands.Basic.QosOk)
        client.call(commands.Basic.Consume(0, self.queue), commands.Basic.ConsumeOk)
        self._held = 0
        left = self._random.randint(*DELIVERIES_PER_CONNECTION)
        while left > 0 and not self._halt.is_set():
            value = client.next(IDLE_SECONDS)
            if isinstance(value, commands.Basic.Deliver):
                self._received(client, value)
                left -= 1
            elif isinstance(value, commands.Basic.Cancel):
                return
            elif value is None:
                self._acknowledge_held(client)
        if self._halt.is_set():
            self._acknowledge_held(client)
            # What was sent before is taken before this is answered.
            client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)

    def _received(self, client: ChaosClient, deliver: commands.Basic.Deliver) -> None:
        message = message_id(client.body())
        redelivered = bool(deliver.redelivered)
        self._history.deliveries.append(Delivery(message, self.queue, self.name, redelivered))
        self.seen.add(message)
        self.received += 1
        tag = deliver.delivery_tag or 0
        choice = self._random.random()
        if choice < REQUEUE_RATE:
            client.send(commands.Basic.Nack(tag, False, True), CHANNEL)
        elif choice < 0.5:
            client.send(commands.Basic.Ack(tag), CHANNEL)
        else:
            self._held += 1
            self._held_tag = tag
            if self._held >= HELD_MAX:
                self._acknowledge_held(client)

    def _acknowledge_held(self, client: ChaosClient) -> None:
        if self._held:
            client.send(commands.Basic.Ack(self._held_tag, True), CHANNEL)
            self._held = 0
