"""One soak: a cluster, clients, faults in turn, and the recording."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from e2e.chaos.client import BROKEN
from e2e.chaos.cluster import HTTP_PORT, ChaosCluster, ChaosNode, NodeEndedError
from e2e.soak.clients import HEALTHY_QUEUE, HealthyClient, Walker, declare_queues
from e2e.soak.recording import BACKUP, CLOCK, DOWN, LINK, Interval, Recording
from e2e.soak.sampler import Sampler, SyncProbe

CLIENT_GRPC_PORT: Final = 20700
NODES: Final = 3
WALKERS: Final = 2
CYCLES: Final = 8  # at least, in a soak that is long enough
CYCLE_SECONDS: Final = (24.0, 600.0)
SAMPLES: Final = 900
CLOCK_MS_MAX: Final = 600_000
LINK_KBIT: Final = (500, 4000)
BACKUP_QUEUES: Final = "^soak-[0-9]*0$"  # every tenth
BACKUP_SECONDS: Final = 300.0
DRAIN_SECONDS: Final = 60.0


class Options(msgspec.Struct, frozen=True):
    """Options of a soak."""

    minutes: float
    queues: int = 10_000
    seed: int = 1

    def command(self) -> str:
        """Return the command that repeats it."""
        size = f"--minutes {self.minutes:g} --queues {self.queues}"
        return f"python -m e2e.soak {size} --seed {self.seed}"


class Soak:
    """Executes one soak in a directory, which is emptied first."""

    def __init__(self, options: Options, directory: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self._directory = directory
        self._say = say
        self._random = random.Random(options.seed)
        self._begun = 0.0
        self._restart = 0.0  # seconds that the last one took
        self._backup: threading.Thread | None = None
        self.recording = Recording(options.command(), options.queues)
        seconds = options.minutes * 60 / CYCLES
        self._cycle = min(max(seconds, CYCLE_SECONDS[0]), CYCLE_SECONDS[1])

    def execute(self) -> Recording:
        """Run it; what goes wrong is among the recording's problems.

        Raises:
            NetworkUnavailableError: network namespaces are impossible here.
        """
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        grpc = f"127.0.0.1:{CLIENT_GRPC_PORT}"
        cluster = ChaosCluster(self._directory / "nodes", NODES, grpc=grpc)
        problems = self.recording.problems
        try:
            with cluster:
                self._declare(cluster)
                self._drive(cluster)
                problems += [f"{name} did not stop in order" for name in cluster.stop()]
        except (NodeEndedError, AssertionError, *BROKEN) as error:
            problems.append(f"{type(error).__name__}: {error}")
        for node in cluster.nodes:
            problems += node.bad_log_lines()
        self.recording.save(self._directory / "recording.json")
        if not problems and not self.recording.missing:
            shutil.rmtree(self._directory / "nodes")
        return self.recording

    def _declare(self, cluster: ChaosCluster) -> None:
        began = time.monotonic()
        names = self._names()
        last = [0]

        def told(count: int) -> None:
            if count - last[0] >= len(names) / 5:
                last[0] = count
                self._say(f"{count} queues after {time.monotonic() - began:.0f} s")

        declare_queues(cluster.nodes[0], [*names, HEALTHY_QUEUE], told)

    def _names(self) -> list[str]:
        return [f"soak-{number}" for number in range(self._options.queues)]

    def _drive(self, cluster: ChaosCluster) -> None:
        self._begun = time.monotonic()
        recording, options = self.recording, self._options
        healthy = HealthyClient(cluster.nodes[0], recording, self._begun)
        walkers = [
            Walker(f"walker-{n}", cluster.nodes, self._names(), options.seed + n, recording)
            for n in range(WALKERS)
        ]
        interval = max(1.0, options.minutes * 60 / SAMPLES)
        workers = (
            Sampler(cluster.nodes, recording, self._begun, interval),
            SyncProbe(self._directory, recording, self._begun),
            healthy,
            *walkers,
        )
        try:
            with contextlib.ExitStack() as working:
                for worker in workers:
                    working.enter_context(worker)
                self._disturb(cluster)
                recording.duration = time.monotonic() - self._begun
                for worker in workers:
                    worker.halt()
        finally:
            recording.duration = recording.duration or time.monotonic() - self._begun
            recording.visits = sum(each.visits for each in walkers)
            healthy.drain(DRAIN_SECONDS)
            recording.confirmed = len(healthy.confirmed)
            recording.missing = len(healthy.confirmed - healthy.delivered)
            recording.invented = len(healthy.delivered - healthy.published)
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError(f"{worker.name}: {worker.failure!r}") from worker.failure
            for text, count in getattr(worker, "errors", {}).items():
                self._say(f"{worker.name}: {count} x {text}")

    def _disturb(self, cluster: ChaosCluster) -> None:
        """Inject faults in turn until the time is up; whole cycles, so it may take a bit longer."""
        turn = 0
        while time.monotonic() - self._begun < self._options.minutes * 60:
            self._healthy_half(cluster, turn)
            self._down_half(cluster, cluster.nodes[1 + turn % (NODES - 1)])
            turn += 1
        if self._backup is not None:
            self._backup.join(BACKUP_SECONDS)

    def _healthy_half(self, cluster: ChaosCluster, turn: int) -> None:
        """Run all nodes: without a fault, with one that kills none of them, and without one."""
        half = self._cycle / 2
        time.sleep(half / 3)
        self._begin_backup(cluster.nodes[0], turn)  # never killed: its API stays
        node = self._random.choice(cluster.nodes)
        if turn % 2 == 0:
            shift = self._random.randint(-CLOCK_MS_MAX, CLOCK_MS_MAX)
            with self._interval(CLOCK, f"{node.name} {shift / 1000:+.0f} s"):
                node.clock.shift(shift)
                time.sleep(half / 3)
                node.clock.shift(0)
        else:
            kbit = self._random.randint(*LINK_KBIT)
            with self._interval(LINK, f"{node.name} {kbit} kbit/s"):
                cluster.network.throttle(node.id, kbit)
                time.sleep(half / 3)
                cluster.network.heal_all()
        time.sleep(half / 3)

    def _down_half(self, cluster: ChaosCluster, node: ChaosNode) -> None:
        """Kill a node; it is down for half a cycle, the time that its restart takes included."""
        with self._interval(DOWN, node.name):
            node.kill()
            time.sleep(max(self._cycle / 6, self._cycle / 2 - self._restart))
            began = time.monotonic()
            cluster.start()
            self._restart = time.monotonic() - began

    @contextlib.contextmanager
    def _interval(self, kind: str, what: str) -> Iterator[None]:
        begin = time.monotonic() - self._begun
        self._say(f"{begin:6.1f} {kind}: {what}")
        try:
            yield
        finally:
            end = time.monotonic() - self._begun
            self.recording.intervals.append(Interval(kind, what, begin, end))

    def _begin_backup(self, node: ChaosNode, turn: int) -> None:
        """Make a backup beside everything else, unless the last one is still being made."""
        if self._backup is None or not self._backup.is_alive():
            self._backup = threading.Thread(target=self._back_up, args=(node, turn), daemon=True)
            self._backup.start()

    def _back_up(self, node: ChaosNode, turn: int) -> None:
        place = str(self._directory / f"backup-{turn}")
        api = ("--api", f"127.0.0.1:{HTTP_PORT}", "--grpc", f"127.0.0.1:{CLIENT_GRPC_PORT}")
        create = ("create", place, "--queues", BACKUP_QUEUES, *api)
        with self._interval(BACKUP, node.name):
            for arguments in (create, ("verify", place)):
                command = [sys.executable, "-P", "-m", "headrace_broker.cli", "backup", *arguments]
                with node.namespace.entered():
                    process = subprocess.Popen(
                        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                    )
                text, _ = process.communicate()
                if process.returncode != 0:
                    self.recording.backups_failed.append(text.strip()[-300:])
                    break
        shutil.rmtree(place, ignore_errors=True)
