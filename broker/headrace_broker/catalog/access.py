"""Authorization: AMQP, gRPC and HTTP all use this module.

Which permission a method takes, and the texts, are RabbitMQ's (`rabbit_channel`, and its guide on
access control), as are the tags: management (own connections, vhosts that one may enter),
policymaker (and policies there), monitoring (and everything to look at), administrator (all).
What is refused is an AmqpError ACCESS_REFUSED, which each gateway tells in its own way, with one
text for what is there and what is not. What backups take is in `access_backup`, what is shown of
flow control in `viewer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace_broker.catalog.permission import (
    CONFIGURE,
    DEFAULT_EXCHANGE_NAME,
    READ,
    TOPIC,
    WRITE,
    Rights,
    may_enter,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import EXCHANGE_TYPES, Binding, Queue
from headrace_broker.model.limits import NAME_BYTES_MAX
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
RESERVED_PREFIX: Final = "amq."

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = frozenset({ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT})

# Arguments that name where a queue or exchange sends messages on.
SENDS_ON: Final = {QUEUE: "x-dead-letter-exchange", EXCHANGE: "alternate-exchange"}
DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"
# The same of policies.
POLICY_SENDS_ON: Final = ("dead-letter-exchange", "alternate-exchange")
POLICY_DEAD_LETTER_KEY: Final = "dead-letter-routing-key"


class Caller(NamedTuple):
    """Originator of a request, with its rights."""

    name: str
    tags: tuple[str, ...]

    @property
    def administers(self) -> bool:
        """True if everything is allowed that needs no permission in a vhost."""
        return ADMINISTRATOR in self.tags

    @property
    def monitors(self) -> bool:
        """True for administrators and monitoring users, who may view everything."""
        return self.administers or MONITORING in self.tags

    @property
    def makes_policies(self) -> bool:
        """True if policies may be changed, in vhosts that may be entered."""
        return self.administers or POLICYMAKER in self.tags

    @property
    def manages(self) -> bool:
        """True with any tag: more may be viewed than a client may see."""
        return not TAGS.isdisjoint(self.tags)

    def sees(self, view: CatalogView, vhost: str) -> bool:
        """Return whether a vhost may be viewed."""
        return self.monitors or may_enter(view, self.name, vhost)


# By tag


def check_administers(caller: Caller) -> None:
    """Refuse a user who is no administrator."""
    if not caller.administers:
        raise refused("tags: this is for users with the tag 'administrator'")


def check_monitors(caller: Caller) -> None:
    """Refuse a user who may not view everything."""
    if not caller.monitors:
        raise refused("tags: this is for users with the tag 'monitoring' or 'administrator'")


def check_makes_policies(caller: Caller) -> None:
    """Refuse a user who may not make policies."""
    if not caller.makes_policies:
        raise refused("tags: this is for users with the tag 'policymaker' or 'administrator'")


def check_manages(caller: Caller) -> None:
    """Refuse a user without any of the tags."""
    if not caller.manages:
        raise refused(f"tags: must have one of {', '.join(sorted(TAGS))}")


# By author


def check_author(caller: Caller, author: str) -> None:
    """Refuse advice under another user's name: its author is the user who gives it."""
    if author != caller.name:
        raise refused(f"advice of author '{author}' refused for user '{caller.name}'")


def taken_back_by(caller: Caller, author: str) -> str:
    """Return the author whose advice a caller takes back: themselves, unless an administrator."""
    if caller.administers:
        return author
    check_author(caller, author or caller.name)
    return caller.name


# By vhost


def check_sees(caller: Caller, view: CatalogView, vhost: str) -> None:
    """Refuse a look at a vhost, with the same text whether it is there or not."""
    if not caller.sees(view, vhost):
        raise refused(stranger_text(caller.name, vhost))


def check_enters(view: CatalogView, user: str, vhost: str) -> None:
    """Refuse work in a vhost without permission there."""
    if not may_enter(view, user, vhost):
        raise refused(stranger_text(user, vhost))


def entrance_refusal(caller: Caller, vhost: str, there: bool, enters: bool) -> AmqpError | None:
    """Return why a client may not open a vhost: NOT_FOUND for who may know, else ACCESS_REFUSED."""
    if not there and (enters or caller.monitors):
        return AmqpError(NOT_FOUND, f"vhost '{vhost}' not found")
    return None if enters else refused(stranger_text(caller.name, vhost))


def stranger_text(user: str, vhost: str) -> str:
    """Return the error text for a user without permission in a vhost."""
    return f"access to vhost '{vhost}' refused for user '{user}'"


# By name


def check_allowed(
    rights: Rights, user: str, vhost: str, operation: str, kind: str, name: str
) -> None:
    """Refuse an operation of `catalog.permission` on a QUEUE or EXCHANGE by its name."""
    if not rights.may(user, vhost, operation, name):
        raise _without(user, vhost, operation, kind, name)


def check_any(rights: Rights, user: str, vhost: str, kind: str, name: str) -> None:
    """Refuse to tell of a queue or exchange with which the user may do nothing at all."""
    if not any(rights.may(user, vhost, each, name) for each in (CONFIGURE, WRITE, READ)):
        raise _without(user, vhost, CONFIGURE, kind, name)


def knows_queue(caller: Caller, view: CatalogView, queue: Queue) -> bool:
    """Return whether a caller who did not name a queue may be told that it exists.

    A refusal that names the queue is only for callers for whom this is true.
    """
    rights = Rights(view)
    return caller.sees(view, queue.vhost) and (
        caller.monitors
        or any(
            rights.may(caller.name, queue.vhost, each, queue.name)
            for each in (CONFIGURE, WRITE, READ)
        )
    )


