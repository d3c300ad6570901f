"""`Policy`: settings for the queues and exchanges of a vhost whose names match a pattern."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from headrace_operator.specs.field import (
    IMMUTABLE,
    INTEGER_MAX,
    AmqpName,
    ClusterReference,
    DeletionPolicy,
    RegularExpression,
    Rule,
    Spec,
)

TTL_MS_MAX = 315_360_000_000
DEDUPLICATION_SIZE_MAX = 1 << 20
ARCHIVE_MESSAGES_MAX = 1 << 23

Name = Annotated[str, Meta(max_length=255)]
Quantity = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Duration = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
SomeDuration = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]


class PolicyDefinition(Spec, frozen=True, kw_only=True, rename="kebab"):
    """Definition of a policy, by the broker's names; a test compares both.

    Other names are passed on as they are, for brokers that know more: what the broker refuses is
    said in the status.

    Attributes:
        expires: milliseconds without use after which a queue is deleted.
        message_ttl: milliseconds that a message waits at most.
        max_length: messages that wait at most.
        max_length_bytes: bytes of bodies that wait at most.
        overflow: what happens past that.
        delivery_limit: failed deliveries that a message survives; a negative number for any.
        dead_letter_exchange: where rejected, expired, dropped and exhausted messages go.
        dead_letter_routing_key: with which routing key.
        dead_letter_strategy: at-least-once needs overflow reject-publish.
        consumer_timeout: milliseconds that a delivery stays unsettled at most.
        delayed_retry_type: which messages that come back wait.
        delayed_retry_min: milliseconds, times the number of tries.
        delayed_retry_max: milliseconds at most.
        queue_leader_locator: where the first leader is.
        target_group_size: replicas that a quorum queue is to have.
        fairness_key: header by whose values messages take turns.
        message_deduplication: whether publishes are recognised as repeated.
        deduplication_size: identifiers that are remembered.
        deduplication_ttl: milliseconds for which.
        publisher_retention: milliseconds for which the numbers of a publisher are remembered.
        archive: what is kept of messages that are settled.
        archive_max_messages: that an archive holds.
        archive_max_bytes: likewise, bytes of bodies.
        archive_max_age: milliseconds that it keeps them.
        high_watermark_bytes: bytes of bodies from which confirms are deferred.
        low_watermark_bytes: bytes at which they are given again.
        high_watermark: the same in messages.
        low_watermark: likewise.
        allow_immediate: whether publishes may be immediate.
        alternate_exchange: of exchanges, where messages go that nothing is bound for.
    """

    OPEN: ClassVar[bool] = True

    expires: Annotated[int, Meta(ge=1, le=TTL_MS_MAX)] | None = None
    message_ttl: Annotated[int, Meta(ge=0, le=TTL_MS_MAX)] | None = None
    max_length: Quantity | None = None
    max_length_bytes: Quantity | None = None
    overflow: Literal["drop-head", "reject-publish", "reject-publish-dlx"] | None = None
    delivery_limit: Annotated[int, Meta(ge=-2_147_483_647, le=2_147_483_647)] | None = None
    dead_letter_exchange: Name | None = None
    dead_letter_routing_key: Name | None = None
    dead_letter_strategy: Literal["at-most-once", "at-least-once"] | None = None
    consumer_timeout: Duration | None = None
    delayed_retry_type: Literal["disabled", "all", "failed", "returned"] | None = None
    delayed_retry_min: SomeDuration | None = None
    delayed_retry_max: SomeDuration | None = None
    queue_leader_locator: Literal["client-local", "balanced", "random", "least-leaders"] | None = (
        None
    )
    target_group_size: Annotated[int, Meta(ge=1, le=7)] | None = None
    fairness_key: AmqpName | None = None
    message_deduplication: bool | None = None
    deduplication_size: Annotated[int, Meta(ge=1, le=DEDUPLICATION_SIZE_MAX)] | None = None
    deduplication_ttl: SomeDuration | None = None
    publisher_retention: Duration | None = None
    archive: Literal["none", "headers", "full"] | None = None
    archive_max_messages: Annotated[int, Meta(ge=0, le=ARCHIVE_MESSAGES_MAX)] | None = None
    archive_max_bytes: Quantity | None = None
    archive_max_age: Duration | None = None
    high_watermark_bytes: Quantity | None = None
    low_watermark_bytes: Quantity | None = None
    high_watermark: Quantity | None = None
    low_watermark: Quantity | None = None
    allow_immediate: bool | None = None
    alternate_exchange: Name | None = None


class PolicySpec(Spec, frozen=True, kw_only=True):
    """Wanted state of a policy.

    Attributes:
        cluster_ref: the cluster that it is in.
        vhost: where.
        name: of the policy; absent for that of this resource.
        operator: whether it is an operator policy, which bounds what others set.
        pattern: regular expression that is searched for in names.
        apply_to: what it is for.
        priority: of all that match, the one with the highest applies.
        definition: what it sets.
        deletion_policy: what becomes of the policy when this resource is deleted.
    """

    RULES = (
        Rule("!self.operator || self.applyTo != 'exchanges'", "operator policies are for queues"),
    )

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    vhost: Annotated[AmqpName, IMMUTABLE] = "/"
    name: Annotated[AmqpName, IMMUTABLE] | None = None
    operator: Annotated[bool, IMMUTABLE] = False
    pattern: RegularExpression
    apply_to: Literal["all", "queues", "exchanges", "quorum_queues", "classic_queues"] = "all"
    priority: Annotated[int, Meta(ge=-2_147_483_648, le=2_147_483_647)] = 0
    definition: Annotated[PolicyDefinition, Meta(extra_json_schema={"minProperties": 1})]
    deletion_policy: DeletionPolicy = "Delete"
