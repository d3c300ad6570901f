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
from headrace_broker.catalog.request import ENVELOPE_BYTES, Request, encode_envelope
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
    """Base of the commands."""

    # catalog version as of which the command is to be applied; absent where that is the one with
    # which the command came. A node that does not know it stops.
    version: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def as_of(self) -> int:
        """Catalog version as of which the command is to be applied, 0 for its first."""
        return 0 if isinstance(self.version, msgspec.UnsetType) else self.version


class Barrier(Command, frozen=True, tag="barrier"):
    """Changes nothing; once it is applied somewhere, everything before it is too."""


class Bootstrap(Command, frozen=True, tag="bootstrap"):
    """Fill a new cluster's catalog: nodes, default vhost with its exchanges, default user."""

    nodes: tuple[Node, ...]
    vhost: str
    user: User
    grant: bool = False  # the user gets all permissions there, and from now on they decide


class DeclareNodes(Command, frozen=True, tag="declare_nodes"):
    """Add nodes, or change the name or address of known ones."""

    nodes: tuple[Node, ...]


class AnnounceNode(Command, frozen=True, tag="announce_node"):
    """Say what a known node is now."""

    node: int
    machine_version: int  # of the queue machine that it runs
    disk: int = 0  # id of its data directory, 0 for as known
    name: str = ""  # "" for as known
    address: str = ""  # likewise
    # the newest that it knows; 0, as from a node of before there were any, for the one that its
    # queue machine came with. Older nodes ignore it, so it is told again whenever another node is
    # news.
    catalog_version: int = 0
    # bytes of the largest message that it lets clients send, at least MESSAGE_BYTES_PLAIN; 0 from
    # nodes of before it could be more. These ignore it.
    message_bytes_max: int = 0
    zone: str = ""  # what fails as a whole with the nodes in it, "" for unknown


class AdmitNode(Command, frozen=True, tag="admit_node"):
    """Add a node to a running cluster; one that is known is as it says from now on."""

    node: Node


class SetMaintenance(Command, frozen=True, tag="set_maintenance"):
    """Drain a node, or revive it."""

    node: int
    on: bool


class RaiseClusterVersion(Command, frozen=True, tag="raise_cluster_version"):
    """Use what all nodes know from now on, for good."""

    to: int


class ForgetNode(Command, frozen=True, tag="forget_node"):
    """Remove a node from the cluster; with it go the queues that lived in its memory."""

    node: int
    # where its disk is not known, no node is admitted under its id that comes with one, until
    # somebody lets one join by name and address. Absent from older entries.
    bars_unknown: bool = False


class DeclareVhost(Command, frozen=True, tag="declare_vhost"):
    """Create a vhost with its `amq.` exchanges."""

    name: str


class PutVhost(Command, frozen=True, tag="put_vhost"):
    """Create a vhost with its `amq.` exchanges, or change the properties of a known one."""

    vhost: Vhost
    creator: str = ""  # user who gets all permissions in a vhost that is created, "" for nobody


class DeleteVhost(Command, frozen=True, tag="delete_vhost"):
    """Delete a vhost and everything in it."""

    name: str


class PutUser(Command, frozen=True, tag="put_user"):
    """Create or replace a user."""

    user: User
    # sessions of the user that began before are over (`CatalogView.session_epoch`). Absent from
    # older entries.
    end_sessions: bool = False


class RehashUser(Command, frozen=True, tag="rehash_user"):
    """Prove a user's password, which stays, by a scrypt hash from now on."""

    name: str
    current: bytes  # the hash that proves it now; if another one does, nothing changes
    salt: bytes  # of the new hash
    password_hash: bytes  # the new hash


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
    """Lift the topic permission of a user."""

    user: str
    vhost: str
    exchange: str = ""  # where, "" at all exchanges of the vhost


class PutPolicy(Command, frozen=True, tag="put_policy"):
    """Create or replace a policy or an operator policy."""

    policy: Policy


class DeletePolicy(Command, frozen=True, tag="delete_policy"):
    """Delete a policy, or an operator policy."""

    vhost: str
    name: str
    operator: bool = False


class SetVhostLimits(Command, frozen=True, tag="set_vhost_limits"):
    """Set limits of a vhost."""

    vhost: str
    limits: dict[str, int]  # by the names in VHOST_LIMITS; a negative value removes one
    replace: bool = False  # limits that are not named are removed


