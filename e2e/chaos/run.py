"""One run: a cluster, clients, a schedule of faults, and the verdict on what the clients saw."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from e2e.chaos.catalog_client import SINK_EXCHANGE, SINK_QUEUE
from e2e.chaos.checker import Violation, check, summary
from e2e.chaos.client import BROKEN, ChaosClient
from e2e.chaos.cluster import OWN_PYTHON, ChaosCluster, NodeEndedError
from e2e.chaos.consumer import ChaosConsumer
from e2e.chaos.crew import LATE_QUEUES, Crew
from e2e.chaos.data import QUEUES
from e2e.chaos.drain import drain
from e2e.chaos.history import History, Outcome
from e2e.chaos.linearizability import Reads
from e2e.chaos.liveness import Liveness, LivenessError
from e2e.chaos.nemesis import Nemesis
from e2e.chaos.publisher import DEAD_QUEUE, DELAYED_QUEUE, LETTERS_QUEUE
from e2e.chaos.schedule import KINDS, Step, kinds_of, make_schedule
from e2e.harness.cluster import wait_for
from pamqp import commands
from pamqp.common import FieldTable

WARM_UP_SECONDS: Final = 1.0
CATCH_UP_SECONDS: Final = 60.0  # for consumers to get what is confirmed, once publishers stopped
POLL_SECONDS: Final = 0.1
EXPIRING: Final[FieldTable] = {
    "x-message-ttl": 1000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": DEAD_QUEUE,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


class Options(msgspec.Struct, frozen=True):
    """Options of a run.

    Attributes:
        nodes: how many.
        steps: of the schedule.
        kinds: of steps, see schedule.KINDS.
        reads: how strict looks at the catalog are judged.
        interval: seconds between two messages of a publisher.
        shards: processes of each node.
    """

    seed: int
    nodes: int = 3
    steps: int = 5
    kinds: tuple[str, ...] = KINDS
    reads: Reads = Reads.OWN_ROUTING
    interval: float = 0.004
    shards: int = 1

    def command(self) -> str:
        """Return the command that repeats the run (its schedule, not its luck)."""
        kinds = "" if self.kinds == kinds_of(self.shards) else f" --kinds {','.join(self.kinds)}"
        shards = f" --shards {self.shards}" if self.shards > 1 else ""
        return (
            f"python -m e2e.chaos --seed {self.seed} --nodes {self.nodes} --steps {self.steps} "
            f"--reads {self.reads} --interval {self.interval}{kinds}{shards}"
        )


class Plan(NamedTuple):
    """Steps of a run, and the build that it begins with.

    Attributes:
        steps: in order.
        python: the interpreter in whose environment that build is.
        expected: matches the errors that clients may get; None for any.
    """

    steps: list[Step]
    python: Path = OWN_PYTHON
    expected: re.Pattern[str] | None = None


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
        plan: steps and builds other than those of a run of chaos.
    """

    def __init__(
        self,
        options: Options,
        directory: Path,
        say: Callable[[str], None],
        plan: Plan | None = None,
    ) -> None:
        self._options = options
        self._title = options.command() if plan is None else f"all nodes run {plan.python}"
        self._plan = plan or Plan(
            make_schedule(options.seed, options.nodes, options.steps, options.kinds, options.shards)
        )
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
        self._note(self._title)
        cluster = ChaosCluster(
            self._directory / "nodes", self._options.nodes, shards=self._options.shards
        )
        for node in cluster.nodes:
            node.python = self._plan.python
        try:
            with cluster:
                self._drive(cluster)
                unclean = cluster.stop()
        except (NodeEndedError, AssertionError, *BROKEN) as error:
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
        options = self._options
        crew = Crew(cluster.nodes, queues, self._history, options.seed, options.interval)
        with contextlib.ExitStack() as consuming:
            for consumer in crew.consumers:
                consuming.enter_context(consumer)
            with contextlib.ExitStack() as producing:
                for producer in crew.producers:
                    producing.enter_context(producer)
                self._break(cluster, queues, crew)
                for producer in crew.producers:
                    producer.halt()
            self._catch_up(crew.consumers)
            for consumer in crew.consumers:
                consumer.halt()
        crew.raise_failures()
        for text in crew.errors():
            self._note(f"    {text}")
            if self._plan.expected is not None and not self._plan.expected.search(text):
                self._found.append(Violation("error", text))
        for number, queue in enumerate(queues, 1):
            node = cluster.nodes[number % len(cluster.nodes)]
            left = drain(cluster, node, queue, self._history)
            if left:
                self._found.append(Violation("left-over", left))
        self._collect_late(cluster)
        self._note("queues drained")

    def _collect_late(self, cluster: ChaosCluster) -> None:
        """Wait for dead letters, take them, and count the messages that are still delayed."""
        wait_for(
            "dead letters to arrive", lambda: cluster.queue_figure(LETTERS_QUEUE, "messages") == 0
        )
        self._history.dead_letters[LETTERS_QUEUE] = DEAD_QUEUE
        left = drain(cluster, cluster.nodes[0], DEAD_QUEUE, self._history)
        if left:
            self._found.append(Violation("left-over", left))
        count = wait_for(
            "the count of delayed messages",
            lambda: cluster.queue_figure(DELAYED_QUEUE, "messages_delayed"),
        )
        self._history.delayed[DELAYED_QUEUE] = count
        self._note(f"{count} messages are delayed")

    def _declare(self, cluster: ChaosCluster, queues: list[str]) -> None:
        plain = [*queues, SINK_QUEUE, DELAYED_QUEUE, DEAD_QUEUE, LETTERS_QUEUE]
        for number, queue in enumerate(plain):
            with ChaosClient(cluster.nodes[number % len(cluster.nodes)]) as client:
                declare = commands.Queue.Declare(
                    0, queue, durable=True, arguments=EXPIRING if queue == LETTERS_QUEUE else None
                )
                client.call(declare, commands.Queue.DeclareOk)
                exchange = commands.Exchange.Declare(0, SINK_EXCHANGE, "direct", durable=True)
                client.call(exchange, commands.Exchange.DeclareOk)

    def _break(self, cluster: ChaosCluster, queues: list[str], crew: Crew) -> None:
        """Inject and heal every step of the schedule, up to one that the cluster does not survive.

        What the clients got is worth judging then, too.
        """
        nemesis = Nemesis(cluster)
        liveness = Liveness(cluster.nodes, queues, crew.consumers, self._history)
        time.sleep(WARM_UP_SECONDS)
        try:
            for number, step in enumerate(self._plan.steps):
                meant = nemesis.inject(step, queues[number % len(queues)])
                self._note(f"{step.kind} for {step.hold:.1f} s: {meant}")
                time.sleep(step.hold)
                nemesis.heal()
                if step.settle > 0:
                    self._recover(cluster, liveness, queues)
                    crew.raise_failures()
                    time.sleep(step.settle)
        except LivenessError as error:
            self._found.append(Violation("liveness", str(error)))
        self._note(f"nothing took more than {liveness.attempts_most} attempts once healed")

    def _recover(self, cluster: ChaosCluster, liveness: Liveness, queues: Sequence[str]) -> None:
        healed = time.monotonic()
        cluster.wait_ready()
        ready = time.monotonic() - healed
        liveness.probe()
        served = time.monotonic() - healed
        cluster.wait_whole([*queues, SINK_QUEUE, *LATE_QUEUES, DEAD_QUEUE])
        whole = time.monotonic() - healed
        self._note(
            f"    healed: ready after {ready:.1f} s, all served after {served:.1f} s, "
            f"all replicas vote after {whole:.1f} s"
        )

    def _catch_up(self, consumers: Sequence[ChaosConsumer]) -> None:
        """Let consumers receive confirmed messages; the rest is drained and searched."""
        wanted = {
            each.id
            for each in self._history.publishes
            if each.outcome is Outcome.CONFIRMED and each.queue not in LATE_QUEUES
        }
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while wanted := wanted.difference(*(each.seen for each in consumers)):
            if time.monotonic() > deadline:
                self._note(f"consumers left {len(wanted)} confirmed messages to be drained")
                break
            time.sleep(POLL_SECONDS)
