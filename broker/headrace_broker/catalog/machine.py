"""The catalog's state machine: commands in log order, a result and events for each.

Semantics are RabbitMQ's: deleting a queue or an exchange takes its bindings along, and an
auto-delete exchange goes with its last binding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.argument import (
    QUEUE_TYPE,
    first_difference,
    is_kind_asked,
    phrases,
    table_problem,
)
from headrace_broker.catalog.cluster import ClusterChanges
from headrace_broker.catalog.cluster_version import in_force
from headrace_broker.catalog.event import Event
from headrace_broker.catalog.exchange_argument import binding_problem, type_problem
from headrace_broker.catalog.governance import DEFAULT_EXCHANGES, name_problem, no_vhost
from headrace_broker.catalog.placement import lead_by_fewest, place, places_of
from headrace_broker.catalog.request import ENVELOPE_BYTES, decode_envelope
from headrace_broker.catalog.result import (
    Exists,
    Inequivalent,
    InUse,
    Locked,
    NotFound,
    Ok,
    Refused,
    Repeated,
    Result,
)
from headrace_broker.catalog.version import ZONES, check_entry
from headrace_broker.catalog.view import DESTINATION_EXCHANGE, DESTINATION_QUEUE
from headrace_broker.model.binding_key import binding_key
from headrace_broker.model.definition import (
    QUEUE_CLASSIC,
    QUEUE_QUORUM,
    Binding,
    Exchange,
    Queue,
    Vhost,
)
from headrace_broker.model.limits import CATALOG_COMMAND_BYTES_MAX, NAME_BYTES_MAX, REPLICAS_MAX
from headrace_raftlog.model.membership import member_node

_DEFAULT_NAMES: Final = frozenset(name for name, _, _ in DEFAULT_EXCHANGES)


class Catalog(ClusterChanges):
    """Applies commands; deterministic, and total: all but what a later release says is answered."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[type[commands.Command], Callable[[Any], Result]] = {
            commands.Barrier: self._barrier,
            commands.Bootstrap: self._bootstrap,
            commands.DeclareNodes: self._declare_nodes,
            commands.AnnounceNode: self._announce_node,
            commands.AdmitNode: self._admit_node,
            commands.SetMaintenance: self._set_maintenance,
            commands.RaiseClusterVersion: self._raise_cluster_version,
            commands.ForgetNode: self._forget_node,
            commands.DeclareVhost: self._declare_vhost,
            commands.PutVhost: self._put_vhost,
            commands.DeleteVhost: self._delete_vhost,
            commands.SetVhostLimits: self._set_vhost_limits,
            commands.PutUser: self._put_user,
            commands.RehashUser: self._rehash_user,
            commands.DeleteUser: self._delete_user,
            commands.SetUserLimits: self._set_user_limits,
            commands.PutPermission: self._put_permission,
            commands.DeletePermission: self._delete_permission,
            commands.PutTopicPermission: self._put_topic_permission,
            commands.DeleteTopicPermissions: self._delete_topic_permissions,
            commands.PutPolicy: self._put_policy,
            commands.DeletePolicy: self._delete_policy,
            commands.SetParameter: self._set_parameter,
            commands.PutAdvice: self._put_advice,
            commands.DeleteAdvice: self._delete_advice,
            commands.DeclareExchange: self._declare_exchange,
            commands.DeleteExchange: self._delete_exchange,
            commands.DeclareQueue: self._declare_queue,
            commands.SetMembers: self._set_members,
            commands.SettleMembers: self._settle_members,
            commands.DeleteQueue: self._delete_queue,
            commands.Bind: self._bind,
            commands.Unbind: self._unbind,
            commands.DropTransient: self._drop_transient,
        }

    @staticmethod
    def restore(data: bytes) -> Catalog:
        """Return the catalog that a snapshot was taken of; SnapshotError for anything else."""
        catalog = Catalog()
        catalog.load(data)
        return catalog

    def apply(self, index: int, data: bytes) -> tuple[Result, list[Event]]:
        """Apply one log entry.

        Args:
            index: its log index, above all applied ones.
            data: the entry, as `encode_request` makes it; anything else is refused.

        Returns:
            The answer, and what changed; only `Ok` comes with changes.

        Raises CatalogVersionError: the entry is of a later release; nothing changed, and nothing
        may be applied any more.
        """
        check_entry(data)
        self.applied_index = index
        request = decode_envelope(data)
        if request is None:
            return Refused("not a catalog request"), []
        if not self.seen.admit(request):
            return Repeated(), []
        byte_count = len(data) - ENVELOPE_BYTES
        if byte_count > CATALOG_COMMAND_BYTES_MAX:
            limit = f"more than {CATALOG_COMMAND_BYTES_MAX}"
            return Refused(f"the command has {byte_count} bytes, {limit}"), []
        try:
            command = commands.decode_command(data)
        except commands.CommandError as error:
            return Refused(str(error)), []
        result = self._handlers[type(command)](command)
        events = self._events
        self._events = []
        return result, events

    def seen_boot(self, node: int) -> int:
        """Return the newest boot from which a node has asked for anything, -1 before it did."""
        return self.seen.boot(node)

    # Cluster

    def _barrier(self, _command: commands.Barrier) -> Result:
        return Ok()

    def _bootstrap(self, command: commands.Bootstrap) -> Result:
        if self.bootstrapped:
            return Exists()
        problem = (
            self._nodes_problem(command.nodes)
            or name_problem("vhost", command.vhost)
            or name_problem("user", command.user.name)
        )
        if problem:
            return Refused(problem)
        self.bootstrapped = True
        for node in command.nodes:
            self.put_node(node)
        if self.vhost(command.vhost) is None:
            self._create_vhost(Vhost(command.vhost))
        self.put_user(command.user)
        if command.grant:
            self.guarded = True
            self._grant_all(command.user.name, command.vhost)
        return Ok()

    # Exchanges

    def _declare_exchange(self, command: commands.DeclareExchange) -> Result:
        wanted = command.exchange
        if self.vhost(wanted.vhost) is None:
            return no_vhost(wanted.vhost)
        current = self.exchange(wanted.vhost, wanted.name)
        if current is not None:
            return _compare_exchanges(wanted, current)
        problem = name_problem("exchange", wanted.name) or table_problem(wanted.arguments)
        problem = problem or type_problem(wanted)
        if problem:
            return Refused(problem)
        self.put_exchange(wanted)
        return Ok(wanted)

    def _delete_exchange(self, command: commands.DeleteExchange) -> Result:
        exchange = self.exchange(command.vhost, command.name)
        if command.name in _DEFAULT_NAMES or not command.name:
            return Refused(f"deletion of default {_named('exchange', command)} is not allowed")
        if exchange is None:
            return NotFound(_named("exchange", command))
        if command.if_unused and self.bindings_of_source(command.vhost, command.name):
            return InUse(_named("exchange", command))
        self.drop_exchange(exchange)
        return Ok(exchange)

    # Queues

    def _declare_queue(self, command: commands.DeclareQueue) -> Result:
        if self.vhost(command.vhost) is None:
            return no_vhost(command.vhost)
        current = self.queue(command.vhost, command.name)
        if current is not None:
            return _compare_queues(command, current)
        problem = self._queue_problem(command)
        if problem:
            return Refused(problem)
        replicas = command.replicas if command.kind == QUEUE_QUORUM else 1
        known = {node.id: self.replica_count(node.id) for node in self.nodes()}
        # What is on one node stays where it was asked for, drained or not.
        avoided = [node.id for node in self.nodes() if node.maintenance and replicas > 1]
        places = places_of(self.nodes(), hosts=in_force(self).catalog >= ZONES)
        members = place(known, command.preferred_node, replicas, avoided, places)
        if not command.preferred_node:
            leads = {node: self.first_lead_count(node) for node in members}
            members = lead_by_fewest(members, leads, avoided)
        renewed = {int(member_node(member)): member for member in command.member_ids}
        queue = Queue(
            vhost=command.vhost,
            name=command.name,
            kind=command.kind,
            group=self.next_group,
            members=members,
            durable=command.durable,
            exclusive=command.exclusive,
            auto_delete=command.auto_delete,
            owner=command.owner if command.exclusive else "",
            arguments=command.arguments,
            founders=tuple([renewed.get(node, node) for node in members]),
        )
        self.next_group += 1
        return Ok(self.put_queue(queue))

    def _queue_problem(self, command: commands.DeclareQueue) -> str:
        problem = name_problem("queue", command.name) or table_problem(command.arguments)
        if problem:
            return problem
        if command.kind not in (QUEUE_QUORUM, QUEUE_CLASSIC):
            return f"unknown queue type '{command.kind}'"
        if not 1 <= command.replicas <= REPLICAS_MAX:
            return f"{command.replicas} replicas are not within 1 to {REPLICAS_MAX}"
        if command.exclusive and not command.owner:
            return "an exclusive queue needs an owner"
        if not self._nodes:
            return "the cluster has no nodes"
        limit = self.vhost_limits(command.vhost).get("max-queues")
        if limit is not None and self.queue_count(command.vhost) >= limit:
            # In the words that RabbitMQ uses.
            return (
                f"cannot declare queue '{command.name}': "
                f"queue limit in vhost '{command.vhost}' ({limit}) is reached"
            )
        return ""

    def _delete_queue(self, command: commands.DeleteQueue) -> Result:
        queue = self.queue(command.vhost, command.name)
        if queue is None or command.group not in (0, queue.group):
            return NotFound(_named("queue", command))
        self.drop_queue(queue)
        return Ok(queue)

    def _drop_transient(self, command: commands.DropTransient) -> Result:
        doomed = self.queues_of_owner(command.owner) if command.owner else []
        if command.node:
            doomed += [
                queue
                for queue in self.queues()
                if not queue.logged
                and command.node in queue.members
                and not (queue.exclusive and queue.owner == command.owner)
            ]
        if command.group_below:
            doomed = [queue for queue in doomed if queue.group < command.group_below]
        for queue in doomed:
            self.drop_queue(queue)
        return Ok(tuple(doomed))

    # Bindings

    def _bind(self, command: commands.Bind) -> Result:
        binding = command.binding
        problem = self._binding_problem(binding)
        if problem is not None:
            return problem
        if self.binding_exists(binding_key(binding)):
            return Exists(binding)
        self.put_binding(binding)
        return Ok(binding)

    def _binding_problem(self, binding: Binding) -> Result | None:
        if binding.destination_type not in (DESTINATION_QUEUE, DESTINATION_EXCHANGE):
            return Refused(f"unknown destination type '{binding.destination_type}'")
        if not binding.source or not binding.destination:
            return Refused("the default exchange has fixed bindings")
        if self.vhost(binding.vhost) is None:
            return no_vhost(binding.vhost)
        source = self.exchange(binding.vhost, binding.source)
        if source is None:
            return NotFound(f"exchange '{binding.source}' in vhost '{binding.vhost}'")
        find = self.queue if binding.destination_type == DESTINATION_QUEUE else self.exchange
        if find(binding.vhost, binding.destination) is None:
            what = f"{binding.destination_type} '{binding.destination}'"
            return NotFound(f"{what} in vhost '{binding.vhost}'")
        problem = table_problem(binding.arguments)
        if len(binding.routing_key.encode()) > NAME_BYTES_MAX:
            problem = f"the routing key has more than {NAME_BYTES_MAX} bytes"
        problem = problem or binding_problem(source, binding)
        return Refused(problem) if problem else None

    def _unbind(self, command: commands.Unbind) -> Result:
        binding = command.binding
        if table_problem(binding.arguments) or not self.binding_exists(binding_key(binding)):
            source = f"from exchange '{binding.source}'"
            destination = f"to {binding.destination_type} '{binding.destination}'"
            return NotFound(f"binding {source} {destination} in vhost '{binding.vhost}'")
        self.drop_binding(binding_key(binding))
        return Ok(binding)


