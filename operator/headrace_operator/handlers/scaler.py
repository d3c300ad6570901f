"""`ConsumerScaler`: scales consumers by backlogs, alarms and advice.

What decisions depend on is kept in the status, so that an operator that is started anew goes on
where the other one was. A decision is written down before it is carried out: a change that nobody
remembers could be made twice within one window.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from headrace_operator.broker_api import BrokerApi, each_of
from headrace_operator.cluster_finder import ClusterFinder, failure_reason
from headrace_operator.handlers.cluster_status import alarm_stage
from headrace_operator.kube_api import object_path
from headrace_operator.operator_context import Operator
from headrace_operator.plans.scaler_plan import STAGE_BLOCKED, Load, Memory, Verdict, decide
from headrace_operator.reconciler import NEVER, Key
from headrace_operator.specs.field import LIST_MAX
from headrace_operator.specs.kind import CONSUMER_SCALER, is_paused
from headrace_operator.specs.scaler import (
    DECISIONS_MAX,
    ConsumerScalerSpec,
    ConsumerScalerStatus,
    Decision,
    Wish,
)
from headrace_operator.status_patch import MESSAGE_MAX, conditions_of, timestamp

WRITE_SECONDS: Final = 10.0  # between two writes of a status in which only figures change
APPS: Final = "apps/v1"
ADVISED: Final = "consumers"  # the kind of advice that is about their number

Told = tuple[bool, str, str]


class ScalerHandler:
    """Reconciles scalers."""

    def __init__(self, operator: Operator, ways: ClusterFinder) -> None:
        self._operator = operator
        self._ways = ways
        self._memories: dict[Key, Memory] = {}
        self._written: dict[Key, float] = {}  # when the status was

    def forget(self, key: Key) -> None:
        """Forget the state of a deleted scaler."""
        self._memories.pop(key, None)
        self._written.pop(key, None)

    async def reconcile(self, key: Key) -> float:
        """Decide and scale; return the seconds until the next look.

        Raises:
            KubeError: the API server refuses, or does not answer.
            BrokerError: a node refuses, or none answers.
            ClusterUnreachableError: the cluster is not to be reached.
        """
        body = await self._operator.resource(CONSUMER_SCALER, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return NEVER
        spec = msgspec.convert(body["spec"], ConsumerScalerSpec)
        status = msgspec.convert(body.get("status") or {}, ConsumerScalerStatus)
        settings = self._operator.settings
        problem = await self._problem(spec, key.namespace)
        path = self._scale_path(spec, key.namespace)
        scale = await self._operator.kube.fetch(path) if not problem else {}
        way = await self._ways.find(body["spec"]["clusterRef"], key.namespace)
        now = self._operator.now()
        replicas = int((scale.get("spec") or {}).get("replicas") or 0)
        load = await seen_load(way.api, spec, replicas, now)
        if problem:
            told = (True, *problem)
            await self._write(body, status, load, None, told)
            return settings.resync_seconds
        memory = self._memories.get(key) or remembered(status)
        verdict = decide(spec, load, memory)
        paused = spec.paused or is_paused(body)
        if paused:
            kept = verdict.memory._replace(changed_at=memory.changed_at)
            verdict = verdict._replace(memory=kept)
        self._memories[key] = verdict.memory
        changes = verdict.replicas != load.replicas and not paused
        await self._write(body, status, load, verdict, (False, "AsExpected", ""), changes, paused)
        if changes:
            self._operator.post_event(body, verdict.reason, verdict.message)
            self._operator.metrics.count("scalings", "reason", verdict.reason)
            await self._operator.kube.merge(path, {"spec": {"replicas": verdict.replicas}})
        return settings.step_seconds

    async def fail(self, key: Key, error: Exception) -> None:
        """Say in the status that a look has failed; consumers stay as they are."""
        body = await self._operator.resource(CONSUMER_SCALER, *key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return
        status = msgspec.convert(body.get("status") or {}, ConsumerScalerStatus)
        message = str(error) or type(error).__name__
        reason = failure_reason(error)
        before = {(each.type, each.reason) for each in status.conditions}
        if ("Degraded", reason) not in before:
            self._operator.post_event(body, reason, message, warning=True)
        await self._write(body, status, None, None, (True, reason, message))

    async def _problem(self, spec: ConsumerScalerSpec, namespace: str) -> tuple[str, str] | None:
        """Return why the target is not to be scaled: reason and sentence."""
        kube, target = self._operator.kube, spec.target_ref
        if await kube.get(APPS, target.kind, namespace, target.name) is None:
            return "TargetMissing", f"{target.kind} {target.name} is not there"
        for each in await kube.select("autoscaling/v2", "HorizontalPodAutoscaler", namespace):
            of = (each.get("spec") or {}).get("scaleTargetRef") or {}
            if (of.get("kind"), of.get("name")) == (target.kind, target.name):
                name = each["metadata"]["name"]
                text = f"HorizontalPodAutoscaler {name} scales {target.kind} {target.name} too"
                return "OtherAutoscaler", text
        return None

    def _scale_path(self, spec: ConsumerScalerSpec, namespace: str) -> str:
        target = spec.target_ref
        return object_path(APPS, target.kind, namespace, target.name, "scale")

    async def _write(
        self,
        body: dict[str, Any],
        before: ConsumerScalerStatus,
        load: Load | None,
        verdict: Verdict | None,
        degraded: Told,
        changes: bool = False,
        paused: bool = False,
    ) -> None:
        """Write the status, not at every look where only figures have changed."""
        meta, now = body["metadata"], self._operator.now()
        key = Key(meta["namespace"], meta["name"])
        status = scaler_status(body, before, load, verdict, degraded, changes, paused, now)
        stage_changes = status.alarm_stage != before.alarm_stage
        alike = [_essence(each) for each in (status, before)]
        is_due = now.timestamp() - self._written.get(key, 0.0) >= WRITE_SECONDS
        if changes or stage_changes or is_due or alike[0] != alike[1]:
            self._written[key] = now.timestamp()
            await self._operator.write_status(CONSUMER_SCALER, body, msgspec.to_builtins(status))


def _essence(status: ConsumerScalerStatus) -> object:
    rows = [(each.type, each.status, each.reason) for each in status.conditions]
    return status.observed_generation, status.replicas, rows


async def seen_load(api: BrokerApi, spec: ConsumerScalerSpec, replicas: int, now: datetime) -> Load:
    """Return what decisions are made from.

    Raises:
        BrokerError: a node refuses, or none answers.
    """
    names = [(each.vhost, each.name) for each in spec.queues]
    rows = await each_of([partial(api.get, "queues", *name) for name in names])
    backlog = sum(row.get("messages_ready") or 0 for row in rows if row is not None)
    nodes = await api.rows("nodes")
    stages = [STAGE_BLOCKED if row.get("disk_free_alarm") else alarm_stage(row) for row in nodes]
    advised = await _advised(api, names) if spec.use_advice else None
    return Load(now.timestamp(), replicas, backlog, max(stages, default=0), advised)


async def _advised(api: BrokerApi, names: list[tuple[str, str]]) -> int | None:
    """Return how many consumers are advised for all queues together, None for no advice."""
    found: list[int] = []
    for vhost, name in names:
        query = urlencode({"vhost": vhost, "queue": name})
        rows = await api.request("GET", f"/api/flow/advice?{query}") or []
        values = [int(row["value"]) for row in rows if row["kind"] == ADVISED]
        found += [max(values)] if values else []
    return sum(found) if found else None


def remembered(status: ConsumerScalerStatus) -> Memory:
    """Return what the status remembers for decisions."""
    return Memory(
        changed_at=_unix(status.last_scale_time),
        alarm_seen_at=_unix(status.alarm_cleared_at),
        wishes=tuple([(_unix(each.at) or 0.0, each.replicas) for each in status.wanted]),
    )


def _unix(time: str | None) -> float | None:
    return datetime.fromisoformat(time).timestamp() if time else None


def _text(time: float | None) -> str | None:
    return timestamp(datetime.fromtimestamp(time, UTC)) if time is not None else None


def scaler_status(
    body: dict[str, Any],
    before: ConsumerScalerStatus,
    load: Load | None,
    verdict: Verdict | None,
    degraded: Told,
    changes: bool,
    paused: bool,
    now: datetime,
) -> ConsumerScalerStatus:
    """Return the status; unknown parts keep their values."""
    generation = body["metadata"].get("generation", 0)
    is_well = not degraded[0]
    message = verdict.message if verdict is not None else degraded[2]
    ready = (is_well, "Decides" if is_well else degraded[1], message)
    reason = "Paused" if paused else (verdict.reason if verdict and changes else "Steady")
    conditions = conditions_of(
        list(before.conditions), now, generation, ready, (changes, reason, message), degraded
    )
    fields: dict[str, Any] = {"observed_generation": generation, "conditions": conditions}
    if load is not None:
        fields |= {"backlog": load.backlog, "alarm_stage": load.alarm_stage}
        fields["replicas"] = load.replicas
    if verdict is not None and load is not None:
        memory = verdict.memory
        fields |= {
            "desired_replicas": verdict.replicas if not paused else load.replicas,
            "alarm_cleared_at": _text(memory.alarm_seen_at),
            "last_scale_time": _text(memory.changed_at),
            "wanted": [Wish(at=_text(at) or "", replicas=n) for at, n in memory.wishes][-LIST_MAX:],
        }
        if changes:
            decision = Decision(
                at=timestamp(now),
                before=load.replicas,
                after=verdict.replicas,
                reason=verdict.reason,
                backlog=load.backlog,
                alarm_stage=load.alarm_stage,
                advised=load.advised,
                message=verdict.message[:MESSAGE_MAX],
            )
            fields["decisions"] = [decision, *before.decisions][:DECISIONS_MAX]
    return msgspec.structs.replace(before, **fields)
