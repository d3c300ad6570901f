"""Read access to the content of the catalog."""

from __future__ import annotations

from typing import Any

from headrace_broker.catalog.advice import AdviceBoard
from headrace_broker.model.binding_key import BindingKey
from headrace_broker.model.definition import (
    Binding,
    Exchange,
    Node,
    Permission,
    Policy,
    Queue,
    TopicPermission,
    User,
    Vhost,
)

DESTINATION_QUEUE = "queue"
DESTINATION_EXCHANGE = "exchange"


class CatalogView:
    """Read access; lists come in the order of creation. The default exchange ("") is not stored.

    Attributes:
        applied_index: log index of the newest applied command, 0 before the first.
        bootstrapped: whether the cluster's first contents are there.
        guarded: whether permissions decide. In a catalog from before there were any, everybody may
            do everything until the first is set.
        advice: on queues, from those who watch them.
    """

    def __init__(self) -> None:
        self._forget_all()

    def _forget_all(self) -> None:
        """Clear all tables."""
        self.applied_index = 0
        self.bootstrapped = False
        self.guarded = False
        self.cluster_version = 1  # see `catalog/cluster_version.py`
        self.advice = AdviceBoard()
        self._nodes: dict[int, Node] = {}
        self._forgotten: dict[tuple[int, int], None] = {}
        self._vhosts: dict[str, Vhost] = {}
        self._users: dict[str, User] = {}
        self._session_epochs: dict[str, int] = {}
        self._vhost_limits: dict[str, dict[str, int]] = {}
        self._user_limits: dict[str, dict[str, int]] = {}
        self._permissions: dict[tuple[str, str], Permission] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermission] = {}
        self._policies: dict[tuple[bool, str], dict[str, Policy]] = {}
        self._parameters: dict[str, int | str] = {}
        self._exchanges: dict[tuple[str, str], Exchange] = {}
        self._queues: dict[tuple[str, str], Queue] = {}
        self._groups: dict[int, Queue] = {}
        self._owners: dict[str, dict[int, Queue]] = {}
        self._replicas: dict[int, int] = {}
        self._first_leads: dict[int, int] = {}
        self._shared: dict[Any, Any] = {}  # parts of queues' definitions, by themselves or as bytes
        self._queue_counts: dict[str, int] = {}
        self._bindings: dict[BindingKey, Binding] = {}
        self._by_source: dict[tuple[str, str], dict[BindingKey, Binding]] = {}
        self._by_destination: dict[tuple[str, str, str], dict[BindingKey, Binding]] = {}

    def node(self, node: int) -> Node | None:
        """Return a node by id."""
        return self._nodes.get(node)

    def nodes(self) -> list[Node]:
        """Return all nodes."""
        return list(self._nodes.values())

    def node_named(self, name: str) -> Node | None:
        """Return a node by name."""
        return next((node for node in self._nodes.values() if node.name == name), None)

    def forgotten(self) -> list[tuple[int, int]]:
        """Return ids and disks of nodes that were removed, the oldest first."""
        return list(self._forgotten)

    def replica_count(self, node: int) -> int:
        """Return how many queue replicas are placed on a node."""
        return self._replicas.get(node, 0)

    def first_lead_count(self, node: int) -> int:
        """Return of how many queues a node was to be the first leader."""
        return self._first_leads.get(node, 0)

    def vhost(self, name: str) -> Vhost | None:
        """Return a vhost."""
        return self._vhosts.get(name)

    def vhosts(self) -> list[Vhost]:
        """Return all vhosts."""
        return list(self._vhosts.values())

    def user(self, name: str) -> User | None:
        """Return a user."""
        return self._users.get(name)

    def users(self) -> list[User]:
        """Return all users."""
        return list(self._users.values())

    def session_epoch(self, user: str) -> int:
        """Return the epoch under which a user's sessions must have begun to continue.

        It is the log index of the command that ended the earlier ones, or created the user; 0 where
        there was none.
        """
        return self._session_epochs.get(user, 0)

    def vhost_limits(self, vhost: str) -> dict[str, int]:
        """Return a vhost's limits by name; a copy."""
        return dict(self._vhost_limits.get(vhost, {}))

    def user_limits(self, user: str) -> dict[str, int]:
        """Return a user's limits by name; a copy."""
        return dict(self._user_limits.get(user, {}))

    def permission(self, user: str, vhost: str) -> Permission | None:
        """Return what a user may do in a vhost; see `catalog.permission` for what that means."""
        return self._permissions.get((user, vhost))

    def permissions(self, vhost: str | None = None) -> list[Permission]:
        """Return the permissions in a vhost, or all."""
        return [p for p in self._permissions.values() if vhost is None or p.vhost == vhost]

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        """Return which routing keys a user may use at an exchange, None for any."""
        return self._topic_permissions.get((user, vhost, exchange))

    def topic_permissions(self, vhost: str | None = None) -> list[TopicPermission]:
        """Return the topic permissions in a vhost, or all."""
        found = self._topic_permissions.values()
        return [each for each in found if vhost is None or each.vhost == vhost]

    def policy(self, vhost: str, name: str, operator: bool = False) -> Policy | None:
        """Return a policy, or an operator policy."""
        return self._policies.get((operator, vhost), {}).get(name)

    def policies(self, vhost: str | None = None, operator: bool = False) -> list[Policy]:
        """Return the policies, or operator policies, of a vhost or of all."""
        return [
            policy
            for (kind, place), policies in self._policies.items()
            if kind == operator and (vhost is None or place == vhost)
            for policy in policies.values()
        ]

    def parameters(self) -> dict[str, int | str]:
        """Return the limits of flow control that were set, by name; a copy."""
        return dict(self._parameters)

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """Return an exchange."""
        return self._exchanges.get((vhost, name))

    def exchanges(self, vhost: str | None = None) -> list[Exchange]:
        """Return the exchanges of a vhost, or all."""
        return [x for x in self._exchanges.values() if vhost is None or x.vhost == vhost]

    def queue(self, vhost: str, name: str) -> Queue | None:
        """Return a queue."""
        return self._queues.get((vhost, name))

    def queue_by_group(self, group: int) -> Queue | None:
        """Return the queue with this incarnation id."""
        return self._groups.get(group)

    def queues(self, vhost: str | None = None) -> list[Queue]:
        """Return the queues of a vhost, or all."""
        return [queue for queue in self._queues.values() if vhost is None or queue.vhost == vhost]

    def queue_count(self, vhost: str) -> int:
        """Return how many queues a vhost has."""
        return self._queue_counts.get(vhost, 0)

    def queues_of_owner(self, owner: str) -> list[Queue]:
        """Return the exclusive queues of a connection."""
        return list(self._owners.get(owner, {}).values())

    def binding_exists(self, key: BindingKey) -> bool:
        """Return whether a binding with this identity is there."""
        return key in self._bindings

    def bindings(self, vhost: str | None = None) -> list[Binding]:
        """Return the bindings of a vhost, or all."""
        return [b for b in self._bindings.values() if vhost is None or b.vhost == vhost]

    def bindings_of_source(self, vhost: str, exchange: str) -> list[Binding]:
        """Return the bindings that leave an exchange."""
        return list(self._by_source.get((vhost, exchange), {}).values())

    def bindings_of_queue(self, vhost: str, queue: str) -> list[Binding]:
        """Return the bindings that lead to a queue."""
        return list(self._by_destination.get((vhost, DESTINATION_QUEUE, queue), {}).values())

    def bindings_of_exchange(self, vhost: str, exchange: str) -> list[Binding]:
        """Return the bindings that lead to an exchange."""
        return list(self._by_destination.get((vhost, DESTINATION_EXCHANGE, exchange), {}).values())