def _named(kind: str, command: commands.DeleteExchange | commands.DeleteQueue) -> str:
    return f"{kind} '{command.name}' in vhost '{command.vhost}'"


def _compare_exchanges(wanted: Exchange, current: Exchange) -> Result:
    what = f"exchange '{wanted.name}' in vhost '{wanted.vhost}'"
    for field, received, found in (
        ("type", wanted.type, current.type),
        ("durable", _flag(wanted.durable), _flag(current.durable)),
        ("auto_delete", _flag(wanted.auto_delete), _flag(current.auto_delete)),
        ("internal", _flag(wanted.internal), _flag(current.internal)),
    ):
        if received != found:
            return Inequivalent(what, field, f"'{received}'", f"'{found}'")
    return _compare_arguments(what, wanted.arguments, current.arguments) or Exists(current)


def _compare_queues(wanted: commands.DeclareQueue, current: Queue) -> Result:
    what = f"queue '{wanted.name}' in vhost '{wanted.vhost}'"
    if wanted.exclusive != current.exclusive:
        return Locked(what)
    if current.exclusive and wanted.owner != current.owner:
        return Locked(what)
    # The default of the vhost is for new queues: one that is there is what it is.
    kind = wanted.kind if is_kind_asked(wanted.arguments) else current.kind
    for field, received, found in (
        ("durable", _flag(wanted.durable), _flag(current.durable)),
        ("auto_delete", _flag(wanted.auto_delete), _flag(current.auto_delete)),
        (QUEUE_TYPE, kind, current.kind),
    ):
        if received != found:
            return Inequivalent(what, field, f"'{received}'", f"'{found}'")
    # Kinds are equal by now, whether one was asked for by name or left to the default.
    asked, known = (
        {name: value for name, value in table.items() if name != QUEUE_TYPE}
        for table in (wanted.arguments, current.arguments)
    )
    return _compare_arguments(what, asked, known) or Exists(current)


def _compare_arguments(
    what: str, wanted: dict[str, Any], current: dict[str, Any]
) -> Inequivalent | None:
    problem = table_problem(wanted)
    if problem:
        return Inequivalent(what, "arguments", f"a table that is invalid ({problem})", "valid")
    name = first_difference(wanted, current)
    if name is None:
        return None
    return Inequivalent(what, name, *phrases(wanted, current, name))


def _flag(value: bool) -> str:
    return "true" if value else "false"
