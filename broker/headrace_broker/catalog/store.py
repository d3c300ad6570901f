"""Changes of the catalog's tables: each keeps every table in step and tells its event."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from headrace_broker.catalog.difference import difference
from headrace_broker.catalog.event import (
    BindingAdded,
    BindingRemoved,
    Event,
    ExchangeAdded,
    ExchangeRemoved,
    NodeAdded,
    QueueAdded,
    QueueRemoved,
    UserChanged,
    VhostAdded,
    VhostRemoved,
)
from headrace_broker.catalog.request import RequestTable, SeenRequests
from headrace_broker.catalog.view import DESTINATION_EXCHANGE, DESTINATION_QUEUE, CatalogView
from headrace_broker.model.binding_key import BindingKey, binding_key
from headrace_broker.model.definition import Binding, Exchange, Node, Queue, User, Vhost

SNAPSHOT_VERSION: Final = 1


class Snapshot(msgspec.Struct, frozen=True):
    """All of the catalog's state; lists are in order of creation."""

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


class SnapshotError(ValueError):
    """The octets are not a snapshot of a version that this code reads; nothing changed."""


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(Snapshot)


class CatalogStore(CatalogView):
    """The catalog's tables and the changes that they allow.

    Attributes:
        next_group: incarnation id of the next queue, from 1; never goes back.
        seen: requests that were applied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.next_group = 1
        self.seen = RequestTable()
        self._events: list[Event] = []

    def put_node(self, node: Node) -> None:
        """Add a node, or replace what is known of it."""
        self._nodes[node.id] = node
        self._replicas.setdefault(node.id, 0)
        self._events.append(NodeAdded(node))

    def put_vhost(self, vhost: Vhost) -> None:
        """Add a vhost."""
        self._vhosts[vhost.name] = vhost
        self._events.append(VhostAdded(vhost))

    def drop_vhost(self, vhost: Vhost) -> None:
        """Remove a vhost and everything in it."""
        for queue in self.queues(vhost.name):
            self.drop_queue(queue)
        for exchange in self.exchanges(vhost.name):
            self.drop_exchange(exchange)
        del self._vhosts[vhost.name]
        self._events.append(VhostRemoved(vhost))

    def put_user(self, user: User) -> None:
        """Add or replace a user."""
        self._users[user.name] = user
        self._events.append(UserChanged(user.name, user))

    def drop_user(self, name: str) -> None:
        """Remove a user."""
        del self._users[name]
        self._events.append(UserChanged(name, None))

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

    def put_queue(self, queue: Queue) -> None:
        """Add a queue and count its replicas."""
        self._queues[queue.vhost, queue.name] = queue
        self._groups[queue.group] = queue
        if queue.exclusive:
            self._owners.setdefault(queue.owner, {})[queue.group] = queue
        for member in queue.members:
            self._replicas[member] = self._replicas.get(member, 0) + 1
        self._events.append(QueueAdded(queue))

    def drop_queue(self, queue: Queue) -> None:
        """Remove a queue with its bindings, and the auto-delete exchanges that fed only it."""
        arriving = self.bindings_of_queue(queue.vhost, queue.name)
        for binding in arriving:
            self._remove_binding(binding)
        del self._queues[queue.vhost, queue.name]
        del self._groups[queue.group]
        if queue.exclusive:
            owned = self._owners[queue.owner]
            del owned[queue.group]
            if not owned:
                del self._owners[queue.owner]
        for member in queue.members:
            self._replicas[member] -= 1
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
        """Return all state; equal states give equal octets."""
        snapshot = Snapshot(
            version=SNAPSHOT_VERSION,
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
        )
        return _ENCODER.encode(snapshot)

    def digest(self) -> str:
        """Return a hash of all state, to compare replicas that have applied the same index."""
        return hashlib.sha256(self.snapshot()).hexdigest()

    def contents(self) -> list[Event]:
        """Return events that lead from an empty catalog to this one."""
        return [
            *(NodeAdded(node) for node in self.nodes()),
            *(VhostAdded(vhost) for vhost in self.vhosts()),
            *(UserChanged(user.name, user) for user in self.users()),
            *(ExchangeAdded(exchange) for exchange in self.exchanges()),
            *(QueueAdded(queue) for queue in self.queues()),
            *(BindingAdded(binding) for binding in self.bindings()),
        ]

    def load(self, data: bytes) -> list[Event]:
        """Take over the state in a snapshot, and return what changed by that.

        Raises:
            SnapshotError: the octets are not a snapshot; nothing changed.
        """
        try:
            snapshot = _DECODER.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SnapshotError(f"not a catalog snapshot: {error}") from error
        if snapshot.version != SNAPSHOT_VERSION:
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
        self.next_group = snapshot.next_group
        self.seen = RequestTable(dict(snapshot.requests))
        for node in snapshot.nodes:
            self.put_node(node)
        for vhost in snapshot.vhosts:
            self.put_vhost(vhost)
        for user in snapshot.users:
            self.put_user(user)
        for exchange in snapshot.exchanges:
            self.put_exchange(exchange)
        for queue in snapshot.queues:
            self.put_queue(queue)
        for binding in snapshot.bindings:
            self.put_binding(binding)
        self._events = []


def _ends(binding: Binding) -> tuple[tuple[str, str], tuple[str, str, str]]:
    assert binding.destination_type in (DESTINATION_QUEUE, DESTINATION_EXCHANGE)
    source = (binding.vhost, binding.source)
    return source, (binding.vhost, binding.destination_type, binding.destination)
