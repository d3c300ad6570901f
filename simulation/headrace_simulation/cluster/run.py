"""One run: a cluster is founded, works while things go wrong, recovers, and is drained."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, final

from headrace_broker.model.reply_code import AmqpError
from headrace_simulation.cluster import stdlib
from headrace_simulation.cluster.broker_cluster import BrokerCluster
from headrace_simulation.cluster.clients import Site
from headrace_simulation.cluster.gate import ClientGate
from headrace_simulation.cluster.leases import Sink
from headrace_simulation.cluster.nemesis import Nemesis
from headrace_simulation.cluster.profiles import Profile
from headrace_simulation.cluster.remains import REQUEST_WINDOWS, remains, too_many
from headrace_simulation.cluster.replicas import Replicas
from headrace_simulation.cluster.shard_administration import add, move_off
from headrace_simulation.cluster.software import HEAD, Software
from headrace_simulation.cluster.watch import Watch
from headrace_simulation.cluster.world import NS, SimulationError, World

QUEUES: Final = ("q0", "q1")
EXPIRING: Final = "qt"  # what stays there for long is dropped
TTL_MS: Final = 600_000  # longer than any run lasts
AGING: Final = "limit.age"  # nobody consumes from it until it is drained
AGE_MS: Final = 3_000
AGE_S_MAX: Final = 13.0  # with what queues' time may differ from that of the world
SHORT: Final = "limit.length"  # likewise
LENGTH: Final = 20
TRYING: Final = "limit.tries"  # what failed too often goes to DEAD
TRIES: Final = 2
FLOODED: Final = "limit.flow"  # confirms are deferred, as consumers come now and then
WATERMARK: Final = 12
REST_S: Final = 15.0  # between two consumers, at most, where queues are to fill
DELAYED: Final = "delayed"
LEASED: Final = "lease.long"  # no lease of it expires within a run
RETURNING: Final = "lease.short"
REJECTING: Final = "qd"  # what is rejected there goes to DEAD
DEAD: Final = "dead"
FOUND_S: Final = 15.0  # within which a new cluster works
RECOVER_S: Final = 45.0  # after the last fault, within which all nodes work
CONFIRM_S: Final = 60.0  # within which everything published is answered then
DRAIN_S: Final = 60.0  # within which all queues are empty
STEP_S: Final = 0.25
UPGRADED: Final = 0.5  # share of runs with releases in which the upgrade is ended


@dataclass
class Outcome:
    """Result of a run."""

    seed: int
    profile: str
    problem: str = ""  # "" where all went well
    digest: str = ""
    confirms: int = 0
    deliveries: int = 0
    seconds: float = 0.0  # of the world
    turns: int = 0
    faults: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # why nodes ended by themselves


@final
class Run:
    """A run of one seed."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        builds: tuple[Software, ...],
        show: Callable[[str], None] | None = None,
    ) -> None:
        self.world = World(seed, show)
        stdlib.enter(self.world)
        self.profile = profile
        size = (profile.nodes, builds, profile.snapshot_bytes, profile.shards)
        self.cluster = BrokerCluster(self.world, *size)
        self.cluster.on_site = self._on_site
        self.nemesis = Nemesis(self.cluster, profile.kinds, profile.at_once, profile.gap_s)
        self.watch = Watch(self.cluster, self.nemesis)
        self.replicas = Replicas(self.cluster, self.nemesis)
        self.cluster.wanted.consume_s = profile.consume_s
        self.cluster.wanted.publish_s = profile.publish_s
        self.cluster.wanted.large = profile.large
        self.cluster.history.targets[REJECTING] = DEAD
        self._is_ready = False
        self._limited: tuple[str, ...] = ()
        if profile.limits:
            self._limited = (AGING, SHORT, TRYING, FLOODED)
            self.cluster.history.ttl_ns[AGING] = int(AGE_S_MAX * NS)
            self.cluster.history.lengths[SHORT] = LENGTH
            self.cluster.history.tries[TRYING] = TRIES
            self.cluster.history.watermarks[FLOODED] = WATERMARK
            self.cluster.history.targets[TRYING] = DEAD

        self._delayed = (DELAYED,) if profile.leases else ()
        self._sinks: tuple[Sink, ...] = ()
        if profile.leases:
            self.cluster.history.delayed.add(DELAYED)
            self._sinks = (
                Sink(self.cluster.history, LEASED, expires=False),
                Sink(self.cluster.history, RETURNING, expires=True),
            )

    def run(self) -> Outcome:
        """Run it all."""
        outcome = Outcome(self.world.seed, self.profile.name)
        try:
            self._run()
        except SimulationError as error:
            outcome.problem = str(error)
        except Exception:  # noqa: BLE001  (outermost: a seed that fails, whatever raised)
            outcome.problem = traceback.format_exc()
        history = self.cluster.history
        outcome.digest = self.world.trace.digest()
        outcome.confirms, outcome.deliveries = history.confirms, history.deliveries
        outcome.seconds, outcome.turns = self.world.now_ns / NS, self.world.turns
        outcome.faults = self.nemesis.begun
        outcome.ends = [f"n{node}: {error!r}" for node, error in self.cluster.fatal]
        return outcome

    def _run(self) -> None:
        cluster = self.cluster
        cluster.start()
        self._wait("found the cluster", FOUND_S, self._has_joined)
        self._declare()
        self._wait("declare queues", FOUND_S, lambda: self._is_ready)
        for site in cluster.sites.values():
            self._work_at(site)
        self._pass(2.0)
        self.watch.start()
        self.replicas.start()
        self.nemesis.run(self.profile.seconds)
        self._pass(self.profile.seconds + 0.001)
        if len(cluster.builds) > 1 and self.world.rng.random() < UPGRADED:
            self._upgrade()
        self._wait("have all nodes back", RECOVER_S, self._has_joined)
        if self.profile.shards > 1:
            self.watch.placing.check_use()
        cluster.wanted.publishes = False
        self._wait("answer all publishes", CONFIRM_S, self._is_answered)
        cluster.wanted.consumes = False
        cluster.wanted.drains = True
        for site in cluster.sites.values():
            self._drain_at(site)
        self._wait("drain all queues", DRAIN_S, self._is_drained)
        self._pass(2.0)
        self.cluster.history.check_lengths()
        if self.profile.backups and not self.cluster.history.backups:
            raise SimulationError("no backup with a message came to its end")
        self._check_debts()
        self._check_remains()
        self._pass(0)

    def _upgrade(self) -> None:
        """End the upgrade of all nodes, after which none can be taken back, and work on."""
        cluster = self.cluster
        for number in cluster.machines:
            if cluster.software[number] is HEAD:
                continue
            self.nemesis.disturbed(number)
            cluster.kill(number)
            cluster.software[number] = HEAD
            cluster.machines[number].start()
            self._wait("have all nodes back", RECOVER_S, self._has_joined)
            self.nemesis.disturbed(number)
        self._wait("have all nodes back", RECOVER_S, self._has_joined)
        ended: list[int] = []

        async def end() -> None:
            while not ended:
                try:
                    ended.append(await cluster.sites[1].node.operations.raise_version())
                except AmqpError as error:  # not all nodes are known to be of the head yet
                    cluster.sites[1].process.note(f"upgrade: {error.text}")
                    await asyncio.sleep(0.5)

        cluster.spawn(cluster.sites[1], end())
        self._wait("end the upgrade", FOUND_S, lambda: bool(ended))
        self._pass(5.0)

    def _check_debts(self) -> None:
        """Publishers owe nothing once all publishes are answered."""
        for number, site in self.cluster.sites.items():
            for name, account in site.node.ledger.accounts.items():
                if account.messages or account.byte_count:
                    raise SimulationError(
                        f"n{number}: {name} owes {account.messages} messages, "
                        f"{account.byte_count} bytes, and nothing is under way"
                    )

    def _check_remains(self) -> None:
        """Nodes hold nothing that grows with the work that they have done."""
        for number, site in self.cluster.sites.items():
            if self.cluster.software_at(site) is not HEAD:
                continue  # a release is not counted: nothing of it can be mended
            windows = REQUEST_WINDOWS if self.profile.shards > 1 else {}
            found = too_many(remains(site.node), windows)
            if found:
                raise SimulationError(f"n{number} still holds {found}, and nothing is under way")

    def _pass(self, seconds: float) -> None:
        """Let time pass; raise what nobody caught."""
        self.world.run(seconds)
        if self.cluster.history.problem:
            raise SimulationError(self.cluster.history.problem)
        if self.cluster.errors:
            raise SimulationError(
                "".join(traceback.format_exception(self.cluster.errors[0])).strip()
            )

    def _wait(self, what: str, seconds: float, condition: Callable[[], bool]) -> None:
        until = self.world.now_ns + int(seconds * NS)
        while not condition():
            if self.world.now_ns >= until:
                raise SimulationError(f"it takes more than {seconds} s to {what}{self._why()}")
            self._pass(STEP_S)

    def _why(self) -> str:
        lost = self.cluster.history.lost()
        missing = ", ".join(f"{m.body[:24]!r} of {m.queue}" for m in lost[:5])
        joined = sorted(self.cluster.sites)
        return f"; joined: {joined}; {len(lost)} confirmed messages were not delivered: {missing}"

    def _has_joined(self) -> bool:
        return len(self.cluster.sites) == len(self.cluster.machines) and all(
            is_done() for is_done in self.cluster.done
        )

    def _is_answered(self) -> bool:
        return self._has_joined() and not any(
            task.get_name() == "publisher"
            for site in self.cluster.sites.values()
            for task in site.tasks
        )

    def _is_drained(self) -> bool:
        return not self.cluster.history.lost()

    def _declare(self) -> None:
        site = self.cluster.sites[1]
        declare = self.cluster.software_at(site).declare

        async def work() -> None:
            for name in (*QUEUES, DEAD):
                await declare(site, name)
            await declare(site, EXPIRING, **{"x-message-ttl": TTL_MS})
            arguments: dict[str, object] = {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": DEAD,
            }
            arguments["x-dead-letter-strategy"] = "at-least-once"
            arguments["x-overflow"] = "reject-publish"
            await declare(site, REJECTING, **arguments)
            arguments["x-delivery-limit"] = TRIES
            if self._limited:
                await declare(site, AGING, **{"x-message-ttl": AGE_MS})
                await declare(site, SHORT, **{"x-max-length": LENGTH})
                await declare(site, TRYING, **arguments)
                await declare(site, FLOODED, **{"x-high-watermark": WATERMARK})
            for name in (*self._delayed, *(sink.queue for sink in self._sinks)):
                await declare(site, name)
            self._is_ready = True

        self.cluster.spawn(site, work())

    def _on_site(self, number: int, site: Site) -> None:
        if self.profile.drains:
            site.node.maintenance.opened(ClientGate(site, partial(self._reopened, number)))
        self._begin_at(site)

    def _reopened(self, number: int, site: Site) -> None:
        self.cluster.sites[number] = site
        self._begin_at(site)

    def _begin_at(self, site: Site) -> None:
        if self._is_ready:
            self._work_at(site)
            if self.cluster.wanted.drains:
                self._drain_at(site)

    def _work_at(self, site: Site) -> None:
        pause_s, build = self.profile.pause_s, self.cluster.software_at(site)
        leased = [sink.queue for sink in self._sinks]
        for queue in (*QUEUES, EXPIRING, REJECTING, *self._limited, *self._delayed, *leased):
            self.cluster.spawn(site, build.publish_on(site, queue, pause_s), "publisher")
        for queue in (*QUEUES, REJECTING, DEAD, *self._limited[2:], *self._delayed):
            rejects = {REJECTING: 0.2, TRYING: 0.6}.get(queue, 0.0)
            rests = queue == FLOODED or (self.profile.backups and queue in QUEUES)
            rest_s = REST_S if rests else 0.0
            work = build.consume_on(site, queue, drains=False, rejects=rejects, rest_s=rest_s)
            self.cluster.spawn(site, work)
        for sink in self._sinks:
            self.cluster.spawn(site, build.lease_from(site, sink))
        if self.profile.backups:
            for queue in (*QUEUES, EXPIRING, REJECTING):
                self.cluster.spawn(site, build.back_up_from(site, queue))
        if self.profile.moves:
            more = (move_off, add) if self.profile.shards > 1 else ()
            self.cluster.spawn(site, build.administer(site, QUEUES, more))

    def _drain_at(self, site: Site) -> None:
        build = self.cluster.software_at(site)
        for queue in (*QUEUES, EXPIRING, REJECTING, DEAD, *self._limited, *self._delayed):
            self.cluster.spawn(site, build.consume_on(site, queue, drains=True))
