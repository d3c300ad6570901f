"""`Vhost`, `User` and `Permission`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from headrace_operator.specs.field import (
    IMMUTABLE,
    INTEGER_MAX,
    LIST_MAX,
    SET,
    AmqpName,
    CarefulDeletionPolicy,
    ClusterReference,
    DeletionPolicy,
    LocalReference,
    RegularExpression,
    Rule,
    SecretKey,
    Spec,
    keyed,
)
from headrace_operator.specs.status import Status, Timestamp

LimitValue = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]


# Names are the broker's; a test holds them together.
class VhostLimits(Spec, frozen=True, kw_only=True, rename="kebab"):
    """Limits of a vhost. What is absent has none.

    Attributes:
        max_connections: of clients.
        max_queues: of all kinds.
        default_queue_max_length: messages of queues for which nobody says otherwise.
        default_queue_max_length_bytes: likewise, bytes of bodies.
        default_queue_high_watermark: messages from which such queues defer confirms.
        default_queue_high_watermark_bytes: likewise, bytes of bodies.
        default_queue_low_watermark: messages at which they give them.
        default_queue_low_watermark_bytes: likewise, bytes of bodies.
        publish_rate_messages: per second, of each connection.
        publish_rate_bytes: likewise, bytes.
        channel_flow: 1 has clients told of alarms by channel.flow too.
        blocked_after_ms: clients are told when they were held for so long; 0 for never.
    """

    max_connections: LimitValue | None = None
    max_queues: LimitValue | None = None
    default_queue_max_length: LimitValue | None = None
    default_queue_max_length_bytes: LimitValue | None = None
    default_queue_high_watermark: LimitValue | None = None
    default_queue_high_watermark_bytes: LimitValue | None = None
    default_queue_low_watermark: LimitValue | None = None
    default_queue_low_watermark_bytes: LimitValue | None = None
    publish_rate_messages: LimitValue | None = None
    publish_rate_bytes: LimitValue | None = None
    channel_flow: Annotated[int, Meta(ge=0, le=1)] | None = None
    blocked_after_ms: Annotated[int, Meta(ge=0, le=INTEGER_MAX)] | None = None


class UserLimits(Spec, frozen=True, kw_only=True, rename="kebab"):
    """Limits of a user. What is absent has none.

    Attributes:
        max_connections: of the user's clients.
        max_channels: of all of these.
        publish_rate_messages: per second, of each connection.
        publish_rate_bytes: likewise, bytes.
        channel_flow: 1 has clients told of alarms by channel.flow too.
        blocked_after_ms: clients are told when they were held for so long; 0 for never.
        publish_weight: share among publishers that compete for a queue.
    """

    max_connections: LimitValue | None = None
    max_channels: LimitValue | None = None
    publish_rate_messages: LimitValue | None = None
    publish_rate_bytes: LimitValue | None = None
    channel_flow: Annotated[int, Meta(ge=0, le=1)] | None = None
    blocked_after_ms: Annotated[int, Meta(ge=0, le=INTEGER_MAX)] | None = None
    publish_weight: Annotated[int, Meta(ge=1, le=100)] | None = None


class VhostSpec(Spec, frozen=True, kw_only=True):
    """Wanted state of a vhost.

    Attributes:
        cluster_ref: the cluster that it is in.
        name: of the vhost; absent for that of this resource.
        description: for people.
        tags: for people.
        default_queue_type: type of durable queues that do not say theirs.
        limits: of the vhost, such as max-connections. What is not named has none.
        deletion_policy: what becomes of the vhost, with all that is in it, when this resource is
            deleted; RefuseUnlessEmpty keeps the resource while there are queues with messages.
    """

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    name: Annotated[AmqpName, IMMUTABLE] | None = None
    description: Annotated[str, Meta(max_length=1024)] = ""
    tags: Annotated[list[AmqpName], SET, Meta(max_length=LIST_MAX)] | None = None
    default_queue_type: Literal["quorum", "classic"] | None = None
    limits: VhostLimits = VhostLimits()
    deletion_policy: CarefulDeletionPolicy = "RefuseUnlessEmpty"


class PasswordSource(Spec, frozen=True, kw_only=True):
    """Source of a password.

    Attributes:
        name: of a Secret in the namespace of the resource.
        key: of the password in it.
    """

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    key: SecretKey = "password"


class Rotation(Spec, frozen=True, kw_only=True):
    """When a password that the operator made is made anew.

    Attributes:
        every_days: after so many days; absent for never.
        request: any text; another one than before has it done at once.
    """

    every_days: Annotated[int, Meta(ge=1, le=3650)] | None = None
    request: Annotated[str, Meta(max_length=253)] = ""


class UserSpec(Spec, frozen=True, kw_only=True):
    """Wanted state of a user.

    Attributes:
        cluster_ref: the cluster that it is in.
        name: of the user; absent for that of this resource.
        tags: what the user may look at and change besides what its permissions allow.
        password: where it comes from. Absent, one is made and kept in the Secret
            `RESOURCE-user-credentials`, with the addresses to connect to.
        without_password: the user has none: it logs in by a certificate.
        rotation: when a password that was made is made anew.
        limits: of the user, such as max-connections. What is not named has none.
        deletion_policy: what becomes of the user when this resource is deleted.
    """

    RULES = (
        Rule(
            "!self.withoutPassword || (!has(self.password) && !has(self.rotation))",
            "withoutPassword stands alone, without password and rotation",
        ),
        Rule(
            "!has(self.rotation) || !has(self.password)",
            "rotation is for passwords that the operator makes",
        ),
    )

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    name: Annotated[AmqpName, IMMUTABLE] | None = None
    tags: (
        Annotated[
            list[Literal["administrator", "monitoring", "policymaker", "management"]],
            SET,
            Meta(max_length=4),
        ]
        | None
    ) = None
    password: PasswordSource | None = None
    without_password: bool = False
    rotation: Rotation | None = None
    limits: UserLimits = UserLimits()
    deletion_policy: DeletionPolicy = "Delete"


class UserStatus(Status, frozen=True, kw_only=True):
    """State of a user.

    Attributes:
        username: in the broker.
        credentials: the Secret with name and password.
        rotated_at: when the password was made.
        rotation_request: the last one that was carried out.
    """

    username: AmqpName | None = None
    credentials: LocalReference | None = None
    rotated_at: Timestamp | None = None
    rotation_request: Annotated[str, Meta(max_length=253)] = ""


class TopicPermission(Spec, frozen=True, kw_only=True):
    """Routing keys that may be used with a topic exchange: regular expressions.

    Attributes:
        exchange: name of the exchange.
        write: routing keys of what may be published.
        read: routing keys that may be bound.
    """

    exchange: AmqpName
    write: RegularExpression = ""
    read: RegularExpression = ""


class PermissionSpec(Spec, frozen=True, kw_only=True):
    """Permission of a user in a vhost: regular expressions that are searched for in names.

    Attributes:
        cluster_ref: the cluster that both are in.
        user: name of the user in the broker.
        user_ref: a User in this namespace, in place of `user`.
        vhost: where.
        configure: what may be declared and deleted; nothing where it is empty.
        write: what may be published to and bound.
        read: what may be consumed from and bound to.
        topics: which routing keys may be used besides, with single topic exchanges.
        deletion_policy: what becomes of the permission when this resource is deleted.
    """

    RULES = (
        Rule("has(self.user) != has(self.userRef)", "one of user and userRef has to be given"),
    )

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    user: Annotated[AmqpName, IMMUTABLE] | None = None
    user_ref: Annotated[LocalReference, IMMUTABLE] | None = None
    vhost: Annotated[AmqpName, IMMUTABLE] = "/"
    configure: RegularExpression = ""
    write: RegularExpression = ""
    read: RegularExpression = ""
    topics: Annotated[list[TopicPermission], keyed("exchange"), Meta(max_length=LIST_MAX)] = field(
        default_factory=list
    )
    deletion_policy: DeletionPolicy = "Delete"
