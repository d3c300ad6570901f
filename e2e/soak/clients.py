"""Clients of a soak: a healthy one whose latency is measured, and walkers over all queues."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from typing import Any, Final

from e2e.chaos.client import ANSWER_SECONDS, BROKEN, CHANNEL, ChaosClient, ChaosWorker, describe
from e2e.chaos.cluster import ChaosNode
from e2e.soak.recording import Latency, Recording
from pamqp import commands
from pamqp.common import FieldTable

HEALTHY_QUEUE: Final = "soak-healthy"
HEALTHY_INTERVAL: Final = 0.05  # seconds between publishes that are due
WINDOW: Final = 200  # publishes without a confirm
WALK_INTERVAL: Final = 0.01
RETRY_SECONDS: Final = 0.2
BODY_BYTES: Final = 256
GETS_MAX: Final = 3  # a visit: what an earlier one, cut off, left behind goes too
DECLARES_AT_ONCE: Final = 64


class PromptClient(ChaosClient):
    """A client whose small frames do not wait for the peer's delayed acknowledgement."""

    def __init__(self, node: ChaosNode) -> None:
        super().__init__(node)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class HealthyClient(ChaosWorker):
    """Publishes and consumes at one node, at a fixed pace, whether or not confirms come.

    A latency counts from when the publish was due, so a stall is as many late publishes as fell
    due in it.

    Attributes:
        published: numbers of all messages.
        confirmed: those that were confirmed.
        delivered: all numbers that came back.
    """

    def __init__(self, node: ChaosNode, recording: Recording, begun: float) -> None:
        super().__init__("healthy")
        self.published: set[int] = set()
        self.confirmed: set[int] = set()
        self.delivered: set[int] = set()
        self._node = node
        self._recording = recording
        self._begun = begun
        self._due = begun
        self._tag = 0
        self._outstanding: dict[int, tuple[int, float]] = {}  # by tag: number, due

    def work(self) -> None:
        """Publish over as many connections as it takes."""
        while not self._halt.is_set():
            try:
                with PromptClient(self._node) as client:
                    client.call(commands.Basic.Consume(0, HEALTHY_QUEUE), commands.Basic.ConsumeOk)
                    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
                    self._tag = 0
                    while not self._halt.is_set():
                        self._publish(client)
                    self._wait(client, time.monotonic() + ANSWER_SECONDS, 0)
            except BROKEN as error:
                self.errors[describe(error)] += 1
                self._halt.wait(RETRY_SECONDS)
            finally:
                self._give_up()

    def _publish(self, client: ChaosClient) -> None:
        """Publish what is due, and read meanwhile; a full window waits for confirms."""
        self._wait(client, self._due, -1)
        if len(self._outstanding) >= WINDOW:
            self._wait(client, time.monotonic() + ANSWER_SECONDS, WINDOW - 1)
        number = len(self.published)
        self.published.add(number)
        self._tag += 1
        self._outstanding[self._tag] = (number, self._due)
        self._due += HEALTHY_INTERVAL
        client.publish(HEALTHY_QUEUE, b"%d" % number)

    def _wait(self, client: ChaosClient, until: float, most: int) -> None:
        """Read until a time, or until at most so many publishes are without a confirm."""
        while len(self._outstanding) > most:
            left = until - time.monotonic()
            if left <= 0 and most >= 0:
                raise TimeoutError("no confirm")
            if left <= 0:
                return
            self._take(client, client.next(left))

    def _take(self, client: ChaosClient, value: Any) -> None:
        if isinstance(value, commands.Basic.Deliver):
            self.delivered.add(int(client.body()))
            client.send(commands.Basic.Ack(value.delivery_tag or 0), CHANNEL)
        elif isinstance(value, commands.Basic.Ack | commands.Basic.Nack):
            last, confirmed = value.delivery_tag or 0, isinstance(value, commands.Basic.Ack)
            tags = [tag for tag in self._outstanding if tag <= last] if value.multiple else [last]
            for tag in tags:
                self._end(tag, confirmed)

    def _end(self, tag: int, confirmed: bool) -> None:
        number, due = self._outstanding.pop(tag)
        late = time.monotonic() - due
        self._recording.latencies.append(Latency(due - self._begun, late, confirmed))
        if confirmed:
            self.confirmed.add(number)

    def _give_up(self) -> None:
        for tag in list(self._outstanding):
            self._end(tag, confirmed=False)

    def drain(self, wanted_seconds: float) -> None:
        """Take what is left, once it was halted and joined; until all confirmed ones came."""
        deadline = time.monotonic() + wanted_seconds
        while self.confirmed - self.delivered and time.monotonic() < deadline:
            try:
                with PromptClient(self._node) as client:
                    client.call(commands.Basic.Consume(0, HEALTHY_QUEUE), commands.Basic.ConsumeOk)
                    while (value := client.next(1.0)) is not None:
                        self._take(client, value)
            except BROKEN as error:
                self.errors[describe(error)] += 1
                time.sleep(RETRY_SECONDS)


class Walker(ChaosWorker):
    """Visits queues in an order of its own: publishes one message, and takes what is there."""

    def __init__(
        self, name: str, nodes: list[ChaosNode], queues: list[str], seed: int, recording: Recording
    ) -> None:
        super().__init__(name)
        self._nodes = nodes
        self._random = random.Random(seed)
        self._queues = list(queues)
        self._recording = recording
        self.visits = 0

    def work(self) -> None:
        """Walk over as many connections as it takes."""
        while not self._halt.is_set():
            running = [node for node in self._nodes if node.runs] or self._nodes
            try:
                with PromptClient(self._random.choice(running)) as client:
                    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
                    self._random.shuffle(self._queues)
                    for queue in self._queues:
                        self._visit(client, queue)
                        if self._halt.wait(WALK_INTERVAL):
                            return
            except BROKEN as error:
                self.errors[describe(error)] += 1
                self._halt.wait(RETRY_SECONDS)

    def _visit(self, client: ChaosClient, queue: str) -> None:
        client.publish(queue, b"x" * BODY_BYTES)
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            value = client.next(max(0.0, deadline - time.monotonic()))
            if isinstance(value, commands.Basic.Ack):
                self.visits += 1
                break
            if isinstance(value, commands.Basic.Nack):
                return
            if value is None:
                raise TimeoutError("no confirm")
        for _ in range(GETS_MAX):
            client.send(commands.Basic.Get(0, queue), CHANNEL)
            got = client.next(ANSWER_SECONDS)
            if got is None:
                raise TimeoutError("no answer to get")
            if not isinstance(got, commands.Basic.GetOk):
                return
            client.body()
            client.send(commands.Basic.Ack(got.delivery_tag or 0), CHANNEL)


def declare_queues(node: ChaosNode, names: list[str], told: Callable[[int], None]) -> None:
    """Declare quorum queues through one node, many requests at once."""
    with PromptClient(node) as client:
        for first in range(0, len(names), DECLARES_AT_ONCE):
            part = names[first : first + DECLARES_AT_ONCE]
            for name in part:
                arguments: FieldTable = {"x-queue-type": "quorum"}
                client.send(
                    commands.Queue.Declare(0, name, durable=True, arguments=arguments), CHANNEL
                )
            for _ in part:
                answer = client.next(10 * ANSWER_SECONDS)
                assert isinstance(answer, commands.Queue.DeclareOk), answer
            told(first + len(part))
