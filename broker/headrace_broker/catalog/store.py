"""Changes of the catalog's tables: each updates all tables that it concerns, and adds its event."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from headrace_broker.catalog.advice import Advice
from headrace_broker.catalog.difference import difference
from headrace_broker.catalog.event import (
    BindingAdded,
    BindingRemoved,
    ClusterVersionRaised,
    Event,
    ExchangeAdded,
    ExchangeRemoved,
    NodeAdded,
    NodeRemoved,
    ParameterChanged,
    PermissionChanged,
    PolicyChanged,
    QueueAdded,
    QueueChanged,
    QueueRemoved,
    TopicPermissionChanged,
    UserChanged,
    UserLimitsChanged,
    VhostAdded,
    VhostChanged,
    VhostLimitsChanged,
    VhostRemoved,
)
from headrace_broker.catalog.request import RequestTable, SeenRequests
from headrace_broker.catalog.view import DESTINATION_EXCHANGE, DESTINATION_QUEUE, CatalogView
from headrace_broker.model.binding_key import BindingKey, binding_key
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
from headrace_broker.model.former_name import current_name
from headrace_broker.model.limits import FORGOTTEN_NODES_MAX, SHARED_PARTS_MAX

SNAPSHOT_VERSION: Final = 8
# What has none of the newer tables is written as these versions, which older nodes read as well.
SNAPSHOT_VERSION_UNRAISED: Final = 7  # of cluster version 1
SNAPSHOT_VERSION_TIMELESS: Final = 6  # without epochs of users' sessions
SNAPSHOT_VERSION_UNADVISED: Final = 5  # nor advice
SNAPSHOT_VERSION_FORGOTTEN: Final = 4  # nor topic permissions
SNAPSHOT_VERSION_SETTLED: Final = 3  # nor forgotten nodes
SNAPSHOT_VERSION_UNSET: Final = 2  # nor parameters
SNAPSHOT_VERSION_PLAIN: Final = 1
SNAPSHOT_VERSIONS: Final = range(SNAPSHOT_VERSION_PLAIN, SNAPSHOT_VERSION + 1)


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of the catalog's state; lists are in order of creation.

    Fields after `requests` came with version 2, each after `policies` with a version of its own.
    """

    version: int
    applied_index: int
    bootstrapped: bool
    next_group: int
    nodes: list[Node]
    vhosts: list[Vhost]
    users: list[User]
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    requests: list[tuple[int, SeenRequests]]
    guarded: bool = False
    vhost_limits: list[tuple[str, dict[str, int]]] = []
    user_limits: list[tuple[str, dict[str, int]]] = []
    permissions: list[Permission] = []
    policies: list[Policy] = []
    parameters: list[tuple[str, int | str]] = []
    forgotten: list[tuple[int, int]] = []
    topic_permissions: list[TopicPermission] = []
    advice: list[Advice] = []
    session_epochs: list[tuple[str, int]] = []
    cluster_version: int = 1


class SnapshotError(ValueError):
    """The bytes are not a snapshot of a version that this code reads; nothing changed."""


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)


