"""Service of a healed cluster: every process of every node, every queue, waiting consumers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from e2e.chaos.client import ANSWER_SECONDS, BROKEN, ChaosClient
from e2e.chaos.cluster import ChaosNode
from e2e.chaos.consumer import ChaosConsumer
from e2e.chaos.history import History, Outcome, Publish, message_body
from pamqp import commands

ATTEMPTS_MAX: Final = 5  # attempts of one thing at one node after everything is healed
ATTEMPT_PAUSE_SECONDS: Final = 0.5
ARRIVAL_SECONDS: Final = 30.0  # until a consumer that waits has got a message
PROBE_BYTES: Final = 60
CONNECTIONS_MAX: Final = 64  # one of two processes gets none of them once in 2**64 times
POLL_SECONDS: Final = 0.05


class LivenessError(Exception):
    """A healed cluster did not meet the bounds above."""


def client_of(node: ChaosNode, process: str) -> ChaosClient:
    """Connect to one process of a node; the kernel chooses which one each connection gets.

    Raises:
        EOFError: it got none of many.
    """
    for _ in range(CONNECTIONS_MAX):
        client = ChaosClient(node)
        if client.node == process:
            return client
        client.close()
    raise EOFError(f"{process} got none of {CONNECTIONS_MAX} connections")


class Liveness:
    """Probes of a cluster without faults.

    Attributes:
        attempts_most: the most attempts that anything took.
    """

    def __init__(
        self,
        nodes: list[ChaosNode],
        queues: list[str],
        consumers: Sequence[ChaosConsumer],
        history: History,
    ) -> None:
        self.attempts_most = 0
        self._nodes = nodes
        self._queues = queues
        self._consumers = consumers
        self._history = history
        self._number = itertools.count(1)

    def probe(self) -> None:
        """Publish to every queue and declare through every node, and see that it arrives.

        Raises:
            LivenessError: naming what did not work.
        """
        sent: list[Publish] = []
        received = {each: each.received for each in self._consumers}
        for node in self._nodes:
            for process in node.processes:
                reach = partial(client_of, node, process)
                self._attempt(f"{process}: declare", partial(self._declare, reach))
                for queue in self._queues:
                    what = f"{process}: publish to {queue}"
                    self._attempt(what, partial(self._publish, reach, queue, sent))
        deadline = time.monotonic() + ARRIVAL_SECONDS
        for each in sent:
            self._wait_arrival(each, deadline)
        for consumer, count in received.items():
            self._wait_served(consumer, count, deadline)

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        reasons: list[str] = []
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self.attempts_most = max(self.attempts_most, attempt)
            try:
                return action()
            except BROKEN as error:
                reasons.append(f"{type(error).__name__} {error}")
                time.sleep(ATTEMPT_PAUSE_SECONDS)
        raise LivenessError(f"{what} failed {ATTEMPTS_MAX} times: {'; '.join(reasons)}")

    def _declare(self, reach: Callable[[], ChaosClient]) -> None:
        with reach() as client:
            name = f"chaos-probe-{client.node}"
            declare = commands.Queue.Declare(0, name, durable=True)
            client.call(declare, commands.Queue.DeclareOk)

    def _publish(self, reach: Callable[[], ChaosClient], queue: str, sent: list[Publish]) -> None:
        number = next(self._number)
        attempt = Publish(f"probe-{number}", queue, "probe", number, 0)
        self._history.publishes.append(attempt)
        with reach() as client:
            client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            client.publish(queue, message_body(attempt.id, PROBE_BYTES))
            answer = client.next(ANSWER_SECONDS)
            if not isinstance(answer, commands.Basic.Ack):
                raise TimeoutError(f"instead of a confirm came {answer}")
        attempt.outcome = Outcome.CONFIRMED
        sent.append(attempt)

    def _wait_arrival(self, sent: Publish, deadline: float) -> None:
        takers = [each for each in self._consumers if each.queue == sent.queue]
        while not any(sent.id in each.seen for each in takers):
            if time.monotonic() > deadline:
                raise LivenessError(
                    f"{sent.id} was confirmed by {sent.queue} and reached none of its consumers "
                    f"in {ARRIVAL_SECONDS:.0f} s: {', '.join(map(str, takers))}"
                )
            time.sleep(POLL_SECONDS)

    def _wait_served(self, consumer: ChaosConsumer, count: int, deadline: float) -> None:
        """Wait until a consumer got something; publishers keep its queue from running empty."""
        while consumer.received == count:
            if time.monotonic() > deadline:
                raise LivenessError(f"{consumer} got nothing for {ARRIVAL_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
