"""Permissions of a user in a vhost, as RabbitMQ reads them.

At a topic exchange a topic permission narrows down which routing keys are allowed; without one all
are. A variable in its expressions stands for a name as it is: what means something in an expression
means nothing there, other than with RabbitMQ, so that nobody gets more by a name of dots and stars.
`{client_id}` is a thing of MQTT's; as with RabbitMQ's AMQP clients it stands for itself.

A catalog from before there were permissions (`CatalogView.guarded` is False) lets everybody do
everything, as its nodes did, until the first permission is set or taken away; then everybody is
given in writing what they had. A new cluster is guarded from the start, and its default user may do
everything in the default vhost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, final

from typing_extensions import override

from headrace_broker.catalog.event import Event, PermissionChanged, TopicPermissionChanged
from headrace_broker.catalog.pattern import matches
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import EXCHANGE_DELAYED, Binding, Exchange, TopicPermission
from headrace_broker.model.exchange_argument import DELAYED_TYPE
from headrace_broker.model.limits import (
    NAME_BYTES_MAX,
    PERMISSIONS_CACHED_MAX,
    TOPIC_ANSWERS_CACHED_MAX,
)

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

TOPIC: Final = "topic"
DIRECT: Final = "direct"
EXCHANGE_KIND: Final = "exchange"  # of a binding's destination
_ANY_KEY: Final = frozenset([".*", "^.*", ".*$", "^.*$", "^"])  # expressions that fit every key

DEFAULT_EXCHANGE_NAME: Final = "amq.default"  # what the exchange "" is called in permissions


def expanded(pattern: str, told: TopicPermission) -> str:
    """Return an expression of a topic permission with the names that its variables stand for."""
    for variable, name in (("{username}", told.user), ("{vhost}", told.vhost)):
        if variable in pattern:
            pattern = pattern.replace(variable, re.escape(name))
    return pattern


def _routes_by_topic(exchange: Exchange | None) -> bool:
    return exchange is not None and _routes_as(exchange) == TOPIC


def _routes_as(exchange: Exchange) -> Any:
    """Return the type by which an exchange routes."""
    if exchange.type == EXCHANGE_DELAYED:
        return exchange.arguments.get(DELAYED_TYPE)
    return exchange.type


def _fits(told: TopicPermission, operation: str, routing_key: str) -> bool:
    if len(routing_key) > NAME_BYTES_MAX:
        return False  # a key in CC that no message could have: what expressions cost is bounded
    pattern = {WRITE: told.write, READ: told.read}[operation]
    if not pattern:
        return not routing_key
    return matches(expanded(pattern, told), routing_key)


def may_enter(view: CatalogView, user: str, vhost: str) -> bool:
    """Return whether a user may open a connection to a vhost: with any permission there."""
    return not view.guarded or view.permission(user, vhost) is not None


class Rights:
    """Answers what users may, from a catalog."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view

    def may_enter(self, user: str, vhost: str) -> bool:
        """Return what `may_enter` does."""
        return may_enter(self._view, user, vhost)

    def may(self, user: str, vhost: str, operation: str, name: str) -> bool:
        """Return whether a user may CONFIGURE, WRITE or READ the queue or exchange of a name."""
        if not self._view.guarded:
            return True
        permission = self._view.permission(user, vhost)
        if permission is None:
            return False
        patterns = {CONFIGURE: permission.configure, WRITE: permission.write, READ: permission.read}
        pattern = patterns[operation]
        # RabbitMQ takes an empty expression as one that fits the empty name only.
        return pattern != "" and matches(pattern, name or DEFAULT_EXCHANGE_NAME)

    def may_route(
        self, user: str, vhost: str, operation: str, exchange: str, routing_key: str
    ) -> bool:
        """Return whether a user may use a routing key there: WRITE to publish, READ to bind."""
        told = self._decisive(user, vhost, exchange)
        return told is None or _fits(told, operation, routing_key)

    def _decisive(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        """Return the topic permission that routing keys have to fit, None where any will do."""
        told = self._view.topic_permission(user, vhost, exchange)
        if told is None or not _routes_by_topic(self._view.exchange(vhost, exchange)):
            return None
        return told

    def may_forward(self, user: str, vhost: str, exchange: str, routing_key: str | None) -> bool:
        """Return whether a user may have messages sent on to an exchange they may write to.

        What is sent on was published elsewhere, where nobody asks for the keys of this exchange.
        One that is not there yet is taken for one that routes by topics. A key of None is any.
        """
        told = self._view.topic_permission(user, vhost, exchange)
        if told is None:
            return True
        known = self._view.exchange(vhost, exchange)
        if known is not None and not _routes_by_topic(known):
            return True
        if routing_key is None:
            return told.write in _ANY_KEY
        return _fits(told, WRITE, routing_key)

    def may_chain(self, user: str, binding: Binding) -> bool:
        """Return whether a user may have all that a binding lets through reach its destination."""
        if binding.destination_type != EXCHANGE_KIND:
            return True
        source = self._view.exchange(binding.vhost, binding.source)
        kind = _routes_as(source) if source is not None else ""
        words = binding.routing_key.split(".")
        exact = kind == DIRECT or (kind == TOPIC and not {"*", "#"} & set(words))
        key = binding.routing_key if exact else None
        return self.may_forward(user, binding.vhost, binding.destination, key)


@final
class Permissions(Rights):
    """Answers what users may, from memory where possible."""

    def __init__(self, view: CatalogView) -> None:
        super().__init__(view)
        self.version = 0  # counts up when an answer may have become another one
        self._guarded = view.guarded
        self._answers: dict[tuple[str, str, str, str], bool] = {}
        self._topic_answers: dict[tuple[str, str, str, str, str], bool] = {}

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow changes of the catalog."""
        guarded = self._view.guarded
        kinds = (PermissionChanged, TopicPermissionChanged)
        changed = any(isinstance(event, kinds) for event in events)
        if changed or guarded != self._guarded:
            self._guarded = guarded
            self.version += 1
            self._answers = {}
            self._topic_answers = {}

    @override
    def may(self, user: str, vhost: str, operation: str, name: str) -> bool:
        key = (user, vhost, operation, name)
        answer = self._answers.get(key)
        if answer is None:
            answer = super().may(user, vhost, operation, name)
            if len(self._answers) >= PERMISSIONS_CACHED_MAX:
                self._answers = {}
            self._answers[key] = answer
        return answer

    def narrows(self, user: str, vhost: str, exchange: str) -> bool:
        """Return whether `may_route` is to be asked: a user has a topic permission there."""
        return self._view.topic_permission(user, vhost, exchange) is not None

    @override
    def may_route(
        self, user: str, vhost: str, operation: str, exchange: str, routing_key: str
    ) -> bool:
        told = self._decisive(user, vhost, exchange)
        if told is None:
            return True
        key = (user, vhost, operation, exchange, routing_key)
        answer = self._topic_answers.get(key)
        if answer is None:
            if len(routing_key) > NAME_BYTES_MAX:
                return False
            answer = _fits(told, operation, routing_key)
            if len(self._topic_answers) >= TOPIC_ANSWERS_CACHED_MAX:
                self._topic_answers = {}
            self._topic_answers[key] = answer
        return answer
