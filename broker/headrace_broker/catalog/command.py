"""Changes to the catalog: what its log holds.

Commands are tagged MessagePack maps. A field that a reader does not know is ignored and one that
is absent has its default, so fields may be added; a node stops at a command that it does not know,
so a new one, or a new meaning of an old one, is proposed only when all nodes know it
(`catalog.version`, where each command has a row).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headrace_broker.catalog.advice import Advice
from headrace_broker.catalog.request import ENVELOPE_OCTETS, Request, encode_envelope
from headrace_broker.model.definition import (
    Binding,
    Exchange,
    Node,
    Permission,
    Policy,
    TopicPermission,
    User,
    Vhost,
)


class Command(msgspec.Struct, frozen=True, tag_field="do", kw_only=True):
    """Base of the commands.

    Attributes:
        version: catalog version as of which the command is to be applied; absent where that is the
            one with which the command came. A node that does not know it stops.
    """

    version: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def as_of(self) -> int:
        """Catalog version as of which the command is to be applied, 0 for its first."""
        return 0 if isinstance(self.version, msgspec.UnsetType) else self.version


class Barrier(Command, frozen=True, tag="barrier"):
    """Changes nothing; once it is applied somewhere, everything before it is too."""


class Bootstrap(Command, frozen=True, tag="bootstrap"):
    """Fill a new cluster's catalog: nodes, default vhost with its exchanges, default user.

    Attributes:
        grant: the user gets all permissions in that vhost, and from now on permissions decide.
    """

    nodes: tuple[Node, ...]
    vhost: str
    user: User
    grant: bool = False


class DeclareNodes(Command, frozen=True, tag="declare_nodes"):
    """Add nodes, or change the name or address of known ones."""

    nodes: tuple[Node, ...]


class AnnounceNode(Command, frozen=True, tag="announce_node"):
    """Say what a known node is now.

    Attributes:
        machine_version: of the queue machine that it runs.
        disk: id of its data directory, 0 for as known.
        name: "" for as known.
        address: likewise.
        catalog_version: the newest that it knows; 0, as from a node of before there were any, for
            the one that its queue machine came with. Older nodes ignore it, so it is told again
            whenever another node is news.
        message_bytes_max: octets of the largest message that it lets clients send, at least
            MESSAGE_BYTES_PLAIN; 0 from nodes of before it could be more. These ignore it.
    """

    node: int
    machine_version: int
    disk: int = 0
    name: str = ""
    address: str = ""
    catalog_version: int = 0
    message_bytes_max: int = 0


class AdmitNode(Command, frozen=True, tag="admit_node"):
    """Add a node to a running cluster; one that is known is as it says from now on."""

    node: Node


class SetMaintenance(Command, frozen=True, tag="set_maintenance"):
    """Have a node drained, or let it serve again."""

    node: int
    on: bool


class ForgetNode(Command, frozen=True, tag="forget_node"):
    """Remove a node from the cluster; with it go the queues that lived in its memory.

    Attributes:
        bars_unknown: where its disk is not known, no node is admitted under its id that comes with
            one, until somebody lets one join by name and address. Absent from older entries.
    """

    node: int
    bars_unknown: bool = False


class DeclareVhost(Command, frozen=True, tag="declare_vhost"):
    """Create a vhost with its `amq.` exchanges."""

    name: str


class PutVhost(Command, frozen=True, tag="put_vhost"):
    """Create a vhost with its `amq.` exchanges, or change the properties of a known one.

    Attributes:
        creator: user who gets all permissions in a vhost that is created, "" for none.
    """

    vhost: Vhost
    creator: str = ""


class DeleteVhost(Command, frozen=True, tag="delete_vhost"):
    """Delete a vhost and everything in it."""

    name: str


class PutUser(Command, frozen=True, tag="put_user"):
    """Create or replace a user.

    Attributes:
        end_sessions: sessions of the user that began before are over (`CatalogView.session_epoch`).
            Absent from older entries.
    """

    user: User
    end_sessions: bool = False


class RehashUser(Command, frozen=True, tag="rehash_user"):
    """Prove a user's password, which stays, by a scrypt hash from now on.

    Attributes:
        current: the hash that proves it now; if another one does, nothing changes.
        salt: of the new hash.
        password_hash: the new hash.
    """

    name: str
    current: bytes
    salt: bytes
    password_hash: bytes


class DeleteUser(Command, frozen=True, tag="delete_user"):
    """Delete a user."""

    name: str


class PutPermission(Command, frozen=True, tag="put_permission"):
    """Set what a user may do in a vhost."""

    permission: Permission


class DeletePermission(Command, frozen=True, tag="delete_permission"):
    """Take away what a user may do in a vhost."""

    user: str
    vhost: str


class PutTopicPermission(Command, frozen=True, tag="put_topic_permission"):
    """Set which routing keys a user may use at a topic exchange."""

    permission: TopicPermission


class DeleteTopicPermissions(Command, frozen=True, tag="delete_topic_permissions"):
    """Let a user use any routing key again.

    Attributes:
        exchange: where, "" at all exchanges of the vhost.
    """

    user: str
    vhost: str
    exchange: str = ""


class PutPolicy(Command, frozen=True, tag="put_policy"):
    """Create or replace a policy or an operator policy."""

    policy: Policy


class DeletePolicy(Command, frozen=True, tag="delete_policy"):
    """Delete a policy, or an operator policy."""

    vhost: str
    name: str
    operator: bool = False


class SetVhostLimits(Command, frozen=True, tag="set_vhost_limits"):
    """Set limits of a vhost.

    Attributes:
        limits: by the names in `catalog.setting.VHOST_LIMITS`; a negative value removes one.
        replace: limits that are not named are removed.
    """

    vhost: str
    limits: dict[str, int]
    replace: bool = False


class SetUserLimits(Command, frozen=True, tag="set_user_limits"):
    """Set limits of a user.

    Attributes:
        limits: by the names in `catalog.setting.USER_LIMITS`; a negative value removes one.
        replace: limits that are not named are removed.
    """

    user: str
    limits: dict[str, int]
    replace: bool = False


class SetParameter(Command, frozen=True, tag="set_parameter"):
    """Set a limit of flow control for all nodes.

    Attributes:
        name: one of `model.flow_parameter.PARAMETERS`.
        value: as stored there; None for what each node's configuration says.
    """

    name: str
    value: int | str | None = None


class PutAdvice(Command, frozen=True, tag="put_advice"):
    """Keep advice on queues, all of it or none.

    Attributes:
        at_ms: Unix time; what has lapsed by then is dropped.
    """

    items: tuple[Advice, ...]
    at_ms: int


class DeleteAdvice(Command, frozen=True, tag="delete_advice"):
    """Drop advice on a queue.

    Attributes:
        kind: "" for every kind.
        author: "" for everybody's.
    """

    vhost: str
    queue: str
    kind: str = ""
    author: str = ""


class DeclareExchange(Command, frozen=True, tag="declare_exchange"):
    """Create an exchange unless an equivalent one exists."""

    exchange: Exchange


class DeleteExchange(Command, frozen=True, tag="delete_exchange"):
    """Delete an exchange and its bindings.

    Attributes:
        if_unused: only when no binding leaves it.
    """

    vhost: str
    name: str
    if_unused: bool = False


class DeclareQueue(Command, frozen=True, tag="declare_queue"):
    """Create a queue unless an equivalent one exists.

    Attributes:
        kind: QUEUE_QUORUM or QUEUE_CLASSIC.
        exclusive: belongs to connection `owner` alone.
        owner: id of the asking connection; not empty when `exclusive`.
        preferred_node: node id of the first replica where that node is known, 0 for the one that is
            first for the fewest queues.
        replicas: how many are wanted, 1 to REPLICAS_MAX; a classic queue has one.
        member_ids: of the nodes whose replicas have other ids than their nodes, because they lost
            their data once; as the proposer knows them. One that it does not know of yet is
            admitted to the queue's group later.
    """

    vhost: str
    name: str
    kind: str
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    owner: str = ""
    arguments: dict[str, Any] = {}
    preferred_node: int = 0
    replicas: int = 1
    member_ids: tuple[int, ...] = ()


class SetMembers(Command, frozen=True, tag="set_members"):
    """Move a queue to other nodes; its leader makes the changes.

    Attributes:
        group: the incarnation that is meant.
        add: node ids that get a replica.
        remove: node ids whose replicas are to go once those that are added have everything.
    """

    vhost: str
    name: str
    group: int
    add: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()


class SettleMembers(Command, frozen=True, tag="settle_members"):
    """Report that replicas which were to go are not needed any more.

    Attributes:
        revision: of the queue when that was found out; a later one voids it.
        left: node ids.
    """

    group: int
    revision: int
    left: tuple[int, ...]


class DeleteQueue(Command, frozen=True, tag="delete_queue"):
    """Delete a queue and its bindings.

    Attributes:
        group: the incarnation that is meant, 0 for any: a queue that was declared anew stays.
    """

    vhost: str
    name: str
    group: int = 0


class Bind(Command, frozen=True, tag="bind"):
    """Add a binding."""

    binding: Binding


class Unbind(Command, frozen=True, tag="unbind"):
    """Remove a binding."""

    binding: Binding


class DropTransient(Command, frozen=True, tag="drop_transient"):
    """Delete the queues that went with a connection or with a node's memory.

    Attributes:
        owner: delete the exclusive queues of this connection; "" for none.
        node: delete the queues that lived in this node's memory; 0 for none.
        group_below: spare queues whose incarnation is not below this; 0 spares none.
    """

    owner: str = ""
    node: int = 0
    group_below: int = 0


AnyCommand = (
    Barrier
    | Bootstrap
    | DeclareNodes
    | AnnounceNode
    | AdmitNode
    | SetMaintenance
    | ForgetNode
    | DeclareVhost
    | PutVhost
    | DeleteVhost
    | SetVhostLimits
    | PutUser
    | RehashUser
    | DeleteUser
    | SetUserLimits
    | PutPermission
    | DeletePermission
    | PutTopicPermission
    | DeleteTopicPermissions
    | PutPolicy
    | DeletePolicy
    | SetParameter
    | PutAdvice
    | DeleteAdvice
    | DeclareExchange
    | DeleteExchange
    | DeclareQueue
    | SetMembers
    | SettleMembers
    | DeleteQueue
    | Bind
    | Unbind
    | DropTransient
)

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(AnyCommand)


class CommandError(ValueError):
    """A command cannot be encoded, or its octets are not one; nothing changed."""


def encode_command(command: AnyCommand) -> bytes:
    """Encode a command; `encode_request` puts the request's identity before it.

    Raises:
        CommandError: an argument has a value that cannot be stored.
    """
    try:
        return _ENCODER.encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CommandError(f"cannot be stored: {error}") from error


def encode_request(request: Request, command: AnyCommand) -> bytes:
    """Return the log entry for a command.

    Raises:
        CommandError: an argument has a value that cannot be stored.
    """
    return encode_envelope(request, encode_command(command))


def decode_command(data: bytes) -> AnyCommand:
    """Return the command in a log entry.

    Raises:
        CommandError: the octets after the envelope are not a command.
    """
    try:
        command: AnyCommand = _DECODER.decode(memoryview(data)[ENVELOPE_OCTETS:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"not understood: {error}") from error
    return command
