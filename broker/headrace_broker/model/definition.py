"""Definitions in the catalog: users, vhosts, exchanges, queues, bindings, and rules about them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

EXCHANGE_CONSISTENT_HASH: Final = "x-consistent-hash"
EXCHANGE_DELAYED: Final = "x-delayed-message"
EXCHANGE_LOCAL_RANDOM: Final = "x-local-random"
EXCHANGE_TYPES: Final = (
    "direct",
    "fanout",
    "topic",
    "headers",
    EXCHANGE_CONSISTENT_HASH,
    EXCHANGE_DELAYED,
    EXCHANGE_LOCAL_RANDOM,
)
QUEUE_QUORUM: Final = "quorum"
QUEUE_CLASSIC: Final = "classic"

APPLY_ALL: Final = "all"
APPLY_QUEUES: Final = "queues"
APPLY_EXCHANGES: Final = "exchanges"
APPLY_QUORUM: Final = "quorum_queues"
APPLY_CLASSIC: Final = "classic_queues"
APPLY_TO: Final = (APPLY_ALL, APPLY_QUEUES, APPLY_EXCHANGES, APPLY_QUORUM, APPLY_CLASSIC)


class Vhost(msgspec.Struct, frozen=True, omit_defaults=True):
    """A name space for exchanges and queues."""

    name: str
    # kind of a durable queue declared without `x-queue-type`, "" for the broker's default
    default_queue_type: str = ""
    description: str = ""  # for people
    tags: tuple[str, ...] = ()  # for people


HASHED_SCRYPT: Final = ""
HASHED_SHA256: Final = "sha256"  # of salt and password, once, as RabbitMQ does
HASHED_SHA512: Final = "sha512"


class User(msgspec.Struct, frozen=True):
    """A user and what proves it."""

    name: str  # 1 to 255 bytes
    salt: bytes  # random bytes of the password hash
    password_hash: bytes  # of the password (`runtime/security/password.py`)
    tags: tuple[str, ...] = ()  # management roles, for instance ("administrator",)
    loopback_only: bool = False  # refuse log-ins from other than loopback addresses
    hashing: str = HASHED_SCRYPT  # one of HASHED_SCRYPT, HASHED_SHA256 and HASHED_SHA512


class Exchange(msgspec.Struct, frozen=True):
    """Routes messages; the default exchange (name "") is not stored."""

    vhost: str
    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class Queue(msgspec.Struct, frozen=True):
    """A queue and where it lives."""

    vhost: str
    name: str
    kind: str  # QUEUE_QUORUM (replicated log) or QUEUE_CLASSIC (one replica; see `logged`)
    group: int  # incarnation id, unique for ever, also the Raft group id of a quorum queue
    members: tuple[int, ...]  # node ids of its replicas, preferred leader first
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    owner: str = ""  # id of the connection that an exclusive queue belongs to, "" for none
    arguments: dict[str, Any] = {}
    # member ids that the Raft group began with, in the order of `members`: a replica that has
    # another id by now, because its node lost its data, has to be admitted first
    founders: tuple[int, ...] = ()
    # node ids of replicas that are to go and may still be needed: each goes when the members that
    # take over have everything
    leaving: tuple[int, ...] = ()
    revision: int = 0  # counts the changes of `members`

    @property
    def logged(self) -> bool:
        """True if its commands go through a Raft log, and so outlive a restart."""
        if self.kind == QUEUE_QUORUM:
            return True
        return self.durable and not self.exclusive and not self.auto_delete


class Binding(msgspec.Struct, frozen=True):
    """From an exchange to a queue or another exchange."""

    vhost: str
    source: str
    destination_type: str  # "queue" or "exchange"
    destination: str
    routing_key: str
    arguments: dict[str, Any] = {}


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of the cluster."""

    id: int  # 1 to 1023; of a node that was forgotten only a new one on an empty disk may have it
    name: str  # unique, for people
    address: str  # host:port of the inter-node listener
    machine_version: int = 1  # of the queue machine that it runs, as it said itself
    maintenance: bool = False  # it is to lead nothing and to take no clients
    disk: int = 0  # id of its data directory, as it said itself; 0 while it did not
    catalog_version: int = 0  # the newest that it knows, as it said itself; 0 while it did not
    # bytes of the largest message that it lets clients send, at least MESSAGE_BYTES_PLAIN, as it
    # said itself; 0 while it did not, as of earlier releases
    message_bytes_max: int = 0
    zone: str = ""  # what fails as a whole with the nodes in it, as it said itself; "" for unknown


class Policy(msgspec.Struct, frozen=True):
    """Settings for the queues and exchanges of a vhost whose names match a pattern."""

    vhost: str
    name: str
    pattern: str  # regular expression, searched for in names
    # settings by name (`catalog/setting.py`), for instance {"max-length": 1000}
    definition: dict[str, Any]
    priority: int = 0  # of all policies that fit, the one with the highest applies
    apply_to: str = APPLY_ALL  # one of APPLY_TO
    # an operator policy, which bounds what the other policies set; the two kinds have name spaces
    # of their own
    operator: bool = False


class Permission(msgspec.Struct, frozen=True):
    """Permission of a user in a vhost: regular expressions that are searched for in names.

    An empty expression fits no name but the empty one.
    """

    user: str
    vhost: str
    configure: str  # queues and exchanges to declare and delete
    write: str  # exchanges to publish to, ends to bind something to
    read: str  # queues to consume, get and purge; exchanges to bind something from


class TopicPermission(msgspec.Struct, frozen=True):
    """Which routing keys a user may use at a topic exchange: regular expressions.

    It narrows what a `Permission` allows. `{username}` and `{vhost}` in an expression stand for the
    user's name and the vhost's. An empty expression fits the empty routing key only.

    Attributes:
        exchange: which need not exist.
        write: routing keys to publish with.
        read: routing keys to bind with.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str
