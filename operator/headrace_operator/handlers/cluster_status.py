"""The status of a BrokerCluster, from the observation and the next step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from headrace_operator.applying import Applied
from headrace_operator.builders.cluster import CONFIG_HASH_ANNOTATION, Cluster, node_id
from headrace_operator.connection import is_ready
from headrace_operator.observing import Answers, Objects
from headrace_operator.plans.observation import Cluster as Seen
from headrace_operator.plans.step import Action, Step
from headrace_operator.specs.cluster import AlarmStatus, BrokerClusterStatus, NodeStatus, StepStatus
from headrace_operator.status_patch import MESSAGE_MAX, conditions_of, timestamp

Row = dict[str, Any]
Told = tuple[bool, str, str]  # of a condition: whether it holds, a reason, a sentence


class Report(NamedTuple):
    """Result of a reconcile.

    Attributes:
        cluster: as the builders see it.
        objects: what the API server knows.
        answers: what the brokers know, None when none of them answers.
        seen: what the step was decided from.
        applied: what has become of what the cluster is made of.
        step: what is done next.
    """

    cluster: Cluster
    objects: Objects
    answers: Answers | None
    seen: Seen
    applied: Applied
    step: Step


def cluster_status(
    report: Report, before: BrokerClusterStatus, now: datetime
) -> BrokerClusterStatus:
    """Return the status."""
    cluster, objects, step = report.cluster, report.objects, report.step
    generation = objects.body["metadata"].get("generation", 0)
    known = {row["name"]: row for row in (report.answers.nodes if report.answers else ())}
    details = {row["name"]: row for row in (report.answers.details if report.answers else ())}
    ready, progressing, degraded = _conditions(report)
    return BrokerClusterStatus(
        observed_generation=generation,
        conditions=conditions_of(
            list(before.conditions), now, generation, ready, progressing, degraded
        ),
        replicas=len(objects.pods),
        ready_replicas=sum(is_ready(pod) for pod in objects.pods),
        selector=cluster.selector_text,
        founders=before.founders,
        shards=cluster.shards,
        formed=before.formed,
        version=_version(details) or before.version,
        cluster_version=_cluster_version(report, before),
        nodes=_nodes(report, known) if report.answers else before.nodes,
        alarms=_alarms(details, before, now) if report.answers else before.alarms,
        step=_step(step, before, now),
        certificates=report.applied.certificates,
        default_user_secret=cluster.default_user_secret,
        client_service=cluster.client_service,
    )


def _cluster_version(report: Report, before: BrokerClusterStatus) -> int | None:
    answers = report.answers
    if answers is None or answers.version is None:
        return before.cluster_version
    return answers.version.version


def _conditions(report: Report) -> tuple[Told, Told, Told]:
    seen, step, problem = report.seen, report.step, report.applied.problem
    well = sum(seen.is_well(ordinal) for ordinal in range(seen.wanted))
    serves = f"{well} of {seen.wanted} nodes serve"
    all_serve = well == seen.wanted
    ready = (all_serve, "NodesServe" if all_serve else "NodesMissing", serves)
    if seen.paused:
        return ready, (False, "Paused", "paused: nothing is changed"), (False, "Paused", "")
    is_still = step.action is Action.NOTHING
    progressing = (not is_still, "AsWanted" if is_still else str(step.action), step.reason)
    degraded = (step.overdue, "Overdue", step.reason) if step.overdue else (False, "AsExpected", "")
    if problem:
        degraded = (True, report.applied.reason, problem)
    return ready, progressing, degraded


def _step(step: Step, before: BrokerClusterStatus, now: datetime) -> StepStatus | None:
    """Return the step; an unchanged one keeps its start time."""
    if step.action is Action.NOTHING:
        return None
    name = step.what or str(step.action)
    old = before.step
    since = old.since if old is not None and old.name == name else timestamp(now)
    return StepStatus(name=name, since=since, message=step.reason[:MESSAGE_MAX])


def _nodes(report: Report, known: Mapping[str, Row]) -> list[NodeStatus]:
    cluster = report.cluster
    pods = {pod["metadata"]["name"]: pod for pod in report.objects.pods}
    found = []
    for ordinal in range(max(cluster.nodes, cluster.replicas)):
        name = cluster.pod(ordinal)
        row, pod = known.get(name), pods.get(name)
        annotations = (pod or {}).get("metadata", {}).get("annotations") or {}
        found.append(
            NodeStatus(
                name=name,
                id=node_id(ordinal),
                state=_state(row),
                ready=pod is not None and is_ready(pod),
                config=annotations.get(CONFIG_HASH_ANNOTATION, ""),
                queues_led=(row or {}).get("leaders") or 0,
                replicas=(row or {}).get("replicas") or 0,
            )
        )
    return found


def _state(row: Row | None) -> str:
    if row is None:
        return "unknown"
    if not row["running"]:
        return "down"
    return "draining" if row["being_drained"] else "running"


def _alarms(
    details: Mapping[str, Row], before: BrokerClusterStatus, now: datetime
) -> list[AlarmStatus]:
    """Return the alarms that are on, since when as before."""
    since = {(each.node, each.resource): each.since for each in before.alarms}
    found = []
    for name, row in sorted(details.items()):
        stage = alarm_stage(row)
        if stage:
            text = f"{row.get('mem_used')} of {row.get('mem_limit')} bytes are used"
            at = since.get((name, "memory")) or timestamp(now)
            found.append(
                AlarmStatus(node=name, resource="memory", stage=stage, since=at, message=text)
            )
        if row.get("disk_free_alarm"):
            text = f"{row.get('disk_free')} bytes are free"
            at = since.get((name, "disk")) or timestamp(now)
            found.append(AlarmStatus(node=name, resource="disk", stage=2, since=at, message=text))
    return found


def alarm_stage(row: Row) -> int:
    """Return the stage of a node's memory alarm, 0 for none."""
    return min(int(row.get("mem_stage") or 0), 2)


def _version(details: Mapping[str, Row]) -> str | None:
    found = {row["version"] for row in details.values() if row.get("version")}
    return ", ".join(sorted(found))[:64] or None
