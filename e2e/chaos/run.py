"""One run: a cluster, clients, a schedule of faults, and the verdict on what the clients saw."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from e2e.chaos.catalog_client import SINK_EXCHANGE, SINK_QUEUE, CatalogClient, Names
from e2e.chaos.checker import Violation, check, summary
from e2e.chaos.client import BROKEN, CHANNEL, ChaosClient
from e2e.chaos.cluster import ChaosCluster, NodeEndedError
from e2e.chaos.consumer import ChaosConsumer
from e2e.chaos.history import Delivery, History, Outcome, message_id
from e2e.chaos.linearizability import Reads
from e2e.chaos.liveness import Liveness, LivenessError
from e2e.chaos.nemesis import Nemesis
from e2e.chaos.publisher import ChaosPublisher
from e2e.chaos.schedule import KINDS, make_schedule
from e2e.harness.worker import Worker
from pamqp import commands

QUEUES: Final = 3
PUBLISHERS: Final = 3
CONSUMERS_PER_QUEUE: Final = 2
CATALOG_CLIENTS_PER_NODE: Final = 2
NAME_SECONDS: Final = 3.0
WARM_UP_SECONDS: Final = 1.0
CATCH_UP_SECONDS: Final = 60.0  # for consumers to get what is confirmed, once publishers stopped
DRAIN_IDLE_SECONDS: Final = 1.0  # without a delivery, after which a queue is looked at
DRAIN_SECONDS: Final = 60.0


class Options(msgspec.Struct, frozen=True):
    """What a run is made of.

    Attributes:
        nodes: how many.
        steps: of the schedule.
        kinds: of steps, see schedule.KINDS.
        reads: how strict looks at the catalog are judged.
        interval: seconds between two messages of a publisher.
    """

    seed: int
    nodes: int = 3
    steps: int = 5
    kinds: tuple[str, ...] = KINDS
    reads: Reads = Reads.STRICT
    interval: float = 0.004

    def command(self) -> str:
        """Return the command that repeats the run (its schedule, not its luck)."""
        kinds = "" if self.kinds == KINDS else f" --kinds {','.join(self.kinds)}"
        return (
            f"python -m e2e.chaos --seed {self.seed} --nodes {self.nodes} --steps {self.steps} "
            f"--reads {self.reads} --interval {self.interval}{kinds}"
        )


class Report(msgspec.Struct, frozen=True):
    """The outcome of a run; nothing went wrong when `violations` is empty."""

    violations: list[Violation]
    text: str


class Run:
    """Executes one run in a directory.

    Args:
        directory: emptied first. Left there: run.txt, history.json, and when something is wrong
            the nodes' directories.
        say: gets each line of run.txt as it is written.
    """

    def __init__(self, options: Options, directory: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._directory = directory
        self._say = say
        self._history = History()
        self._found: list[Violation] = []
        self._lines: list[str] = []
        self._start = time.monotonic()

    def execute(self) -> Report:
        """Run it all.

        Raises:
            NetworkUnavailableError: network namespaces are impossible here.
        """
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._note(self._options.command())
        cluster = ChaosCluster(self._directory / "nodes", self._options.nodes)
        try:
            with cluster:
                self._drive(cluster)
                unclean = cluster.stop()
        except (NodeEndedError, LivenessError, AssertionError) as error:
            self._found.append(Violation(type(error).__name__, str(error)))
        else:
            self._found += [Violation("stop", f"{name} did not stop in order") for name in unclean]
            self._found += check(self._history, self._options.reads)
        for node in cluster.nodes:
            self._found += [Violation("log", line) for line in node.bad_log_lines()]
        return self._finish()

    def _finish(self) -> Report:
        self._note(summary(self._history))
        for each in self._found:
            self._note(f"{each.rule}: {each.text}")
        if self._found:
            self._note(f"logs, data and history are in {self._directory}")
        else:
            shutil.rmtree(self._directory / "nodes")
        self._history.save(self._directory / "history.json")
        (self._directory / "run.txt").write_text("\n".join(self._lines) + "\n")
        return Report(self._found, "\n".join(self._lines))

    def _note(self, text: str) -> None:
        line = f"{time.monotonic() - self._start:6.1f} {text}"
        self._lines.append(line)
        self._say(line)

    def _drive(self, cluster: ChaosCluster) -> None:
        queues = [f"chaos-work-{number}" for number in range(1, QUEUES + 1)]
        self._declare(cluster, queues)
        consumers = self._consumers(cluster, queues)
        with contextlib.ExitStack() as consuming:
            for consumer in consumers:
                consuming.enter_context(consumer)
            with contextlib.ExitStack() as producing:
                workers = [*self._publishers(cluster, queues), *self._catalog_clients(cluster)]
                for worker in workers:
                    producing.enter_context(worker)
                liveness = Liveness(cluster.nodes, queues, consumers, self._history)
                self._break(cluster, queues, liveness, [*workers, *consumers])
                for worker in workers:
                    worker.halt()
            self._note("publishers stopped")
            self._catch_up(consumers)
            self._note("consumers caught up")
        self._note("consumers stopped")
        raise_failures([*workers, *consumers])
        for number, queue in enumerate(queues):
            self._drain(cluster, queue, number)
        self._note("queues drained")

    def _declare(self, cluster: ChaosCluster, queues: list[str]) -> None:
        for number, queue in enumerate([*queues, SINK_QUEUE]):
            with ChaosClient(cluster.nodes[number % len(cluster.nodes)]) as client:
                declare = commands.Queue.Declare(0, queue, durable=True)
                client.call(declare, commands.Queue.DeclareOk)
                exchange = commands.Exchange.Declare(0, SINK_EXCHANGE, "direct", durable=True)
                client.call(exchange, commands.Exchange.DeclareOk)

    def _consumers(self, cluster: ChaosCluster, queues: list[str]) -> list[ChaosConsumer]:
        names = [(queue, n) for queue in queues for n in range(1, CONSUMERS_PER_QUEUE + 1)]
        return [
            ChaosConsumer(
                f"consumer-{queue}-{n}",
                cluster.nodes,
                queue,
                self._history,
                self._options.seed * 1000 + place,
            )
            for place, (queue, n) in enumerate(names)
        ]

    def _publishers(self, cluster: ChaosCluster, queues: list[str]) -> list[ChaosPublisher]:
        return [
            ChaosPublisher(
                f"publisher-{number}",
                cluster.nodes,
                queues,
                self._history,
                self._options.seed * 1000 + 100 + number,
                self._options.interval,
            )
            for number in range(1, PUBLISHERS + 1)
        ]

    def _catalog_clients(self, cluster: ChaosCluster) -> list[CatalogClient]:
        names = Names(NAME_SECONDS)
        places = [(node, n) for node in cluster.nodes for n in range(CATALOG_CLIENTS_PER_NODE)]
        return [
            CatalogClient(
                f"catalog-{node.name}-{n}",
                node,
                names,
                self._history,
                self._options.seed * 1000 + 200 + node.id * 10 + n,
            )
            for node, n in places
        ]

    def _break(
        self, cluster: ChaosCluster, queues: list[str], liveness: Liveness, workers: list[Worker]
    ) -> None:
        nemesis = Nemesis(cluster)
        time.sleep(WARM_UP_SECONDS)
        options = self._options
        steps = make_schedule(options.seed, options.nodes, options.steps, options.kinds)
        for number, step in enumerate(steps):
            meant = nemesis.inject(step, queues[number % len(queues)])
            self._note(f"{step.kind} for {step.hold:.1f} s: {meant}")
            time.sleep(step.hold)
            nemesis.heal()
            if step.settle > 0:
                self._recover(cluster, liveness, workers)
                time.sleep(step.settle)

    def _recover(self, cluster: ChaosCluster, liveness: Liveness, workers: list[Worker]) -> None:
        healed = time.monotonic()
        cluster.wait_ready()
        ready = time.monotonic() - healed
        liveness.probe()
        served = time.monotonic() - healed
        raise_failures(workers)
        cluster.check_alive()
        self._note(f"    healed: ready after {ready:.1f} s, all served after {served:.1f} s")

    def _catch_up(self, consumers: list[ChaosConsumer]) -> None:
        wanted = {each.id for each in self._history.publishes if each.outcome is Outcome.CONFIRMED}
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while time.monotonic() < deadline:
            missing = wanted.difference(*(each.seen for each in consumers))
            if not missing:
                return
            time.sleep(0.2)
        self._note(f"consumers left {len(missing)} confirmed messages to be drained")

    def _drain(self, cluster: ChaosCluster, queue: str, number: int) -> None:
        """Take everything out of a queue, through a node that changes with its number."""
        node = cluster.nodes[(number + 1) % len(cluster.nodes)]
        deadline = time.monotonic() + DRAIN_SECONDS
        left = ""
        while time.monotonic() < deadline:
            with contextlib.suppress(*BROKEN), ChaosClient(node) as client:
                self._take_all(client, queue)
            counts = node.queue_counts(queue)
            if counts == (0, 0):
                return
            left = f"{queue} reports (ready, unacknowledged) {counts} to {node.name}"
        self._found.append(Violation("left-over", left))

    def _take_all(self, client: ChaosClient, queue: str) -> None:
        client.call(commands.Basic.Consume(0, queue), commands.Basic.ConsumeOk)
        while True:
            value = client.next(DRAIN_IDLE_SECONDS)
            if value is None:
                break
            if isinstance(value, commands.Basic.Deliver):
                message = message_id(client.body())
                redelivered = bool(value.redelivered)
                self._history.deliveries.append(Delivery(message, queue, "drain", redelivered))
                client.send(commands.Basic.Ack(value.delivery_tag or 0), CHANNEL)
        client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)


def raise_failures(workers: list[Worker]) -> None:
    """Raise what ended a worker that should still work: a mistake in it, or a wild answer."""
    for worker in workers:
        if worker.failure is not None:
            raise AssertionError(f"{worker.name} failed: {worker.failure!r}") from worker.failure
