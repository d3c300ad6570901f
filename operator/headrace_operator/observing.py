"""Observation of a cluster, as the values that plans are made from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from headrace_operator.broker_api import BrokerApi, BrokerError, each_of
from headrace_operator.builders.cluster import Cluster, ordinal_of
from headrace_operator.connection import is_ready
from headrace_operator.plans.observation import Bounds, BrokerNode, Pod, PodState, Quorum, Waiting
from headrace_operator.plans.observation import Cluster as Seen
from headrace_operator.specs.cluster import BrokerClusterStatus
from headrace_operator.specs.kind import GROUP, is_paused
from headrace_operator.upgrading import ClusterVersion, cluster_version

Manifest = dict[str, Any]
Row = dict[str, Any]

DRAINED_ANNOTATION: Final = f"{GROUP}/drained"  # ordinals of nodes that the operator drains
FORCE_ANNOTATION: Final = f"{GROUP}/force-restart"  # ordinal of the pod that may go whatever it is
REVISION_LABEL: Final = "controller-revision-hash"
LAG_MAX: Final = 1000  # entries of the log that are on their way while much is published
GROUP_SIZE: Final = 3  # replicas of a quorum queue whose declaration says nothing
SIZE_ARGUMENTS: Final = ("x-quorum-target-group-size", "x-quorum-initial-group-size")


class Objects(NamedTuple):
    """Objects of a cluster in the API server.

    Attributes:
        body: the BrokerCluster.
        stateful_set: that of the cluster, None before there is one.
        pods: of it.
        claims: of it.
    """

    body: Manifest
    stateful_set: Manifest | None
    pods: Sequence[Manifest]
    claims: Sequence[Manifest]


class Answers(NamedTuple):
    """Answers of the brokers about themselves.

    Attributes:
        nodes: rows of /api/cluster/nodes.
        details: rows of /api/nodes.
        queues: rows of /api/queues.
        members: of each queue, by vhost and name, as far as they were asked for: what
            /api/queues/V/Q/members answers.
        version: of the cluster, None of brokers of before there was one.
    """

    nodes: Sequence[Row]
    details: Sequence[Row]
    queues: Sequence[Row]
    members: Mapping[tuple[str, str], Row]
    version: ClusterVersion | None = None


async def ask(api: BrokerApi, closely: bool, formed: bool = True) -> Answers | None:
    """Return what the brokers know, None when none of them answers, or knows a majority.

    Args:
        api: of the brokers.
        closely: also ask the leader of each queue whether its replicas have everything.
        formed: the cluster has been founded; before that it knows no users.

    Raises:
        BrokerError: one answers, and refuses.
    """
    try:
        nodes = await api.rows("cluster", "nodes")
        details = await api.rows("nodes")
        queues = await api.rows("queues")
        version = await cluster_version(api)
        members: dict[tuple[str, str], Row] = {}
        if closely:
            names = [(row["vhost"], row["name"]) for row in queues if row["type"] == "quorum"]
            found = await each_of([partial(api.get, "queues", *name, "members") for name in names])
            members = {name: row for name, row in zip(names, found, strict=True) if row}
    except BrokerError as error:
        if error.unreachable or error.status >= 500 or (error.status == 401 and not formed):
            return None
        raise
    return Answers(nodes, details, queues, members, version)


def seen_cluster(
    cluster: Cluster,
    status: BrokerClusterStatus,
    objects: Objects,
    answers: Answers | None,
    wanted: int,
    now: datetime,
) -> Seen:
    """Return what a plan depends on.

    Args:
        cluster: as the builders see it.
        status: of the resource.
        objects: what the API server knows.
        answers: what the brokers know, None when none of them answers.
        wanted: nodes that there are to be.
        now: the time.
    """
    spec = cluster.spec
    annotations = objects.body["metadata"].get("annotations") or {}
    rollout = spec.rollout
    nodes = broker_nodes(cluster, answers) if answers is not None else {}
    return Seen(
        wanted=wanted,
        replicas=cluster.replicas,
        pods=pod_states(objects),
        nodes=nodes,
        quorums=quorums(cluster, answers) if answers is not None else (),
        claims=frozenset([ordinal_of(claim["metadata"]["name"]) for claim in objects.claims]),
        waiting=waiting(status, now),
        bounds=Bounds(rollout.drain_seconds, rollout.catch_up_seconds, rollout.move_seconds),
        drained_by_us=drained_by_us(annotations) & frozenset(nodes),
        answers=answers is not None,
        paused=spec.paused or is_paused(objects.body),
        forced=forced(annotations),
        delete_claims=spec.storage.when_deleted == "Delete" and not spec.storage.ephemeral,
    )


def pod_states(objects: Objects) -> dict[int, Pod]:
    """Return how far the pods are, and whether they are of the wanted template."""
    wanted = ((objects.stateful_set or {}).get("status") or {}).get("updateRevision")
    found = {}
    for pod in objects.pods:
        revision = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL)
        outdated = wanted is not None and revision != wanted
        found[ordinal_of(pod["metadata"]["name"])] = Pod(_state(pod), outdated)
    return found


def _state(pod: Manifest) -> PodState:
    if pod["metadata"].get("deletionTimestamp"):
        return PodState.TERMINATING
    if is_ready(pod):
        return PodState.READY
    phase = (pod.get("status") or {}).get("phase")
    return PodState.RUNNING if phase == "Running" else PodState.PENDING


def broker_nodes(cluster: Cluster, answers: Answers) -> dict[int, BrokerNode]:
    """Return the nodes of the catalog, by ordinal; those that are no pod's are left out."""
    known = _ordinals(cluster, answers)
    lacks = lacking(cluster, answers)
    found = {}
    for row in answers.nodes:
        ordinal = known.get(row["name"])
        if ordinal is not None:
            found[ordinal] = BrokerNode(
                running=row["running"],
                draining=row["being_drained"],
                drained=row["drained"],
                replicas=row["replicas"],
                lacks=len(lacks.get(ordinal, ())),
            )
    return found


