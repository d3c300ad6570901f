"""Shared state of the scenario's steps: the cluster, the release, the pods and their records."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final

from e2e.kubernetes import record
from e2e.kubernetes.cluster import GROUP, Kubernetes, Manifest, condition, is_settled
from e2e.kubernetes.command import CommandError
from e2e.kubernetes.images import provide
from e2e.kubernetes.record import Record
from e2e.kubernetes.release import (
    Release,
    conflicts,
    definitions,
    has_default_storage,
    resources_of_others,
)
from e2e.kubernetes.settings import Settings
from e2e.kubernetes.workload import (
    CLUSTER,
    COLLECTORS,
    PUBLISHERS,
    Workload,
    collector_name,
    publisher_name,
    topology,
)

BROKER_CLUSTERS: Final = f"brokerclusters.{GROUP}"
BROKERS: Final = f"{GROUP}/cluster={CLUSTER}"  # labels of their pods
CALM_LOOKS: Final = 3  # in a row, at which nothing is under way
CHANGE_SECONDS: Final = 300.0  # for nodes to be restarted one after the other, to come or to go
START_SECONDS: Final = 90.0  # for a pod that is scheduled to a node that has its image
PROGRESS_MESSAGES: Final = 20  # of each publisher that have to be confirmed after a fault


class Scenario:
    """One run.

    Args:
        settings: of the run.

    Attributes:
        kubernetes: the cluster, and the namespace of the run.
        release: of the chart.
        workload: pods that use the brokers.
        is_ephemeral: the brokers have no volumes.
    """

    def __init__(self, settings: Settings) -> None:
        self.kubernetes = Kubernetes(settings, f"headrace-e2e-{secrets.token_hex(3)}")
        there = conflicts(self.kubernetes, settings.scope)
        assert not there, f"in the way of this operator: {', '.join(there[:5])}"
        self.is_ephemeral = settings.storage == "ephemeral" or (
            settings.storage == "auto" and not has_default_storage(self.kubernetes)
        )
        self.had_definitions = definitions(self.kubernetes)
        images = provide(settings)
        self.kubernetes.waiter.begin(settings.minutes)
        self.release = Release(settings, self.kubernetes, images, self.is_ephemeral)
        self.workload = Workload(self.kubernetes.namespace, images[0].name)

    def begin(self) -> None:
        """Create the namespace; unused definitions are updated."""
        self.kubernetes.begin()
        if self.had_definitions and not resources_of_others(self.kubernetes):
            self.release.update_definitions()

    def end(self) -> None:
        """Remove all that the run has made, whatever state it is in.

        What is declared in brokers goes before the operator, which alone can let go of it.
        """
        kubernetes = self.kubernetes
        for resource in [*reversed(topology())]:
            kind = f"{resource['kind'].lower()}.{GROUP}"
            if definitions(kubernetes):
                options = ("--ignore-not-found", "--wait=false")
                kubernetes.delete(kind, resource["metadata"]["name"], options=options)
        self._let_go()
        self.release.uninstall()
        kubernetes.end()
        if not self.had_definitions and definitions(kubernetes):
            kubernetes.delete("customresourcedefinitions", *definitions(kubernetes))

    def _let_go(self) -> None:
        """Remove finalizers that a failed run may have left."""
        kinds = [name for name in definitions(self.kubernetes) if name != BROKER_CLUSTERS]
        for kind in kinds:
            for each in self.kubernetes.items(kind):
                patch: Manifest = {"metadata": {"finalizers": None}}
                self.kubernetes.merge(kind, each["metadata"]["name"], patch)

    # The cluster of brokers

    def cluster(self) -> Manifest:
        """Return the BrokerCluster."""
        return self.kubernetes.there(BROKER_CLUSTERS, CLUSTER)

    def wait_cluster(self, what: str, replicas: int = 3) -> Manifest:
        """Wait until the brokers are as they are wanted, and that many; return the resource.

        The status may be that of a moment ago: pods have to be ready too, at several looks.
        """
        calm = 0

        def found() -> Manifest | None:
            nonlocal calm
            body = self.cluster()
            states = [row["state"] for row in body.get("status", {}).get("nodes", [])]
            is_there = states == ["running"] * replicas and self._ready_pods() == replicas
            calm = calm + 1 if is_there and is_settled(body) else 0
            return body if calm >= CALM_LOOKS else None

        return self.kubernetes.waiter.wait(what, found, CHANGE_SECONDS)

    def _ready_pods(self) -> int:
        rows = self.kubernetes.items("pods", BROKERS)
        return sum(condition(row, "Ready").get("status") == "True" for row in rows)

    def broker_pods(self) -> dict[str, str]:
        """Return the uids of the brokers' pods by their names."""
        rows = self.kubernetes.items("pods", BROKERS)
        return {str(row["metadata"]["name"]): str(row["metadata"]["uid"]) for row in rows}

    # Pods that use them

    def record(self, pod: str) -> Record:
        """Return what a pod wrote."""
        return record.read(self.kubernetes.kubectl("logs", pod))

    def published(self, protocol: str) -> Record:
        """Return what became of what a publisher published."""
        return self.record(publisher_name(protocol))

    def confirmed(self) -> set[int]:
        """Return the numbers that were confirmed, to either publisher."""
        return {number for each in PUBLISHERS for number in self.published(each).of("confirmed")}

    def wait_progress(self, seconds: float = START_SECONDS) -> None:
        """Wait until more is confirmed to each publisher than is now."""
        before = {each: len(self.published(each).of("confirmed")) for each in PUBLISHERS}

        def more() -> bool:
            counts = {each: len(self.published(each).of("confirmed")) for each in PUBLISHERS}
            return all(counts[each] >= before[each] + PROGRESS_MESSAGES for each in PUBLISHERS)

        self.kubernetes.waiter.wait("confirms over both protocols", more, seconds)

    def stop_publishers(self) -> None:
        """End publishers, after the confirms of what they sent."""
        program = "open('/tmp/stop', 'w').close()"
        for protocol in PUBLISHERS:
            pod = publisher_name(protocol)
            self.kubernetes.kubectl("exec", pod, "--", "python3", "-c", program)
        for protocol in PUBLISHERS:
            self.kubernetes.waiter.wait(
                f"the end of the publisher over {protocol}",
                partial(self._has_ended, protocol),
                START_SECONDS,
            )

    def _has_ended(self, protocol: str) -> bool:
        return self.published(protocol).has_ended

    def collect(self, queue: str, wanted: set[int], seconds: float) -> set[int]:
        """Take all that is in a queue; return the wanted numbers that did not come in time."""
        self.kubernetes.apply(self.workload.collector(queue))
        pod, missing = collector_name(queue), wanted

        def all_seen() -> bool:
            nonlocal missing
            missing = wanted - self.record(pod).of("seen")
            return not missing

        try:
            what = f"{len(wanted)} messages of queue {queue} over {COLLECTORS[queue]}"
            self.kubernetes.waiter.wait(what, all_seen, seconds)
        except AssertionError as error:
            print(f"    {error}", flush=True)
        return missing

    def removed(self) -> None:
        """Delete the pods that use the brokers."""
        names = [publisher_name(each) for each in PUBLISHERS]
        names += [collector_name(each) for each in COLLECTORS]
        self.kubernetes.delete("pods", *names, options=("--ignore-not-found",))

    def description(self) -> str:
        """Return what tells why a step failed."""
        try:
            return self.kubernetes.description()
        except CommandError as error:
            return str(error)
