"""From which catalog version on a command may be proposed, and which version each node knows.

Whoever adds a command, or changes what one does, raises CATALOG_VERSION and adds a row to one of
the tables here: nothing above the version that all nodes know is proposed (`upgrade_problem`), and
a node that meets a later version in the log stops instead of leaving the entry out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.cluster_version import in_force, row_of
from headrace_broker.catalog.exchange_argument import inner_type
from headrace_broker.catalog.request import ENVELOPE_BYTES, ENVELOPE_VERSION
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import EXCHANGE_LOCAL_RANDOM, Node, Queue
from headrace_raftlog.model.errors import RaftLogError

FIRST: Final = 1  # of the first nodes that said what they are; of a node that has said nothing
MEMBERS: Final = 2  # nodes and replicas that come and go, limits of flow control, topic permissions
GATED: Final = 3  # advice; moves that the catalog checks; nodes say their catalog version
SESSIONS: Final = 4  # changes of users that end their sessions; users that are told apart in time
LOCAL_RANDOM: Final = 5  # exchanges of type x-local-random
CLUSTER: Final = 6  # the cluster version
ZONES: Final = 7  # zones of nodes; replicas are spread over zones and hosts
CATALOG_VERSION: Final = 7  # the newest that this code knows

# A node of version 2 says no catalog version. One with this queue machine is not older than that.
_MACHINE_OF_MEMBERS: Final = 4

COMMAND_VERSIONS: Final[dict[type[commands.Command], int]] = {
    commands.Barrier: FIRST,
    commands.Bootstrap: FIRST,
    commands.DeclareNodes: FIRST,
    commands.AnnounceNode: FIRST,  # which is how a node says that it knows more
    commands.DeclareVhost: FIRST,
    commands.PutVhost: FIRST,
    commands.DeleteVhost: FIRST,
    commands.SetVhostLimits: FIRST,
    commands.PutUser: FIRST,
    commands.DeleteUser: FIRST,
    commands.SetUserLimits: FIRST,
    commands.PutPermission: FIRST,
    commands.DeletePermission: FIRST,
    commands.PutPolicy: FIRST,
    commands.DeletePolicy: FIRST,
    commands.DeclareExchange: FIRST,
    commands.DeleteExchange: FIRST,
    commands.DeclareQueue: FIRST,
    commands.DeleteQueue: FIRST,
    commands.Bind: FIRST,
    commands.Unbind: FIRST,
    commands.DropTransient: FIRST,
    commands.AdmitNode: MEMBERS,
    commands.SetMaintenance: MEMBERS,
    commands.ForgetNode: MEMBERS,
    commands.SetMembers: MEMBERS,
    commands.SettleMembers: MEMBERS,
    commands.SetParameter: MEMBERS,
    commands.RehashUser: MEMBERS,
    commands.PutTopicPermission: MEMBERS,
    commands.DeleteTopicPermissions: MEMBERS,
    commands.PutAdvice: GATED,
    commands.DeleteAdvice: GATED,
    commands.RaiseClusterVersion: CLUSTER,
}


class FieldVersion(NamedTuple):
    """A field that older nodes would ignore: where it is set, the command is of this version."""

    command: type[commands.Command]
    field: str
    version: int


FIELD_VERSIONS: Final = (
    FieldVersion(commands.ForgetNode, "bars_unknown", GATED),
    FieldVersion(commands.PutUser, "end_sessions", SESSIONS),
    FieldVersion(commands.AnnounceNode, "zone", ZONES),
)


class ValueVersion(NamedTuple):
    """Values that older nodes would refuse or misread: a command with one is of this version."""

    command: type[commands.Command]
    has_it: Callable[[Any], bool]
    version: int
    name: str  # of the value, for people


def _is_local_random(command: commands.DeclareExchange) -> bool:
    return inner_type(command.exchange) == EXCHANGE_LOCAL_RANDOM


VALUE_VERSIONS: Final = (
    ValueVersion(
        commands.DeclareExchange,
        _is_local_random,
        LOCAL_RANDOM,
        f"exchange type '{EXCHANGE_LOCAL_RANDOM}'",
    ),
)

# Versions from which on a command does something else; it is proposed as of the newest that all
# nodes know, and until then does what it did.
LATER_SEMANTICS: Final[dict[type[commands.Command], tuple[int, ...]]] = {
    # refuses a move onto a node with too old a queue machine; two replicas in processes of one node
    commands.SetMembers: (GATED, ZONES),
    commands.PutUser: (SESSIONS,),  # no session of a deleted user is one of the next of its name
}


class CatalogVersionError(RaftLogError):
    """The catalog's log holds an entry that only newer code understands: the node must stop."""


