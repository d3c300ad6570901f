"""`ConsumerScaler`: more consumers while queues fill, fewer once they are empty."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from headrace_operator.specs.field import (
    IMMUTABLE,
    LIST_MAX,
    AmqpName,
    ClusterReference,
    ObjectName,
    Rule,
    Spec,
    keyed,
)
from headrace_operator.specs.status import Status, Timestamp

REPLICAS_MAX = 10_000
DECISIONS_MAX = 10  # that the status remembers

Replicas = Annotated[int, Meta(ge=0, le=REPLICAS_MAX)]
WindowSeconds = Annotated[int, Meta(ge=0, le=3600)]


class Target(Spec, frozen=True, kw_only=True):
    """Scale target, in the namespace of the resource.

    Attributes:
        kind: what it is.
        name: of it.
    """

    kind: Literal["Deployment", "StatefulSet"] = "Deployment"
    name: ObjectName


class QueueReference(Spec, frozen=True, kw_only=True):
    """A queue in the broker.

    Attributes:
        vhost: where.
        name: of the queue.
    """

    vhost: AmqpName = "/"
    name: AmqpName


class AlarmReaction(Spec, frozen=True, kw_only=True):
    """Reaction to an alarm of the cluster.

    Attributes:
        paging: of stage 1, when bodies leave memory: Proportional raises the number of consumers
            with the backlog, as if half as much were allowed for each.
        blocked: of stage 2, when publishers are blocked: Step adds `step` at once, Max goes to
            `maxReplicas`.
    """

    paging: Literal["Ignore", "Proportional"] = "Proportional"
    blocked: Literal["Ignore", "Step", "Max"] = "Step"


class Stabilization(Spec, frozen=True, kw_only=True):
    """Rate of changes of the number of consumers: never twice within one window.

    Attributes:
        scale_up_seconds: between two changes upwards.
        scale_down_seconds: the highest number wanted within so long counts, before it goes down.
        cooldown_seconds: after the end of an alarm, before it goes down.
    """

    scale_up_seconds: WindowSeconds = 15
    scale_down_seconds: WindowSeconds = 300
    cooldown_seconds: WindowSeconds = 300


class ConsumerScalerSpec(Spec, frozen=True, kw_only=True):
    """Consumers of a queue, and their allowed number.

    Attributes:
        cluster_ref: the cluster that the queues are in.
        target_ref: what is scaled. It must have no HorizontalPodAutoscaler of its replicas.
        queues: that it consumes.
        min_replicas: consumers that there are at least.
        max_replicas: consumers that there are at most.
        step: by so many the number changes at most at once; for alarms, by which it rises.
        backlog_per_consumer: messages that wait for which one consumer is thought enough.
        alarm_reaction: what an alarm of the cluster leads to.
        stabilization: how often the number may change.
        use_advice: whether the pipeline's advice counts while it is valid.
        paused: whether decisions are only told and not carried out.
    """

    RULES = (
        Rule("self.minReplicas <= self.maxReplicas", "minReplicas must not exceed maxReplicas"),
    )

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    target_ref: Annotated[Target, IMMUTABLE]
    queues: Annotated[
        list[QueueReference], keyed("vhost", "name"), Meta(min_length=1, max_length=LIST_MAX)
    ]
    min_replicas: Replicas = 1
    max_replicas: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = 10
    step: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = 2
    backlog_per_consumer: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1000
    alarm_reaction: AlarmReaction = AlarmReaction()
    stabilization: Stabilization = Stabilization()
    use_advice: bool = True
    paused: bool = False


class Decision(Spec, frozen=True, kw_only=True):
    """One decision, and the figures that led to it.

    Attributes:
        at: when.
        before: replicas that there were.
        after: replicas that were asked for.
        reason: Backlog, AlarmStage1, AlarmStage2, Advice, Idle, Bounds.
        backlog: messages that waited.
        alarm_stage: 0 for none.
        advised: consumers that the pipeline advised.
        message: a sentence for people.
    """

    at: Timestamp
    before: Replicas
    after: Replicas
    reason: Annotated[str, Meta(max_length=64)]
    backlog: Annotated[int, Meta(ge=0)] = 0
    alarm_stage: Annotated[int, Meta(ge=0, le=2)] = 0
    advised: Replicas | None = None
    message: Annotated[str, Meta(max_length=1024)] = ""


class Wish(Spec, frozen=True, kw_only=True):
    """Wanted number of consumers at a time.

    Attributes:
        at: when.
        replicas: how many.
    """

    at: Timestamp
    replicas: Replicas


class ConsumerScalerStatus(Status, frozen=True, kw_only=True):
    """State of a consumer scaler.

    Attributes:
        replicas: of the target.
        desired_replicas: that were asked for last.
        backlog: messages that wait in the queues.
        alarm_stage: of the cluster, 0 for none.
        alarm_cleared_at: when the last alarm was over.
        last_scale_time: of the last change.
        decisions: the last ones, the newest first.
        wanted: what was wanted within the window for scaling down.
    """

    replicas: Replicas | None = None
    desired_replicas: Replicas | None = None
    backlog: Annotated[int, Meta(ge=0)] | None = None
    alarm_stage: Annotated[int, Meta(ge=0, le=2)] = 0
    alarm_cleared_at: Timestamp | None = None
    last_scale_time: Timestamp | None = None
    decisions: Annotated[list[Decision], Meta(max_length=DECISIONS_MAX)] = field(
        default_factory=list
    )
    wanted: Annotated[list[Wish], Meta(max_length=LIST_MAX)] = field(default_factory=list)
