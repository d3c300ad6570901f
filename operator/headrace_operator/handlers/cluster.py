"""`BrokerCluster`: applied, observed, and changed one step at a time.

All that is remembered between two steps stands in the resource: founders and the step that is
waited for in its status, nodes that the operator has drained in an annotation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from headrace_operator.administrator import Administrators
from headrace_operator.alarm_watch import AlarmWatches
from headrace_operator.applying import Applied, Applier, claim_size
from headrace_operator.broker_api import BrokerApi, BrokerError
from headrace_operator.builders.cluster import Cluster
from headrace_operator.builders.container import is_proof_required, shards_of
from headrace_operator.connection import connect, is_ready, node_target, ports_of
from headrace_operator.flow_limiting import keep_limits
from headrace_operator.handlers.cluster_status import Report, cluster_status
from headrace_operator.observing import Answers, Objects, seen_cluster
from headrace_operator.operator_context import Operator
from headrace_operator.plans.cluster_plan import next_step
from headrace_operator.plans.observation import Cluster as Seen
from headrace_operator.plans.step import Action, Step
from headrace_operator.reconciler import NEVER, Key
from headrace_operator.shard_count import ports_fit, shard_count, shards_problem
from headrace_operator.specs.cluster import NODES_MAX, BrokerClusterSpec, BrokerClusterStatus
from headrace_operator.specs.kind import BROKER_CLUSTER, is_paused
from headrace_operator.specs.status import DEGRADED, READY
from headrace_operator.status_patch import MESSAGE_MAX, conditions_of
from headrace_operator.step_runner import CAREFUL, StepRunner
from headrace_operator.upgrading import finish_upgrade

_STILL: Final = frozenset([Action.NOTHING, Action.WAIT])


class View(NamedTuple):
    """A look at a cluster.

    Attributes:
        cluster: as the builders see it.
        objects: what the API server knows.
        api: of its brokers.
        answers: what they know, None when none of them answers.
        seen: what plans are made from.
    """

    cluster: Cluster
    objects: Objects
    api: BrokerApi
    answers: Answers | None
    seen: Seen


class ClusterHandler:
    """Reconciles clusters.

    Args:
        operator: what handlers need.
        watches: by which alarms are followed.
    """

    def __init__(self, operator: Operator, watches: AlarmWatches) -> None:
        self._operator = operator
        self._watches = watches
        self._applier = Applier(operator)
        self._administrators = Administrators()

    async def reconcile(self, key: Key) -> float:
        """Bring a cluster one step further; return the seconds until the next look.

        Raises:
            KubeError: the API server refuses, or does not answer.
            BrokerError: a node refuses what it is asked.
        """
        body = await self._operator.resource(BROKER_CLUSTER, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            # Everything belongs to the resource, and Kubernetes deletes it together with it.
            return NEVER
        spec, status = read(body)
        objects = await self._objects(body)
        status = await self._founded(objects, spec, status)
        cluster = self._cluster(objects, spec, status)
        paused = spec.paused or is_paused(body)
        applied = Applied(list(status.certificates), [], "")
        if not paused:
            applied, objects = await self._apply(cluster, objects)
        if not applied.problem:
            problem = shards_problem(spec, cluster.shards)
            applied = applied._replace(problem=problem, reason="Shards" if problem else "")
        held = applied.lacks_secret or not ports_fit(spec, cluster.shards)
        view = await self._view(cluster, status, objects, held, False)
        status = await self._formed(view, status)
        self._follow(key, view)
        step = self._decide(view)
        if step.action in CAREFUL:
            view = await self._view(cluster, status, objects, held, True)
            step = self._decide(view)
        return await self._proceed(view, status, applied, step)

    async def fail(self, key: Key, error: Exception) -> None:
        """Say in the status that a look has failed."""
        body = await self._operator.resource(BROKER_CLUSTER, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return
        status = msgspec.convert(body.get("status") or {}, BrokerClusterStatus)
        generation, now = body["metadata"].get("generation", 0), self._operator.now()
        found = msgspec.to_builtins(status)
        ready = next((each for each in status.conditions if each.type == READY), None)
        message = str(error) or type(error).__name__
        reason = "Refused" if isinstance(error, BrokerError) else "Failed"
        conditions = conditions_of(
            list(status.conditions),
            now,
            generation,
            (ready is not None and ready.status == "True", "AsBefore", message),
            (True, "Retrying", message),
            (True, reason, message),
        )
        found["conditions"] = msgspec.to_builtins(conditions)
        before = next((each for each in status.conditions if each.type == DEGRADED), None)
        told = (reason, message[:MESSAGE_MAX])
        if before is None or (before.reason, before.message) != told:
            self._operator.post_event(body, reason, message, warning=True)
        await self._operator.write_status(BROKER_CLUSTER, body, found)

    def forget(self, key: Key) -> None:
        """Forget the state of a deleted cluster."""
        self._applier.forget(key)
        self._administrators.forget(key)
        self._watches.forget(key)

    async def _founded(
        self, objects: Objects, spec: BrokerClusterSpec, status: BrokerClusterStatus
    ) -> BrokerClusterStatus:
        """Note with how many nodes a cluster is founded, before there is any of them."""
        if status.founders is not None:
            return status
        body, has_data = objects.body, bool(objects.stateful_set or objects.claims)
        status = msgspec.structs.replace(status, shards=shards_of(objects.stateful_set))
        shards = shard_count(spec, status, has_data)
        status = msgspec.structs.replace(status, founders=spec.replicas, shards=shards)
        await self._operator.write_status(BROKER_CLUSTER, body, msgspec.to_builtins(status))
        self._operator.post_event(
            body, "Founding", f"a cluster of {spec.replicas} nodes is founded"
        )
        return status

    async def _objects(self, body: dict[str, Any]) -> Objects:
        meta, kube = body["metadata"], self._operator.kube
        namespace, name = meta["namespace"], meta["name"]
        stateful_set = await kube.get("apps/v1", "StatefulSet", namespace, name)
        selector = Cluster(name, namespace, "", BrokerClusterSpec(), "", 1, 1).selector
        pods = await kube.select("v1", "Pod", namespace, selector)
        claims = await kube.select("v1", "PersistentVolumeClaim", namespace, selector)
        return Objects(body, stateful_set, pods, claims)

    def _cluster(
        self, objects: Objects, spec: BrokerClusterSpec, status: BrokerClusterStatus
    ) -> Cluster:
        meta, founders = objects.body["metadata"], status.founders or spec.replicas
        there = ((objects.stateful_set or {}).get("spec") or {}).get("replicas")
        replicas = there if there is not None else founders
        shards = shard_count(spec, status, True)
        nodes = max(replicas, min(spec.replicas, NODES_MAX // shards))
        return Cluster(
            meta["name"],
            meta["namespace"],
            meta["uid"],
            spec,
            self._operator.settings.broker_image,
            replicas,
            nodes if status.formed else founders,
            claim_size(objects.stateful_set),
            is_proof_required(objects.stateful_set, objects.pods),
            shards,
        )

    async def _apply(self, cluster: Cluster, objects: Objects) -> tuple[Applied, Objects]:
        """Apply the objects of the cluster; return them."""
        applied = await self._applier.secrets(cluster)
        for news in applied.news:
            self._operator.post_event(objects.body, "Certificates", news)
        if not applied.problem:
            if await self._applier.manifests(cluster):
                objects = await self._objects(objects.body)
            grown = await self._applier.volumes(cluster, objects.claims)
            if grown:
                text = f"volumes grow to {cluster.spec.storage.size}: {', '.join(grown)}"
                self._operator.post_event(objects.body, "VolumesGrow", text)
            missing = self._applier.refused(Key(cluster.namespace, cluster.name))
            if missing:
                applied = applied._replace(problem=missing, reason="MonitorMissing")
        return applied, objects

    async def _view(
        self,
        cluster: Cluster,
        status: BrokerClusterStatus,
        objects: Objects,
        held: bool,
        closely: bool,
    ) -> View:
        api = await connect(self._operator, cluster, objects.pods)
        key = Key(cluster.namespace, cluster.name)
        answers = await self._administrators.ask(key, api, closely, status.formed)
        founders = status.founders or cluster.spec.replicas
        most = min(cluster.spec.replicas, NODES_MAX // cluster.shards)
        wanted = most if status.formed else founders
        if held:
            wanted = cluster.replicas  # manifests are not applied: neither more nodes nor fewer
        now = self._operator.now()
        seen = seen_cluster(cluster, status, objects, answers, wanted, now)
        return View(cluster, objects, api, answers, seen)

    async def _formed(self, view: View, status: BrokerClusterStatus) -> BrokerClusterStatus:
        """Note that a cluster has been founded: its catalog knows all founders."""
        if status.formed or view.answers is None:
            return status
        known = {row["name"] for row in view.answers.nodes}
        founders = {view.cluster.pod(ordinal) for ordinal in range(status.founders or 0)}
        if not founders <= known:
            return status
        status = msgspec.structs.replace(status, formed=True)
        body = view.objects.body
        await self._operator.write_status(BROKER_CLUSTER, body, msgspec.to_builtins(status))
        self._operator.post_event(body, "Founded", f"the cluster has {len(known)} nodes")
        return status

    def _follow(self, key: Key, view: View) -> None:
        """Follow alarms through a node that is ready; over TLS they are only asked for."""
        if view.answers is None:
            return
        ready = [pod for pod in view.objects.pods if is_ready(pod) and "grpc" in ports_of(pod)]
        if ready:
            target = node_target(ready[0], "grpc")
            self._watches.follow(key, target, view.api.login)

    def _decide(self, view: View) -> Step:
        """Return the next step, or wait for the controller of StatefulSets to have seen ours."""
        found = view.objects.stateful_set
        if found is None:
            return Step(Action.WAIT, -1, "the StatefulSet has been made", "StatefulSet")
        generation = found["metadata"].get("generation", 0)
        if (found.get("status") or {}).get("observedGeneration", 0) < generation:
            text = "the StatefulSet's controller has not seen its last change"
            return Step(Action.WAIT, -1, text, "StatefulSet")
        return next_step(view.seen)

    async def _proceed(
        self, view: View, status: BrokerClusterStatus, applied: Applied, step: Step
    ) -> float:
        """Record the next step, run it, and report."""
        body, now = view.objects.body, self._operator.now()
        await self._write(view, status, applied, step, now)
        if step.action not in _STILL:
            self._operator.metrics.count("steps", "action", str(step.action))
            if status.step is None or status.step.message != step.reason[:MESSAGE_MAX]:
                self._operator.post_event(body, str(step.action), step.reason)
            carrier = StepRunner(self._operator, view.cluster, view.objects, view.api, view.answers)
            if step.action is Action.SCALE:
                nodes = max(view.cluster.nodes, step.subject)
                await self._applier.manifests(
                    view.cluster._replace(replicas=step.subject, nodes=nodes)
                )
            else:
                more = await carrier.execute(step)
                if more:
                    self._operator.post_event(body, f"{step.action}Unfinished", more, warning=True)
        elif not view.seen.paused and view.answers is not None:
            await keep_limits(self._operator, body, view.cluster, view.api)
            if step.action is Action.NOTHING:
                version = view.answers.version
                await finish_upgrade(self._operator, body, view.cluster, view.api, version)
        settings = self._operator.settings
        is_calm = step.action is Action.NOTHING
        return settings.resync_seconds if is_calm else settings.step_seconds

    async def _write(
        self, view: View, status: BrokerClusterStatus, applied: Applied, step: Step, now: datetime
    ) -> None:
        report = Report(view.cluster, view.objects, view.answers, view.seen, applied, step)
        found = cluster_status(report, status, now)
        body = view.objects.body
        before = {(each.type, each.status, each.reason) for each in status.conditions}
        for each in found.conditions:
            is_new = (each.type, each.status, each.reason) not in before
            if each.type == DEGRADED and each.status == "True" and is_new:
                self._operator.post_event(body, each.reason, each.message, warning=True)
        await self._operator.write_status(BROKER_CLUSTER, body, msgspec.to_builtins(found))


def read(body: dict[str, Any]) -> tuple[BrokerClusterSpec, BrokerClusterStatus]:
    """Return spec and status of a BrokerCluster.

    Raises:
        msgspec.ValidationError: it is none; the API server lets no such one in.
    """
    spec = msgspec.convert(body["spec"], BrokerClusterSpec)
    return spec, msgspec.convert(body.get("status") or {}, BrokerClusterStatus)