def _ordinals(cluster: Cluster, answers: Answers) -> dict[str, int]:
    """Return the ordinals of nodes by their names, and by those of their shards."""
    prefix = f"{cluster.name}-"
    found: dict[str, int] = {}
    for row in answers.nodes:
        number = row["name"].removeprefix(prefix)
        if row["name"].startswith(prefix) and number.isdecimal():
            found |= dict.fromkeys(_shards(row), int(number))
    return found


def _takes(row: Row) -> bool:
    """Return whether a node, or a process of it, may be given replicas."""
    return bool(row["running"]) and not row["being_drained"]


def _shards(row: Row) -> list[str]:
    """Return the names of a node's processes: the first one is called as the node."""
    return [each["name"] for each in row.get("shards") or (row,)]


def quorums(cluster: Cluster, answers: Answers) -> tuple[Quorum, ...]:
    """Return how the replicas of queues and of the catalog stand, those alike taken together."""
    ordinals = _ordinals(cluster, answers)
    known = [row for row in answers.nodes if row["name"] in ordinals]
    running = frozenset([ordinals[row["name"]] for row in known if row["running"]])
    found: dict[tuple[frozenset[int], frozenset[int]], str] = {}
    for row in answers.queues:
        members = answers.members.get((row["vhost"], row["name"]))
        if members is not None:
            voters, current = _voters(members, ordinals)
        else:
            voters = frozenset([ordinals[name] for name in row["members"] if name in ordinals])
            current = voters & running
        found.setdefault((voters, current), f"queue '{row['name']}' in vhost '{row['vhost']}'")
    catalog = _catalog_voters(answers, ordinals) or frozenset(ordinals.values())
    found.setdefault((catalog, catalog & running), "the catalog")
    return tuple([Quorum(voters, current, name) for (voters, current), name in found.items()])