class SetUserLimits(Command, frozen=True, tag="set_user_limits"):
    """Set limits of a user."""

    user: str
    limits: dict[str, int]  # by the names in USER_LIMITS; a negative value removes one
    replace: bool = False  # limits that are not named are removed


class SetParameter(Command, frozen=True, tag="set_parameter"):
    """Set a limit of flow control for all nodes."""

    name: str  # one of `model.flow_parameter.PARAMETERS`
    value: int | str | None = None  # as stored there; None for what each node's configuration says


class PutAdvice(Command, frozen=True, tag="put_advice"):
    """Keep advice on queues, all of it or none."""

    items: tuple[Advice, ...]
    at_ms: int  # Unix time; what has lapsed by then is dropped


class DeleteAdvice(Command, frozen=True, tag="delete_advice"):
    """Drop advice on a queue."""

    vhost: str
    queue: str
    kind: str = ""  # "" for every kind
    author: str = ""  # "" for everybody's


class DeclareExchange(Command, frozen=True, tag="declare_exchange"):
    """Create an exchange unless an equivalent one exists."""

    exchange: Exchange


class DeleteExchange(Command, frozen=True, tag="delete_exchange"):
    """Delete an exchange and its bindings."""

    vhost: str
    name: str
    if_unused: bool = False  # only when no binding leaves it


class DeclareQueue(Command, frozen=True, tag="declare_queue"):
    """Create a queue unless an equivalent one exists."""

    vhost: str
    name: str
    kind: str  # QUEUE_QUORUM or QUEUE_CLASSIC
    durable: bool = True
    exclusive: bool = False  # belongs to connection `owner` alone
    auto_delete: bool = False
    owner: str = ""  # id of the asking connection; not empty when `exclusive`
    arguments: dict[str, Any] = {}
    preferred_node: int = 0  # node id of the first replica if known, 0 for the least loaded
    replicas: int = 1  # how many are wanted, 1 to REPLICAS_MAX; a classic queue has one
    # of the nodes whose replicas have other ids than their nodes, because they lost their data
    # once; as the proposer knows them. One that it does not know of yet is admitted to the queue's
    # group later.
    member_ids: tuple[int, ...] = ()


class SetMembers(Command, frozen=True, tag="set_members"):
    """Move a queue to other nodes; its leader makes the changes."""

    vhost: str
    name: str
    group: int  # the incarnation that is meant
    add: tuple[int, ...] = ()  # node ids that get a replica
    remove: tuple[int, ...] = ()  # node ids whose replicas go once those added have everything


class SettleMembers(Command, frozen=True, tag="settle_members"):
    """Report that replicas which were to go are not needed any more."""

    group: int
    revision: int  # of the queue when that was found out; a later one voids it
    left: tuple[int, ...]  # node ids


class DeleteQueue(Command, frozen=True, tag="delete_queue"):
    """Delete a queue and its bindings."""

    vhost: str
    name: str
    group: int = 0  # the incarnation that is meant, 0 for any: a queue that was declared anew stays


class Bind(Command, frozen=True, tag="bind"):
    """Add a binding."""

    binding: Binding


class Unbind(Command, frozen=True, tag="unbind"):
    """Remove a binding."""

    binding: Binding


class DropTransient(Command, frozen=True, tag="drop_transient"):
    """Delete the queues that went with a connection or with a node's memory."""

    owner: str = ""  # delete the exclusive queues of this connection; "" for none
    node: int = 0  # delete the queues that lived in this node's memory; 0 for none
    group_below: int = 0  # spare queues whose incarnation is not below this; 0 spares none


AnyCommand = (
    Barrier
    | Bootstrap
    | DeclareNodes
    | AnnounceNode
    | AdmitNode
    | SetMaintenance
    | RaiseClusterVersion
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
    """A command cannot be encoded, or its bytes are not one; nothing changed."""


def encode_command(command: AnyCommand) -> bytes:
    """Encode a command without its request; CommandError where an argument cannot be stored."""
    try:
        return _ENCODER.encode(command)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CommandError(f"cannot be stored: {error}") from error


def encode_request(request: Request, command: AnyCommand) -> bytes:
    """Return the log entry for a command; CommandError where an argument cannot be stored."""
    return encode_envelope(request, encode_command(command))


def decode_command(data: bytes) -> AnyCommand:
    """Return the command in a log entry; CommandError where there is none after the envelope."""
    try:
        command: AnyCommand = _DECODER.decode(memoryview(data)[ENVELOPE_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"not understood: {error}") from error
    return command