class _Heading(msgspec.Struct):
    """Kind and version of a command of any release, without its fields."""

    do: str = ""
    version: int = 0


_HEADINGS: Final = msgspec.msgpack.Decoder(_Heading)
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in COMMAND_VERSIONS)


def check_entry(data: bytes) -> None:
    """Stop, by CatalogVersionError, at a log entry that a later release has written."""
    if len(data) < ENVELOPE_BYTES:
        return
    if data[0] > ENVELOPE_VERSION:
        raise CatalogVersionError(_stopped(f"an entry of format {data[0]}"))
    try:
        heading = _HEADINGS.decode(memoryview(data)[ENVELOPE_BYTES:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if heading.version > CATALOG_VERSION:
        what = f"command '{heading.do}' as of catalog version {heading.version}"
        raise CatalogVersionError(_stopped(what))
    if heading.do and heading.do not in _TAGS:
        raise CatalogVersionError(_stopped(f"command '{heading.do}'"))


def _stopped(what: str) -> str:
    return (
        f"the catalog's log holds {what}, and this node knows catalog versions up to "
        f"{CATALOG_VERSION} only: start it with a release as new as its peers'"
    )


def known_version(node: Node) -> int:
    """Return the newest catalog version that a node knows, as far as it said."""
    if node.catalog_version:
        return node.catalog_version
    return MEMBERS if node.machine_version >= _MACHINE_OF_MEMBERS else FIRST


def required_version(command: commands.Command) -> int:
    """Return the catalog version that all nodes have to know before a command is proposed."""
    version = COMMAND_VERSIONS[type(command)]
    for row in FIELD_VERSIONS:
        if type(command) is row.command and getattr(command, row.field) != _default(row):
            version = max(version, row.version)
    for value in VALUE_VERSIONS:
        if type(command) is value.command and value.has_it(command):
            version = max(version, value.version)
    if isinstance(command, commands.RaiseClusterVersion):
        version = max(version, row_of(command.to).catalog)  # an older node stops at it
    return max(version, command.as_of)


def _default(row: FieldVersion) -> Any:
    return next(f.default for f in msgspec.structs.fields(row.command) if f.name == row.field)


def stamped(view: CatalogView, own: int, command: commands.AnyCommand) -> commands.AnyCommand:
    """Return a command without `upgrade_problem` as of its newest version that all nodes know."""
    known = min(
        [in_force(view).catalog, *(known_version(node) for node in _judges(view, own, command))]
    )
    later = [version for version in LATER_SEMANTICS.get(type(command), ()) if version <= known]
    version = max([required_version(command), *later])
    if version <= COMMAND_VERSIONS[type(command)]:
        return command
    return msgspec.structs.replace(command, version=version)


def older_nodes(view: CatalogView, own: int, command: commands.Command) -> list[Node]:
    """Return the nodes that do not know a command, as far as they said."""
    version = required_version(command)
    return [node for node in _judges(view, own, command) if known_version(node) < version]


def upgrade_problem(view: CatalogView, own: int, command: commands.Command) -> str:
    """Return why a command must not be proposed yet, naming the nodes; "" if it may."""
    older = older_nodes(view, own, command)
    if not older:
        return _cluster_version_problem(view, command)
    silent = [node for node in older if is_silent(node)]
    what = _used(command)
    if silent:
        return (
            f"{_names(silent)} has not said which release it runs: start or forget it before "
            f"{what} is used"
        )
    versions = ", ".join(str(known_version(node)) for node in older)
    return (
        f"{_names(older)} runs an older version: upgrade it before {what} is used (that needs "
        f"catalog version {required_version(command)}, and it knows {versions})"
    )


def _cluster_version_problem(view: CatalogView, command: commands.Command) -> str:
    """Return why a command that all nodes know has to wait, "" when it may be proposed."""
    now, needed = in_force(view), required_version(command)
    if isinstance(command, commands.RaiseClusterVersion) or needed <= now.catalog:
        return ""
    return (
        f"{_used(command)} needs catalog version {needed}, and cluster version {now.version} uses "
        f"{now.catalog}: finish the upgrade first (`headrace upgrade finish`)"
    )


def _used(command: commands.Command) -> str:
    """Return what of a command needs its version: a value, a field that is set, or the command."""
    for value in VALUE_VERSIONS:
        if type(command) is value.command and value.has_it(command):
            return value.name
    fields = [
        row.field
        for row in FIELD_VERSIONS
        if type(command) is row.command
        and row.version == required_version(command)
        and getattr(command, row.field) != _default(row)
    ]
    tag = command.__struct_config__.tag
    return f"'{tag}' with '{fields[0]}'" if fields else f"'{tag}'"


def is_silent(node: Node) -> bool:
    """Return whether a node has said nothing of itself yet."""
    return not node.catalog_version and node.machine_version <= 1


def target_problem(view: CatalogView, queue: Queue, add: Iterable[int]) -> str:
    """Return why a queue's replicas must not move onto known nodes, "" when they may.

    A queue's machine may be as new as all nodes allow that hold a replica; a node with an older one
    would stop at it.
    """
    places = (*queue.members, *queue.leaving)
    holders = [node for each in places if (node := view.node(each)) is not None]
    level = min([node.machine_version for node in holders], default=1)
    for each in add:
        node = view.node(each)
        if node is None or each in places or node.machine_version >= level:
            continue
        what = f"queue '{queue.name}' in vhost '{queue.vhost}' cannot move to node '{node.name}'"
        if is_silent(node):
            return f"{what}, which has not said which release it runs: start it first"
        return (
            f"{what}, which runs an older version: upgrade it first (queue machine "
            f"{node.machine_version}, and the queue may be at {level})"
        )
    return ""


def _judges(view: CatalogView, own: int, command: commands.Command) -> list[Node]:
    """Return the other nodes that have to know a command: all that will apply it.

    Whoever is removed by it need not know; nor one without any data, where its replicas are. An
    announcement is not kept back by its own node, of which it is news, nor by silent ones: what it
    needs is in force (`_cluster_version_problem`), so that a node which is older cannot take part.
    """
    exempt: set[int] = {own}
    if isinstance(command, commands.ForgetNode):
        exempt.add(command.node)
    elif isinstance(command, commands.AnnounceNode):
        exempt.update([command.node, *(node.id for node in view.nodes() if is_silent(node))])
    gone: tuple[int, ...] = ()
    if isinstance(command, commands.SetMembers):
        gone = command.remove
    elif isinstance(command, commands.SettleMembers):
        gone = command.left
    for each in gone:
        node = view.node(each)
        if node is not None and is_silent(node) and not node.disk:
            exempt.add(each)
    return [node for node in view.nodes() if node.id not in exempt]


def _names(nodes: list[Node]) -> str:
    if len(nodes) == 1:
        return f"node '{nodes[0].name}'"
    return f"each of nodes {', '.join(repr(node.name) for node in nodes)}"