def _voters(members: Row, ordinals: Mapping[str, int]) -> tuple[frozenset[int], frozenset[int]]:
    """Return where the voters of a queue are, and those of them that have everything."""
    rows = [row for row in members["members"] if row["node"] in ordinals]
    voting = [row for row in rows if row["role"] in ("voter", "leaving")]
    current = [row for row in voting if _has_all(row)]
    return (
        frozenset([ordinals[row["node"]] for row in voting]),
        frozenset([ordinals[row["node"]] for row in current]),
    )


def _has_all(row: Row) -> bool:
    """Return whether a replica answers and has everything but entries in flight."""
    lag = row["lag"]
    return bool(row["online"] and not row["fetching"] and lag is not None and lag <= LAG_MAX)


def _catalog_voters(answers: Answers, ordinals: Mapping[str, int]) -> frozenset[int]:
    """Return where the catalog's voters are, as the first node says that knows."""
    for row in answers.details:
        names = [each["node"] for each in row.get("catalog") or [] if each["role"] == "voter"]
        found = frozenset([ordinals[name] for name in names if name in ordinals])
        if found:
            return found
    return frozenset()


def lacking(cluster: Cluster, answers: Answers) -> dict[int, list[tuple[str, str, str]]]:
    """Return which queues are to get a replica where: vhost, name and shard, by a node's ordinal.

    A queue gets its replica on the node that has fewest, so that new nodes fill first, and there
    on the shard that has.
    """
    scaling = cluster.spec.scaling
    if scaling.grow_queues == "None":
        return {}
    pattern, ordinals = re.compile(scaling.queue_pattern), _ordinals(cluster, answers)
    known = {ordinals[row["name"]]: row for row in answers.nodes if row["name"] in ordinals}
    shards = {
        ordinal: {each["name"]: 0 for each in row.get("shards") or (row,) if _takes(each)}
        for ordinal, row in known.items()
    }
    room = {ordinal: row["replicas"] for ordinal, row in known.items() if shards[ordinal]}
    for name in [name for row in answers.queues for name in row["members"] if name in ordinals]:
        if name in shards[ordinals[name]]:
            shards[ordinals[name]][name] += 1
    found: dict[int, list[tuple[str, str, str]]] = {}
    for row in answers.queues:
        if row["type"] != "quorum" or not pattern.search(row["name"]):
            continue
        members = [ordinals[name] for name in row["members"] if name in ordinals]
        free = sorted([each for each in room if each not in members], key=lambda at: room[at])
        missing = group_size(row) - len(row["members"])
        chosen = free if scaling.grow_queues == "All" else free[: max(missing, 0)]
        for ordinal in chosen:
            of_node = shards[ordinal]
            shard = min(of_node, key=of_node.__getitem__)
            found.setdefault(ordinal, []).append((row["vhost"], row["name"], shard))
            room[ordinal] += 1
            of_node[shard] += 1
    return found


def group_size(row: Row) -> int:
    """Return how many replicas a queue was declared with, or its policy says."""
    policy = (row.get("effective_policy_definition") or {}).get("target-group-size")
    if policy is not None:
        return int(policy)
    arguments = row.get("arguments") or {}
    given = [arguments[name] for name in SIZE_ARGUMENTS if name in arguments]
    return int(given[0]) if given else GROUP_SIZE


def waiting(status: BrokerClusterStatus, now: datetime) -> Waiting:
    """Return the last awaited condition and its start time, from the status."""
    step = status.step
    if step is None or not step.since:
        return Waiting()
    return Waiting(step.name, max(0.0, (now - datetime.fromisoformat(step.since)).total_seconds()))


def drained_by_us(annotations: Mapping[str, str]) -> frozenset[int]:
    """Return the ordinals of nodes that the operator has drained, or is about to."""
    text = annotations.get(DRAINED_ANNOTATION) or ""
    return frozenset([int(each) for each in text.split(",") if each.isdecimal()])


def forced(annotations: Mapping[str, str]) -> int | None:
    """Return the ordinal of the pod that a person wants restarted in any case."""
    text = annotations.get(FORCE_ANNOTATION) or ""
    return int(text) if text.isdecimal() else None
