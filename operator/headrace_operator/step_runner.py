"""Steps of a plan, carried out."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from headrace_operator.broker_api import FORGET_SECONDS, BrokerApi, BrokerError, each_of
from headrace_operator.builders.cluster import Cluster
from headrace_operator.connection import node_url
from headrace_operator.observing import (
    DRAINED_ANNOTATION,
    FORCE_ANNOTATION,
    Answers,
    Objects,
    drained_by_us,
    forced,
    lacking,
)
from headrace_operator.operator_context import Operator
from headrace_operator.plans.step import Action, Step
from headrace_operator.specs.kind import BROKER_CLUSTER

# What a node is asked for before a pod goes; it is looked closely first.
CAREFUL: Final = frozenset([Action.DRAIN, Action.RESTART, Action.FORGET, Action.SCALE])


class StepRunner:
    """Carries out the steps of one cluster.

    Args:
        operator: what handlers need.
        cluster: the cluster.
        objects: what the API server knows of it.
        api: of its brokers.
        answers: what they know, None when none of them answers.
    """

    def __init__(
        self,
        operator: Operator,
        cluster: Cluster,
        objects: Objects,
        api: BrokerApi,
        answers: Answers | None,
    ) -> None:
        self._operator = operator
        self._cluster = cluster
        self._objects = objects
        self._api = api
        self._answers = answers

    async def execute(self, step: Step) -> str:
        """Run a step, and return an addition to its reason.

        Raises:
            BrokerError: a node refuses, or none answers.
            KubeError: the API server refuses, or does not answer.
        """
        subject = step.subject
        if step.action is Action.RESTART:
            return await self._restart(subject)
        if step.action is Action.DRAIN:
            # It is noted first: a node that is drained and not noted would stay so.
            await self._note_drained(subject, True)
            await self._api.post(None, "cluster", "nodes", self._cluster.pod(subject), "drain")
        elif step.action is Action.REVIVE:
            await self._api.post(None, "cluster", "nodes", self._cluster.pod(subject), "revive")
            await self._note_drained(subject, False)
        elif step.action is Action.GROW:
            return await self._grow(subject)
        elif step.action is Action.FORGET:
            return await self._forget(subject)
        elif step.action is Action.DELETE_CLAIM:
            name = f"data-{self._cluster.pod(subject)}"
            await self._operator.kube.delete(
                "v1", "PersistentVolumeClaim", self._cluster.namespace, name
            )
        return ""

    async def _restart(self, ordinal: int) -> str:
        pod = self._pod(ordinal)
        if pod is None:
            return ""
        meta = pod["metadata"]
        await self._operator.kube.delete(
            "v1", "Pod", meta["namespace"], meta["name"], meta.get("uid", "")
        )
        annotations = self._objects.body["metadata"].get("annotations") or {}
        if forced(annotations) == ordinal:
            await self._operator.annotate(BROKER_CLUSTER, self._objects.body, FORCE_ANNOTATION, "")
        return ""

    async def _grow(self, ordinal: int) -> str:
        """Give queues a replica; refusals are reported, and the others get theirs."""
        assert self._answers is not None  # a node has said that queues lack replicas
        queues = lacking(self._cluster, self._answers).get(ordinal, [])

        async def add(vhost: str, name: str, shard: str) -> str:
            try:
                await self._api.put(None, "queues", vhost, name, "members", shard)
            except BrokerError as error:
                if error.unreachable:
                    raise
                return str(error)
            return ""

        problems = [
            each for each in await each_of([partial(add, *each) for each in queues]) if each
        ]
        return problems[0] if problems else ""

    async def _forget(self, ordinal: int) -> str:
        pod = self._pod(ordinal)
        api = self._api.without(node_url(pod)) if pod is not None else self._api
        found = await api.delete(
            *("cluster", "nodes", self._cluster.pod(ordinal)),
            query="replicas=move",
            seconds=FORGET_SECONDS,
        )
        if found is None or found["forgotten"]:
            await self._note_drained(ordinal, False)
            return ""
        problems: list[str] = found["problems"]
        return problems[0] if problems else f"{found['replicas']} replicas are on their way"

    async def _note_drained(self, ordinal: int, is_drained: bool) -> None:
        body = self._objects.body
        noted = drained_by_us(body["metadata"].get("annotations") or {})
        wanted = noted | {ordinal} if is_drained else noted - {ordinal}
        if wanted != noted:
            text = ",".join([str(each) for each in sorted(wanted)])
            await self._operator.annotate(BROKER_CLUSTER, body, DRAINED_ANNOTATION, text)

    def _pod(self, ordinal: int) -> dict[str, Any] | None:
        name = self._cluster.pod(ordinal)
        return next((pod for pod in self._objects.pods if pod["metadata"]["name"] == name), None)
