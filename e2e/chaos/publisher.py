"""A publisher that wanders between the nodes and believes nothing but confirms."""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from typing import Any, Final

from e2e.chaos.client import ANSWER_SECONDS, BROKEN, ChaosClient, ChaosWorker, describe
from e2e.chaos.cluster import ChaosNode
from e2e.chaos.history import History, Outcome, Publish, message_body
from pamqp import commands

DELAYED_QUEUE: Final = "chaos-delayed"  # its messages wait until after the end
DELAY_MS: Final = 6 * 3_600_000  # more than clocks jump
LETTERS_QUEUE: Final = "chaos-letters"  # its messages expire and go to the next one
DEAD_QUEUE: Final = "chaos-dead"
WINDOW: Final = 64  # unconfirmed publishes allowed
SIZES: Final = (60, 200, 1024, 8192)  # bytes of a body
RETRY_SECONDS: Final = 0.1


class ChaosPublisher(ChaosWorker):
    """Publishes to several queues in turn until told to stop.

    Args:
        name: unique among publishers.
        interval: seconds between publishes.
    """

    def __init__(
        self,
        name: str,
        nodes: list[ChaosNode],
        queues: list[str],
        history: History,
        seed: int,
        interval: float,
    ) -> None:
        super().__init__(name)
        self._nodes = nodes
        self._queues = queues
        self._history = history
        self._random = random.Random(seed)
        self._interval = interval
        self._channel = 0
        self._tag = 0
        self._outstanding: OrderedDict[int, Publish] = OrderedDict()

    def work(self) -> None:
        """Publish over as many connections as it takes."""
        while not self._halt.is_set():
            self._outstanding.clear()  # these stay unknown for ever
            try:
                with ChaosClient(self._random.choice(self._nodes)) as client:
                    self._one_connection(client)
            except BROKEN as error:
                self.errors[describe(error)] += 1
                self._halt.wait(RETRY_SECONDS)

    def _one_connection(self, client: ChaosClient) -> None:
        client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        self._channel += 1
        self._tag = 0
        for number in range(self._random.randint(100, 2000)):
            if self._halt.is_set():
                break
            self._publish(client, number)
            self._listen(client, self._interval)
            self._wait_outstanding(client, WINDOW - 1)
        self._wait_outstanding(client, 0)

    def _publish(self, client: ChaosClient, number: int) -> None:
        message = f"{self.name}-{self._channel}-{number}"
        queue = self._queues[number % len(self._queues)]
        attempt = Publish(message, queue, self.name, self._channel, number)
        self._history.publishes.append(attempt)
        self._tag += 1
        self._outstanding[self._tag] = attempt
        delay_ms = DELAY_MS if queue == DELAYED_QUEUE else 0
        client.publish(queue, message_body(message, self._random.choice(SIZES)), delay_ms=delay_ms)

    def _listen(self, client: ChaosClient, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            value = client.next(max(0.0, deadline - time.monotonic()))
            if value is None:
                return
            self._answered(value)

    def _wait_outstanding(self, client: ChaosClient, count: int) -> None:
        while len(self._outstanding) > count:
            value = client.next(ANSWER_SECONDS)
            if value is None:
                raise TimeoutError(f"{client.node} confirms nothing")
            self._answered(value)

    def _answered(self, value: Any) -> None:
        if not isinstance(value, commands.Basic.Ack | commands.Basic.Nack):
            return
        acked = isinstance(value, commands.Basic.Ack)
        outcome = Outcome.CONFIRMED if acked else Outcome.REJECTED
        if not value.multiple:
            self._outstanding.pop(value.delivery_tag).outcome = outcome
            return
        while self._outstanding and next(iter(self._outstanding)) <= value.delivery_tag:
            self._outstanding.popitem(last=False)[1].outcome = outcome