def check_topic(
    rights: Rights, user: str, vhost: str, operation: str, exchange: str, routing_key: str
) -> None:
    """Refuse a routing key at an exchange: WRITE to publish, READ to bind."""
    if not rights.may_route(user, vhost, operation, exchange, routing_key):
        key = (
            routing_key[:NAME_BYTES_MAX]
            .encode("utf-8", "surrogateescape")
            .decode("utf-8", "replace")
        )
        raise refused(
            f"{operation} access to {TOPIC} '{key}' in exchange '{exchange}' in vhost '{vhost}' "
            f"refused for user '{user}'"
        )


def check_ends(
    rights: Rights, user: str, vhost: str, source: str, kind: str, destination: str
) -> None:
    """Refuse to bind a queue or exchange to an exchange with any routing key."""
    check_allowed(rights, user, vhost, WRITE, kind, destination)
    check_allowed(rights, user, vhost, READ, EXCHANGE, source)


def check_binding(rights: Rights, user: str, binding: Binding) -> None:
    """Refuse to bind a queue or exchange to an exchange, or to unbind it.

    An exchange that routes by topics may be bound only so that it gets no keys with which the user
    may not publish there.
    """
    vhost, source = binding.vhost, binding.source
    check_ends(rights, user, vhost, source, binding.destination_type, binding.destination)
    check_topic(rights, user, vhost, READ, source, binding.routing_key)
    if not rights.may_chain(user, binding):
        raise _cannot_forward(user, vhost, binding.destination)


def check_declares(
    rights: Rights,
    user: str,
    vhost: str,
    kind: str,  # QUEUE or EXCHANGE
    name: str,
    arguments: Mapping[str, Any],
    known: bool,
) -> None:
    """Refuse to declare a queue or exchange, or one that is new and sends messages on.

    A new one needs a permission to publish to its exchange for dead letters, or its alternate one,
    with the keys that messages have then, and to read itself.
    """
    check_allowed(rights, user, vhost, CONFIGURE, kind, name)
    target = arguments.get(SENDS_ON[kind])
    if isinstance(target, str) and not known:
        check_allowed(rights, user, vhost, READ, kind, name)
        key = arguments.get(DEAD_LETTER_KEY) if kind == QUEUE else None
        _check_forward(rights, user, vhost, target, key)


def check_policy(rights: Rights, caller: Caller, vhost: str, definition: Mapping[str, Any]) -> None:
    """Refuse a policy that has messages sent on to where its author may not publish.

    Administrators give themselves every permission, and are not asked for it.
    """
    if caller.administers:
        return
    for setting in POLICY_SENDS_ON:
        target = definition.get(setting)
        if isinstance(target, str):
            dead = setting == POLICY_SENDS_ON[0]
            key = definition.get(POLICY_DEAD_LETTER_KEY) if dead else None
            _check_forward(rights, caller.name, vhost, target, key)


def _check_forward(rights: Rights, user: str, vhost: str, target: str, routing_key: Any) -> None:
    """Refuse to have messages sent on to an exchange, with a routing key or their own."""
    check_allowed(rights, user, vhost, WRITE, EXCHANGE, target)
    key = routing_key if isinstance(routing_key, str) else None
    if not rights.may_forward(user, vhost, target, key):
        raise _cannot_forward(user, vhost, target)


# By rule, for every caller


def check_new_name(kind: str, name: str) -> None:
    """Refuse a name that only the broker gives, for something that is not there yet."""
    if name.startswith(RESERVED_PREFIX):
        raise refused(f"{kind} name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'")


def check_exchange_type(kind: str) -> None:
    """Refuse, by PRECONDITION_FAILED, a type of exchange that there is not."""
    if kind not in EXCHANGE_TYPES:
        raise AmqpError(PRECONDITION_FAILED, f"unknown exchange type '{kind}'", "type")


def check_not_default(exchange: str) -> None:
    """Refuse to change the default exchange, or its bindings."""
    if not exchange:
        raise refused("operation not permitted on the default exchange")


def check_not_system(vhost: str, exchange: str) -> None:
    """Refuse to delete an exchange that every vhost has."""
    if exchange.startswith(RESERVED_PREFIX):
        raise refused(f"deletion of system exchange '{exchange}' in vhost '{vhost}' not allowed")


def check_not_exclusive(queue: Queue) -> None:
    """Refuse, by RESOURCE_LOCKED, what only the owner of an exclusive queue may do."""
    if queue.exclusive:
        raise AmqpError(
            RESOURCE_LOCKED,
            f"queue '{queue.name}' in vhost '{queue.vhost}' is exclusive: only its connection "
            "may do that",
        )


def refused(text: str) -> AmqpError:
    """Return the refusal of what a user may not do."""
    return AmqpError(ACCESS_REFUSED, text)


def _cannot_forward(user: str, vhost: str, exchange: str) -> AmqpError:
    return refused(
        f"sending messages on to exchange '{exchange}' in vhost '{vhost}' refused for user "
        f"'{user}', whose {TOPIC} permission there does not allow all keys that they may have"
    )


def _without(user: str, vhost: str, operation: str, kind: str, name: str) -> AmqpError:
    shown = name or DEFAULT_EXCHANGE_NAME
    return refused(
        f"{operation} access to {kind} '{shown}' in vhost '{vhost}' refused for user '{user}'"
    )
