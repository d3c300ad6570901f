"""Permissions: kinds of users, and every gRPC method, HTTP route and AMQP method.

A row names an operation, the tags that it takes (`anybody` takes none), where (`seen`: in a vhost
that may be looked at; `entered`: in one with a permission; nothing: it is of no vhost), and the
permissions for the queue or exchange that it names. `any` is one of them, and `look` is for who
looks at the vhost with a tag, or has any of them. `makes` says that it creates what it names,
`ends` that it deletes a vhost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

AMQP, GRPC, HTTP = "amqp", "grpc", "http"

# Vhosts: with the users' permissions, with those of one of them, one that was deleted, and one
# that never was.
OWN, OTHER, GONE, NOWHERE = "vown", "vother", "vgone", "vnowhere"
VHOSTS: Final = (OWN, OTHER, GONE, NOWHERE)
THERE: Final = (OWN, OTHER)
# What is in each vhost as queue, exchange and policy, and is a user; what is nowhere; what is made.
THING, NOTHING, MADE = "xthing", "xnothing", "xmade"

MONITORS: Final = frozenset({"administrator", "monitoring"})
TAGS: Final = {
    "anybody": frozenset[str](),
    "manages": MONITORS | {"policymaker", "management"},
    "makes-policies": frozenset({"administrator", "policymaker"}),
    "monitors": MONITORS,
    "administers": frozenset({"administrator"}),
}
PLACES: Final = ("seen", "entered", "look")
RIGHTS: Final = frozenset({"configure", "write", "read"})


class Kind(NamedTuple):
    """A kind of user.

    Attributes:
        tags: likewise.
        own: what it may do in OWN, with any name; None for no permission.
        other: the same in OTHER.
    """

    tags: tuple[str, ...] = ()
    own: frozenset[str] | None = None
    other: frozenset[str] | None = None

    @property
    def monitors(self) -> bool:
        """True if it may view everything."""
        return bool(MONITORS & {*self.tags})

    def rights(self, vhost: str) -> frozenset[str] | None:
        """Return its rights in a vhost."""
        return {OWN: self.own, OTHER: self.other}.get(vhost)


def only(*rights: str) -> frozenset[str]:
    return frozenset(rights)


MANAGER: Final = ("management",)
USERS: Final = {
    "administrator": Kind(("administrator",), RIGHTS),
    "reading-administrator": Kind(("administrator",), only("read")),
    "foreign-administrator": Kind(("administrator",)),
    "monitor": Kind(("monitoring",)),
    "policymaker": Kind(("policymaker",), RIGHTS),
    "foreign-policymaker": Kind(("policymaker",)),
    "manager": Kind(MANAGER, RIGHTS),
    "reading-manager": Kind(MANAGER, only("read")),
    "idle-manager": Kind(MANAGER, only()),
    "foreign-manager": Kind(MANAGER),
    "neighbour": Kind(MANAGER, None, RIGHTS),
    "evicted": Kind(MANAGER),  # had a permission in GONE
    "client": Kind((), RIGHTS),
    "reader": Kind((), only("read")),
    "writer": Kind((), only("write")),
    "configurer": Kind((), only("configure")),
    "idle": Kind((), only()),
    "outsider": Kind(),
}


class Row(NamedTuple):
    """An operation.

    Attributes:
        name: of a gRPC method, an HTTP route or an AMQP method, with a variant after "?".
        tags: one of which it takes, nothing for anybody.
        place: one of PLACES, "" for none.
        rights: permissions that it takes for what it names; "any" is one of them.
        makes: it creates what it names.
        ends: it deletes a vhost.
    """

    name: str
    tags: frozenset[str]
    place: str
    rights: frozenset[str]
    makes: bool
    ends: bool

    def allows(self, user: str, vhost: str, protocol: str) -> bool:
        """Return whether a user is not refused; what is not there may be told nevertheless."""
        kind = USERS[user]
        if (self.tags and not self.tags & {*kind.tags}) or (protocol == HTTP and not kind.tags):
            return False
        if not self.place or (kind.monitors and vhost not in THERE):
            return True  # who sees all vhosts may know that there is none
        rights = kind.rights(vhost)
        if self.place == "seen":
            return kind.monitors or rights is not None
        if self.place == "look":
            return bool(rights) or kind.monitors or (bool(kind.tags) and rights is not None)
        if "any" in self.rights:
            return bool(rights)
        return rights is not None and self.rights <= rights


def rows(text: str) -> dict[str, Row]:
    """Return the rows of a table by name."""
    found = {}
    for line in text.strip().splitlines():
        name, who, *more = line.rsplit("|", 1)[0].strip(), *line.rsplit("|", 1)[1].split()
        words = set(more)
        assert words <= {*PLACES, *RIGHTS, "any", "makes", "ends"}, line
        place = next((each for each in PLACES if each in words), "")
        flags = ("makes" in words, "ends" in words)
        found[name] = Row(name, TAGS[who], place, frozenset(words & {*RIGHTS, "any"}), *flags)
    return found


GRPC_ROWS: Final = rows("""
Advice.Put | makes-policies entered
Advice.List | manages seen
Advice.Delete | makes-policies entered
Backup.Open | administers entered read
Backup.Read | administers
Backup.Keep | administers
Backup.Close | administers
Backup.Restore | administers entered write
Export.ListShards | monitors
Export.ListShards?archive | anybody
Export.Read | monitors
Export.OpenGroup | monitors
Export.Commit | monitors
Export.DescribeGroups | monitors
Export.DescribeGroups?archive | anybody
Export.CloseGroup | monitors
Flow.Why | manages seen
Flow.Why?name | manages seen
Flow.Why?connection | manages
Flow.Top | manages
Flow.WatchFlow | manages seen
Flow.WatchAlarms | manages
Flow.ListLimits | monitors
Flow.GetLimit | monitors
Flow.SetLimit | administers
Flow.ResetLimit | administers
Lease.OpenGroup | anybody entered read
Lease.Lease | anybody entered read
Lease.Describe | anybody entered read
Lease.Fetch | anybody entered read
Lease.Renew | anybody entered read
Lease.Settle | anybody entered read
Lease.Release | anybody entered read
Lease.CloseGroup | anybody entered read
Messaging.Publish | anybody entered write
Messaging.Consume | anybody entered read
Messaging.Get | anybody entered read
Topology.DeclareQueue | anybody entered configure makes
Topology.DeclareQueue?passive | anybody entered any
Topology.DeleteQueue | anybody entered configure
Topology.PurgeQueue | anybody entered read
Topology.DescribeQueue | anybody look
Topology.ListQueues | manages seen
Topology.DeclareExchange | anybody entered configure makes
Topology.DeclareExchange?passive | anybody entered any
Topology.DeleteExchange | anybody entered configure
Topology.DescribeExchange | anybody look
Topology.ListExchanges | manages seen
Topology.Bind | anybody entered write read
Topology.Unbind | anybody entered write read
Topology.ListBindings | manages seen
Topology.DeclareVhost | administers makes
Topology.DeleteVhost | administers ends
Topology.DescribeVhost | manages seen
Topology.ListVhosts | manages
Topology.DeclareUser | administers makes
Topology.DeleteUser | administers
Topology.DescribeUser | administers
Topology.ListUsers | administers
Topology.DeclarePermission | administers
Topology.DeletePermission | administers
Topology.DescribePermission | administers
Topology.ListPermissions | administers
Topology.DeclareTopicPermission | administers
Topology.DeleteTopicPermission | administers
Topology.DescribeTopicPermission | administers
Topology.ListTopicPermissions | administers
Topology.DeclarePolicy | makes-policies entered makes
Topology.DeclarePolicy?operator | administers entered makes
Topology.DeletePolicy | makes-policies entered
Topology.DeletePolicy?operator | administers entered
Topology.DescribePolicy | manages seen
Topology.ListPolicies | manages seen
""")

AMQP_ROWS: Final = rows("""
Connection.Open | anybody entered
Queue.Declare | anybody entered configure makes
Queue.Declare?passive | anybody entered any
Queue.Bind | anybody entered write read
Queue.Unbind | anybody entered write read
Queue.Purge | anybody entered read
Queue.Delete | anybody entered configure
Exchange.Declare | anybody entered configure makes
Exchange.Declare?passive | anybody entered any
Exchange.Delete | anybody entered configure
Exchange.Bind | anybody entered write read
Exchange.Unbind | anybody entered write read
Basic.Publish | anybody entered write
Basic.Get | anybody entered read
Basic.Consume | anybody entered read
""")
# Methods about the connection or channel itself, and what it has taken already.
AMQP_UNJUDGED: Final = frozenset(
    {
        *("Basic.Qos", "Basic.Cancel", "Basic.CancelOk", "Basic.Recover", "Basic.RecoverAsync"),
        *("Basic.Ack", "Basic.Nack", "Basic.Reject", "Channel.Flow", "Channel.FlowOk"),
        *("Confirm.Select", "Tx.Select", "Tx.Commit", "Tx.Rollback"),
    }
)
