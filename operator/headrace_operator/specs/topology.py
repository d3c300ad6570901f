"""`Exchange`, `Queue` and `Binding`.

What rules in CEL do not see are the values of `arguments`, which may be of any type: that these do
not change is for the operator to say.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from headrace_operator.specs.field import (
    IMMUTABLE,
    AmqpName,
    Arguments,
    CarefulDeletionPolicy,
    ClusterReference,
    DeletionPolicy,
    ExchangeName,
    RoutingKey,
    Rule,
    Spec,
)
from headrace_operator.specs.status import Status


class ExchangeSpec(Spec, frozen=True, kw_only=True):
    """Wanted state of an exchange. As in AMQP, it is fixed by its declaration until it is deleted.

    Attributes:
        cluster_ref: the cluster that it is in.
        vhost: where.
        name: of the exchange; absent for that of this resource.
        type: how it routes.
        durable: whether it survives a restart of the cluster.
        auto_delete: it goes with its last binding.
        internal: only other exchanges publish to it.
        arguments: such as alternate-exchange.
        deletion_policy: what becomes of the exchange when this resource is deleted.
    """

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    vhost: Annotated[AmqpName, IMMUTABLE] = "/"
    name: Annotated[AmqpName, IMMUTABLE] | None = None
    type: Annotated[
        Literal[
            "direct",
            "fanout",
            "topic",
            "headers",
            "x-consistent-hash",
            "x-delayed-message",
            "x-local-random",
        ],
        IMMUTABLE,
    ] = "direct"
    durable: Annotated[bool, IMMUTABLE] = True
    auto_delete: Annotated[bool, IMMUTABLE] = False
    internal: Annotated[bool, IMMUTABLE] = False
    arguments: Arguments | None = None
    deletion_policy: DeletionPolicy = "Delete"


class QueueSpec(Spec, frozen=True, kw_only=True):
    """Wanted state of a queue.

    As in AMQP, it is what it was declared as until it is deleted; limits that are to change later
    are for a Policy.

    Attributes:
        cluster_ref: the cluster that it is in.
        vhost: where.
        name: of the queue; absent for that of this resource.
        type: replicated (quorum) or not (classic).
        durable: whether it survives a restart of its node; quorum queues do.
        auto_delete: it goes with its last consumer.
        arguments: such as x-dead-letter-exchange.
        replicas: of a quorum queue; can be changed.
        deletion_policy: what becomes of the queue when this resource is deleted;
            RefuseUnlessEmpty keeps the resource while messages wait or consumers are there.
    """

    RULES = (
        Rule(
            "self.type == 'classic' || (self.durable && !self.autoDelete)",
            "a quorum queue is durable and not auto-delete",
        ),
        Rule("self.type == 'quorum' || !has(self.replicas)", "a classic queue has one replica"),
    )

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    vhost: Annotated[AmqpName, IMMUTABLE] = "/"
    name: Annotated[AmqpName, IMMUTABLE] | None = None
    type: Annotated[Literal["quorum", "classic"], IMMUTABLE] = "quorum"
    durable: Annotated[bool, IMMUTABLE] = True
    auto_delete: Annotated[bool, IMMUTABLE] = False
    arguments: Arguments | None = None
    replicas: Annotated[int, Meta(ge=1, le=7)] | None = None
    deletion_policy: CarefulDeletionPolicy = "RefuseUnlessEmpty"


class QueueStatus(Status, frozen=True, kw_only=True):
    """State of a queue at the last reconcile.

    Attributes:
        leader: the node that leads it.
        members: nodes that have a replica.
        messages: that wait, or were delivered and are not settled.
        consumers: how many.
    """

    leader: Annotated[str, Meta(max_length=64)] | None = None
    members: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=16)] = field(
        default_factory=list
    )
    messages: Annotated[int, Meta(ge=0)] | None = None
    consumers: Annotated[int, Meta(ge=0)] | None = None


class Destination(Spec, frozen=True, kw_only=True):
    """Destination of messages.

    Attributes:
        queue: name of a queue.
        exchange: name of an exchange, in place of a queue.
    """

    RULES = (
        Rule("has(self.queue) != has(self.exchange)", "one of queue and exchange has to be given"),
    )

    queue: AmqpName | None = None
    exchange: AmqpName | None = None


class BindingSpec(Spec, frozen=True, kw_only=True):
    """A binding. Whatever of it changes, it is another one: delete it and create that.

    Attributes:
        cluster_ref: the cluster that it is in.
        vhost: where.
        source: name of the exchange.
        destination: what messages go to.
        routing_key: which of them; what it means is up to the exchange's type.
        arguments: such as x-match of a headers exchange.
        deletion_policy: what becomes of the binding when this resource is deleted.
    """

    RULES = (Rule("self.source != ''", "every queue is bound to the default exchange by its name"),)

    cluster_ref: Annotated[ClusterReference, IMMUTABLE]
    vhost: Annotated[AmqpName, IMMUTABLE] = "/"
    source: Annotated[ExchangeName, IMMUTABLE]
    destination: Annotated[Destination, IMMUTABLE]
    routing_key: Annotated[RoutingKey, IMMUTABLE] = ""
    arguments: Arguments | None = None
    deletion_policy: DeletionPolicy = "Delete"
