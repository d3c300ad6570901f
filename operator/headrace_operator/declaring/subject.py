"""Subject of a declaration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from headrace_operator.broker_api import BrokerApi
from headrace_operator.cluster_finder import FoundCluster
from headrace_operator.expected_error import ExpectedError
from headrace_operator.operator_context import Operator
from headrace_operator.reconciler import Key
from headrace_operator.specs.kind import Kind


class Subject(NamedTuple):
    """A resource, and where it is to be declared.

    Attributes:
        operator: what handlers need.
        body: the resource.
        way: to its cluster.
    """

    operator: Operator
    body: dict[str, Any]
    way: FoundCluster

    @property
    def spec(self) -> dict[str, Any]:
        """Wanted state; defaults that the API server has not filled in are left out."""
        found: dict[str, Any] = self.body["spec"]
        return found

    @property
    def name(self) -> str:
        """Name of the object in the broker."""
        found: str = self.spec.get("name") or self.body["metadata"]["name"]
        return found

    @property
    def vhost(self) -> str:
        """The vhost that it is in."""
        found: str = self.spec.get("vhost") or "/"
        return found

    @property
    def key(self) -> Key:
        """Which resource it is."""
        return Key(self.namespace, self.body["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The namespace of the resource."""
        found: str = self.body["metadata"]["namespace"]
        return found

    @property
    def api(self) -> BrokerApi:
        """The brokers' API."""
        return self.way.api


class ConflictError(ExpectedError):
    """The object in the broker differs from the resource, and cannot be changed."""


def nothing(key: Key) -> None:
    """Forget nothing of a resource, where nothing is remembered."""
    del key


class Declaration(NamedTuple):
    """Declaration of one kind.

    Attributes:
        kind: of the resources.
        apply: has the thing be as the resource says; returns fields of the status.
        delete: has it be gone; returns why it is kept, "" once it is gone.
        careful: whether it is refused to delete what is not empty, where the spec says nothing.
        forget: forgets what is remembered of a resource that is not there any more.
    """

    kind: Kind
    apply: Callable[[Subject], Awaitable[dict[str, Any]]]
    delete: Callable[[Subject], Awaitable[str]]
    careful: bool = False
    forget: Callable[[Key], None] = nothing


def differs(found: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    """Return whether an object is missing, or differs from the wanted one."""
    return found is None or any(found.get(key) != value for key, value in wanted.items())