class CatalogStore(CatalogView):
    """The catalog's tables and the changes that they allow."""

    def __init__(self) -> None:
        super().__init__()
        self.next_group = 1  # incarnation id of the next queue, from 1; never goes back
        self.seen = RequestTable()  # requests that were applied
        self._events: list[Event] = []

    def put_node(self, node: Node) -> None:
        """Add a node, or replace its entry."""
        self._nodes[node.id] = node
        self._replicas.setdefault(node.id, 0)
        self._events.append(NodeAdded(node))

    def drop_node(self, node: Node, bars_unknown: bool = False) -> None:
        """Forget a node without replicas, and remember its disk, as 0 an unknown one if wanted."""
        del self._nodes[node.id]
        self._replicas.pop(node.id, None)
        self._first_leads.pop(node.id, None)
        if node.disk or bars_unknown:
            self._bar(node.id, node.disk)
        self._events.append(NodeRemoved(node))

    def raise_cluster_version(self, version: int) -> None:
        """Set the cluster version."""
        self.cluster_version = version
        self._events.append(ClusterVersionRaised(version))

    def unbar(self, node: int) -> None:
        """Let a node of this id come that was removed before its disk was known."""
        self._forgotten.pop((node, 0), None)

    def _bar(self, node: int, disk: int) -> None:
        self._forgotten.pop((node, disk), None)
        if len(self._forgotten) >= FORGOTTEN_NODES_MAX:
            del self._forgotten[next(iter(self._forgotten))]
        self._forgotten[node, disk] = None

    def put_vhost(self, vhost: Vhost) -> None:
        """Add a vhost."""
        self._vhosts[vhost.name] = vhost
        self._events.append(VhostAdded(vhost))

    def change_vhost(self, vhost: Vhost) -> None:
        """Replace the properties of a known vhost."""
        self._vhosts[vhost.name] = vhost
        self._events.append(VhostChanged(vhost))

    def drop_vhost(self, vhost: Vhost) -> None:
        """Remove a vhost, everything in it, and its permissions."""
        for queue in self.queues(vhost.name):
            self.drop_queue(queue)
        for exchange in self.exchanges(vhost.name):
            self.drop_exchange(exchange)
        for operator in (False, True):
            for policy in self.policies(vhost.name, operator):
                self.drop_policy(policy)
        for topic_permission in self.topic_permissions(vhost.name):
            self.drop_topic_permission(topic_permission)
        for permission in self.permissions(vhost.name):
            self.drop_permission(permission)
        self.put_vhost_limits(vhost.name, {})
        del self._vhosts[vhost.name]
        self._events.append(VhostRemoved(vhost))

    def put_user(self, user: User) -> None:
        """Add or replace a user."""
        self._users[user.name] = user
        self._events.append(UserChanged(user.name, user))

    def end_sessions(self, name: str) -> None:
        """End the sessions of a user that began before this log entry; the user is news already."""
        self._session_epochs[name] = self.applied_index

    def drop_user(self, name: str) -> None:
        """Remove a user, and their permissions."""
        for topic_permission in self.topic_permissions():
            if topic_permission.user == name:
                self.drop_topic_permission(topic_permission)
        for permission in self.permissions():
            if permission.user == name:
                self.drop_permission(permission)
        self.put_user_limits(name, {})
        del self._users[name]
        self._session_epochs.pop(name, None)
        self._events.append(UserChanged(name, None))

    # What users and vhosts may, and what queues and exchanges are told

    def put_vhost_limits(self, vhost: str, limits: dict[str, int]) -> None:
        """Replace a vhost's limits; without any it has none."""
        if limits != self._vhost_limits.get(vhost, {}):
            _set_limits(self._vhost_limits, vhost, limits)
            self._events.append(VhostLimitsChanged(vhost, dict(limits)))

    def put_user_limits(self, user: str, limits: dict[str, int]) -> None:
        """Replace a user's limits; without any they have none."""
        if limits != self._user_limits.get(user, {}):
            _set_limits(self._user_limits, user, limits)
            self._events.append(UserLimitsChanged(user, dict(limits)))

    def put_permission(self, permission: Permission) -> None:
        """Add or replace a user's permission in a vhost."""
        self._permissions[permission.user, permission.vhost] = permission
        self._events.append(PermissionChanged(permission.user, permission.vhost, permission))

    def drop_permission(self, permission: Permission) -> None:
        """Remove a user's permission in a vhost."""
        del self._permissions[permission.user, permission.vhost]
        self._events.append(PermissionChanged(permission.user, permission.vhost, None))

    def put_topic_permission(self, told: TopicPermission) -> None:
        """Add or replace a user's topic permission at an exchange."""
        self._topic_permissions[told.user, told.vhost, told.exchange] = told
        event = TopicPermissionChanged(told.user, told.vhost, told.exchange, told)
        self._events.append(event)

    def drop_topic_permission(self, told: TopicPermission) -> None:
        """Remove a user's topic permission at an exchange."""
        del self._topic_permissions[told.user, told.vhost, told.exchange]
        event = TopicPermissionChanged(told.user, told.vhost, told.exchange, None)
        self._events.append(event)

    def put_policy(self, policy: Policy) -> None:
        """Add or replace a policy."""
        self._policies.setdefault((policy.operator, policy.vhost), {})[policy.name] = policy
        self._events.append(PolicyChanged(policy.vhost, policy.name, policy.operator, policy))

    def drop_policy(self, policy: Policy) -> None:
        """Remove a policy."""
        place = (policy.operator, policy.vhost)
        del self._policies[place][policy.name]
        if not self._policies[place]:
            del self._policies[place]
        self._events.append(PolicyChanged(policy.vhost, policy.name, policy.operator, None))

    def put_parameter(self, name: str, value: int | str) -> None:
        """Set a parameter; one that has the value is left alone."""
        if self._parameters.get(name) != value:
            self._parameters[name] = value
            self._events.append(ParameterChanged(name, value))

    def drop_parameter(self, name: str) -> None:
        """Take a parameter back."""
        del self._parameters[name]
        self._events.append(ParameterChanged(name, None))

    def put_exchange(self, exchange: Exchange) -> None:
        """Add an exchange."""
        self._exchanges[exchange.vhost, exchange.name] = exchange
        self._events.append(ExchangeAdded(exchange))

    def drop_exchange(self, exchange: Exchange) -> None:
        """Remove an exchange with its bindings, and the auto-delete exchanges that fed only it.

        One that is gone already (by such a chain) is left alone.
        """
        doomed = [exchange]
        while doomed:
            gone = doomed.pop()
            if self._exchanges.get((gone.vhost, gone.name)) is not gone:
                continue
            for binding in self.bindings_of_source(gone.vhost, gone.name):
                self._remove_binding(binding)
            arriving = self.bindings_of_exchange(gone.vhost, gone.name)
            for binding in arriving:
                self._remove_binding(binding)
            del self._exchanges[gone.vhost, gone.name]
            self._events.append(ExchangeRemoved(gone))
            doomed.extend(reversed(self._left_unused(arriving)))

    def put_queue(self, queue: Queue) -> Queue:
        """Add a queue and count its replicas; return it as it is kept."""
        queue = self._sharing(queue)
        self._queues[queue.vhost, queue.name] = queue
        self._groups[queue.group] = queue
        self._queue_counts[queue.vhost] = self.queue_count(queue.vhost) + 1
        if queue.exclusive:
            self._owners.setdefault(queue.owner, {})[queue.group] = queue
        self._count_members(queue, 1)
        self._events.append(QueueAdded(queue))
        return queue

    def _sharing(self, queue: Queue) -> Queue:
        """Return a queue whose parts are one object each for all queues that have equal ones."""
        shared = self._shared
        if len(shared) >= SHARED_PARTS_MAX:
            shared.clear()
        return msgspec.structs.replace(
            queue,
            kind=shared.setdefault(queue.kind, queue.kind),
            members=shared.setdefault(queue.members, queue.members),
            founders=shared.setdefault(queue.founders, queue.founders),
            arguments=shared.setdefault(msgspec.msgpack.encode(queue.arguments), queue.arguments),
        )

    def move_queue(self, queue: Queue) -> None:
        """Replace a queue by itself on other nodes."""
        self._count_members(self._groups[queue.group], -1)
        self._queues[queue.vhost, queue.name] = queue
        self._groups[queue.group] = queue
        if queue.exclusive:
            self._owners[queue.owner][queue.group] = queue
        self._count_members(queue, 1)
        self._events.append(QueueChanged(queue))

    def _count_members(self, queue: Queue, sign: int) -> None:
        for member in (*queue.members, *queue.leaving):
            self._replicas[member] = self._replicas.get(member, 0) + sign
        for leader in queue.members[:1]:
            self._first_leads[leader] = self._first_leads.get(leader, 0) + sign

    def drop_queue(self, queue: Queue) -> None:
        """Remove a queue with its bindings, and the auto-delete exchanges that fed only it."""
        arriving = self.bindings_of_queue(queue.vhost, queue.name)
        for binding in arriving:
            self._remove_binding(binding)
        del self._queues[queue.vhost, queue.name]
        del self._groups[queue.group]
        self._queue_counts[queue.vhost] -= 1
        if not self._queue_counts[queue.vhost]:
            del self._queue_counts[queue.vhost]
        if queue.exclusive:
            owned = self._owners[queue.owner]
            del owned[queue.group]
            if not owned:
                del self._owners[queue.owner]
        self._count_members(queue, -1)
        self.advice.drop_queue(queue.vhost, queue.name)
        self._events.append(QueueRemoved(queue))
        for exchange in self._left_unused(arriving):
            self.drop_exchange(exchange)

    def put_binding(self, binding: Binding) -> None:
        """Add a binding."""
        key = binding_key(binding)
        self._bindings[key] = binding
        source, destination = _ends(binding)
        self._by_source.setdefault(source, {})[key] = binding
        self._by_destination.setdefault(destination, {})[key] = binding
        self._events.append(BindingAdded(binding))

    def drop_binding(self, key: BindingKey) -> None:
        """Remove a binding, and its source when that is auto-delete and this was its last one."""
        binding = self._bindings[key]
        self._remove_binding(binding)
        for exchange in self._left_unused([binding]):
            self.drop_exchange(exchange)

    def _remove_binding(self, binding: Binding) -> None:
        key = binding_key(binding)
        source, destination = _ends(binding)
        # An exchange bound to itself is asked to remove that binding from both sides.
        if self._bindings.pop(key, None) is None:
            return
        leaving = self._by_source[source]
        del leaving[key]
        if not leaving:
            del self._by_source[source]
        arriving = self._by_destination[destination]
        del arriving[key]
        if not arriving:
            del self._by_destination[destination]
        self._events.append(BindingRemoved(binding))

    def _left_unused(self, removed: list[Binding]) -> list[Exchange]:
        """Return the auto-delete exchanges that have lost their last binding, each once."""
        unused: dict[str, Exchange] = {}
        for binding in removed:
            source = (binding.vhost, binding.source)
            exchange = self._exchanges.get(source)
            if exchange is not None and exchange.auto_delete and source not in self._by_source:
                unused[exchange.name] = exchange
        return list(unused.values())

    # The whole

    def snapshot(self) -> bytes:
        """Return all state; equal states give equal bytes."""
        told = self._vhost_limits or self._user_limits or self._permissions or self._policies
        plain = not (self.guarded or told) and all(
            vhost == Vhost(vhost.name) for vhost in self._vhosts.values()
        )
        advice = self.advice.all()
        used = {
            SNAPSHOT_VERSION_UNSET: not plain,
            SNAPSHOT_VERSION_SETTLED: self._parameters,
            SNAPSHOT_VERSION_FORGOTTEN: self._forgotten,
            SNAPSHOT_VERSION_UNADVISED: self._topic_permissions,
            SNAPSHOT_VERSION_TIMELESS: advice,
            SNAPSHOT_VERSION_UNRAISED: self._session_epochs,
            SNAPSHOT_VERSION: self.cluster_version > 1,
        }
        version = max([SNAPSHOT_VERSION_PLAIN, *(each for each, told in used.items() if told)])
        snapshot = Snapshot(
            version=version,
            applied_index=self.applied_index,
            bootstrapped=self.bootstrapped,
            next_group=self.next_group,
            nodes=self.nodes(),
            vhosts=self.vhosts(),
            users=self.users(),
            exchanges=self.exchanges(),
            queues=self.queues(),
            bindings=self.bindings(),
            requests=list(self.seen.nodes.items()),
            guarded=self.guarded,
            vhost_limits=list(self._vhost_limits.items()),
            user_limits=list(self._user_limits.items()),
            permissions=self.permissions(),
            policies=self.policies() + self.policies(operator=True),
            parameters=sorted(self._parameters.items()),
            forgotten=self.forgotten(),
            topic_permissions=self.topic_permissions(),
            advice=advice,
            session_epochs=sorted(self._session_epochs.items()),
            cluster_version=self.cluster_version,
        )
        return _ENCODER.encode(snapshot)

    def digest(self) -> str:
        """Return a hash of all state, to compare replicas that have applied the same index."""
        return hashlib.sha256(self.snapshot()).hexdigest()

    def contents(self) -> list[Event]:
        """Return events that lead from an empty catalog to this one."""
        return difference(CatalogStore(), self)

    def load(self, data: bytes) -> list[Event]:
        """Take over a snapshot and return what changed; SnapshotError if malformed: nothing."""
        try:
            snapshot = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SnapshotError(f"not a catalog snapshot: {error}") from error
        if snapshot.version not in SNAPSHOT_VERSIONS:
            raise SnapshotError(f"catalog snapshot version {snapshot.version} is not known")
        later = CatalogStore()
        later.fill(snapshot)
        events = difference(self, later)
        self._forget_all()
        self.fill(snapshot)
        return events

    def fill(self, snapshot: Snapshot) -> None:
        """Take over a snapshot's state; this catalog must be as new."""
        self.applied_index = snapshot.applied_index
        self.bootstrapped = snapshot.bootstrapped
        self.guarded = snapshot.guarded
        self.next_group = snapshot.next_group
        self.cluster_version = snapshot.cluster_version
        self.seen = RequestTable(dict(snapshot.requests))
        for node in snapshot.nodes:
            self.put_node(node)
        self._forgotten = dict.fromkeys(snapshot.forgotten)
        for vhost in snapshot.vhosts:
            self.put_vhost(vhost)
        for user in snapshot.users:
            self.put_user(user)
        self._session_epochs = dict(snapshot.session_epochs)
        for vhost_name, limits in snapshot.vhost_limits:
            self.put_vhost_limits(vhost_name, limits)
        for user_name, limits in snapshot.user_limits:
            self.put_user_limits(user_name, limits)
        for permission in snapshot.permissions:
            self.put_permission(permission)
        for topic_permission in snapshot.topic_permissions:
            self.put_topic_permission(topic_permission)
        for policy in snapshot.policies:
            self.put_policy(policy)
        for name, value in snapshot.parameters:
            self.put_parameter(current_name(name), value)
        for exchange in snapshot.exchanges:
            self.put_exchange(exchange)
        for queue in snapshot.queues:
            self.put_queue(queue)
        self.advice.put(snapshot.advice)
        for binding in snapshot.bindings:
            self.put_binding(binding)
        self._events = []


def _set_limits(table: dict[str, dict[str, int]], name: str, limits: dict[str, int]) -> None:
    if limits:
        table[name] = limits
    else:
        table.pop(name, None)


def _ends(binding: Binding) -> tuple[tuple[str, str], tuple[str, str, str]]:
    assert binding.destination_type in (DESTINATION_QUEUE, DESTINATION_EXCHANGE)
    source = (binding.vhost, binding.source)
    return source, (binding.vhost, binding.destination_type, binding.destination)
