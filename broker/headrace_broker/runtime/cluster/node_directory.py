"""The nodes of the cluster as this one knows them, and whom its replicated logs talk to.

At first these are the nodes of the configuration. Once the catalog is caught up it alone says who
belongs to the cluster and where they are.
"""

from __future__ import annotations

import asyncio
import logging
import string
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from headrace_broker.catalog.cluster_version import in_force
from headrace_broker.catalog.event import Event, NodeAdded, NodeRemoved
from headrace_broker.catalog.version import ZONES
from headrace_broker.catalog.view import CatalogView
from headrace_broker.config.shards import moved
from headrace_broker.logs.log_event import CLUSTER, NODE_REFUSED, log_event
from headrace_broker.model.definition import Node
from headrace_broker.model.shard import SHARD_IDS, belongs_to, is_further, node_name, shard_name
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.membership import Membership, member_node

HOST_BYTES_MAX: Final = 253  # of a name in DNS
PORT_MAX: Final = 65535
_HOST_DEAD_LETTERS: Final = frozenset(string.ascii_letters + string.digits + ".-_:%")
FAREWELL_LOOKS_MAX: Final = 40  # at the catalog's members before a removed node is cut off anyway
FAREWELL_LOOK_SECONDS: Final = 0.25  # between two of them
ELSEWHERE_SECONDS: Final = 3.0  # in which they are called at one of two addresses; then doubled
ELSEWHERE_SECONDS_MAX: Final = 60.0

log = logging.getLogger("headrace.cluster")


class PeerTable(Protocol):
    """Required interface of the replicated logs (`headrace_raftlog.node`)."""

    async def set_peers(
        self, peers: Mapping[int, str], barred: Collection[tuple[int, int]] = ()
    ) -> None:
        """Talk to these nodes from now on, and refuse those disks."""

    def members(self, group: int) -> Membership:
        """Return who belongs to a group.

        Raises KeyError: the group is not on this node.
        """


class NodeDirectory:
    """Follows the catalog's nodes.

    Args:
        seeds: the nodes of the configuration, this one among them.
    """

    def __init__(self, own: int, seeds: Iterable[Node], view: CatalogView, raft: PeerTable) -> None:
        self._own = own  # this node's id
        self._seeds = {node.id: node for node in seeds}
        self._view = view
        self._raft = raft  # whose peers follow
        # of all nodes by id; changed in place, so that everybody may hold it
        self.names = {node.id: node.name for node in self._seeds.values()}
        # the same without this node
        self.others = {node: name for node, name in self.names.items() if node != own}
        self.added: Callable[[int], None] = _ignore  # called with the id of each node that came
        # called with the id of each node that went, this one's among them
        self.removed: Callable[[int], None] = _ignore
        self.peers_up: Mapping[int, int] = {}  # by node id, 0 for those that are not heard
        self._settled = self._stopped = False
        self._addresses = {node.id: node.address for node in self._seeds.values()}
        self._called = dict(self._addresses)  # where they were called last
        self._elsewhere = False  # they are called where the configuration has them
        self._elsewhere_s = ELSEWHERE_SECONDS
        self._turn: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def nodes(self) -> list[Node]:
        """Return the nodes: the catalog's, or while that is not known the configuration's."""
        return self._view.nodes() if self._settled else list(self._seeds.values())

    def name_of(self, node: int) -> str:
        """Return the name that a node's certificate must bear, "" for a node that is not known.

        One that was adopted has proved its name when it called.
        """
        known = self._view.node(node) or self._seeds.get(node)
        return known.name if known is not None else ""

    def are_one(self, node: int, other: int) -> bool:
        """Return whether two members of the cluster are processes of one node."""
        own, others = (node_name(self.names.get(each, "")) for each in (node, other))
        return own == others != ""

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow the catalog."""
        changed = False
        for event in events:
            if isinstance(event, NodeAdded):
                self._add(event.node)
                changed = True
            elif isinstance(event, NodeRemoved):
                self._remove(event.node.id)
                changed = True
        if changed:
            self._sync()
            if self._turn is None and not self._settled:
                self._turn_later()

    def adopt(self, node: Node) -> None:
        """Talk to a member of the cluster that calls before the catalog is known here."""
        self._seeds[node.id] = node
        self._add(node)
        self._sync()

    def settle(self) -> None:
        """The catalog is caught up: nodes of the configuration that it does not know are none."""
        self._settled = True
        self._end_turns()
        for node in [node for node in self.names if self._view.node(node) is None]:
            if node != self._own:
                log.warning(
                    "node %s of the configuration does not belong to the cluster: %s",
                    self.names[node],
                    "it was forgotten, or has yet to join",
                )
            self._remove(node)
        self._sync()

    async def stop(self) -> None:
        """Stop changing peers."""
        self._stopped = True
        self._end_turns()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _add(self, node: Node) -> None:
        self.names[node.id] = node.name
        self._addresses[node.id] = node.address
        if node.id != self._own:
            self.others[node.id] = node.name
            self.added(node.id)

    def _remove(self, node: int) -> None:
        if self.names.pop(node, None) is not None:
            self.others.pop(node, None)
            self.removed(node)

    def _turn_later(self) -> None:
        if self._stopped:
            return
        self._turn = asyncio.get_running_loop().call_later(self._elsewhere_s, self._turn_round)
        self._elsewhere_s = min(2 * self._elsewhere_s, ELSEWHERE_SECONDS_MAX)

    def _turn_round(self) -> None:
        """Call nodes where the configuration has them, for all may have moved; or back again."""
        self._elsewhere = not self._elsewhere
        self._turn_later()
        self._sync()

    def _end_turns(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    def _address(self, node: int) -> str:
        """Return where to call a node; one that is heard stays where it is."""
        if self._settled:
            return self._addresses[node]
        if self.peers_up.get(node):
            return self._called.get(node, self._addresses[node])
        return (self._elsewhere and self._configured(node)) or self._addresses[node]

    def _configured(self, node: int) -> str:
        """Return where the configuration has a node, or a process of one, "" for nowhere."""
        seed = self._seeds.get(node) or self._seeds.get(node % SHARD_IDS)
        shard = (node - seed.id) // SHARD_IDS if seed is not None else 0
        if seed is None or self.names[node] != shard_name(seed.name, shard):
            return ""
        return moved(seed.address, shard) if shard else seed.address

    def _sync(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="peers")
            self._task.add_done_callback(_report)

    async def _follow(self) -> None:
        """Tell the replicated logs; leaving nodes are heard until their membership has ended.

        Otherwise a node that is removed might never learn that it was.
        """
        looks = 0
        while self._again:
            self._again = False
            wanted = self._called = {node: self._address(node) for node in self.names}
            leaving = [node for node in self._members() if node not in wanted]
            if looks < FAREWELL_LOOKS_MAX:
                wanted = wanted | {node: self._addresses[node] for node in leaving}
            await self._raft.set_peers(wanted, self._view.forgotten())
            if leaving and looks < FAREWELL_LOOKS_MAX:
                self._again = True
                looks += 1
                await asyncio.sleep(FAREWELL_LOOK_SECONDS)

    def _members(self) -> list[int]:
        try:
            members = self._raft.members(CATALOG_GROUP).everyone()
        except KeyError:
            return []
        return [int(node) for member in members if (node := member_node(member)) in self._addresses]


def address_problem(address: str) -> str:
    """Return why nodes cannot be reached at an address, "" when it can be one."""
    host, _, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or not set(bare) <= _HOST_DEAD_LETTERS or len(bare) > HOST_BYTES_MAX:
        return f"address: '{address}' is not HOST:PORT"
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= PORT_MAX):
        return f"address: the port of '{address}' is not 1 to {PORT_MAX}"
    if ":" in bare and not host.startswith("["):
        return f"address: the IPv6 host of '{address}' needs brackets"
    return ""


def join_problem(view: CatalogView, admits: bool, node: Node) -> str:
    """Return why a node may not join that nobody has announced, "" when it may.

    Args:
        view: of the cluster.
        admits: whether nodes may; processes of nodes that belong to the cluster may in any case.
        node: as it describes itself.
    """
    if is_further(node):
        if not belongs_to(node, view.node(node.id % SHARD_IDS)):
            return f"node '{node_name(node.name)}', whose process it would be, is not known"
        return version_problem(view)
    if admits:
        return ""
    return "cluster.admit_nodes is off: have it announced first (`headrace node join`)"


def version_problem(view: CatalogView) -> str:
    """Return why nodes cannot have several processes yet, "" when they can."""
    if in_force(view).catalog >= ZONES:
        return ""
    return "nodes of several processes need cluster version 2: finish the upgrade first"


def takeover_problem(known: Node | None, asked: Node, up: Collection[int]) -> str:
    """Return why a node may not be taken in under an id, "" when it may.

    One that has lost its data comes again under its name, perhaps from another address.

    Args:
        known: who has the id.
        asked: as it describes itself, or as somebody describes it, then without a disk.
        up: ids of the nodes that run.
    """
    if known is None or known.id not in up:
        return ""
    if asked.name == known.name and (asked.disk or asked.address == known.address):
        return ""
    runs = f"node {known.id} runs, as '{known.name}' at {known.address}"
    return f"{runs}: nobody else may have its id until it has stopped"


def _ignore(node: int) -> None:
    """Do nothing: the default without a listener."""


def _report(task: asyncio.Task[None]) -> None:
    """Log an error that has no waiter."""
    if not task.cancelled() and task.exception() is not None:
        log.error("update of the peers failed", exc_info=task.exception())


class Admission:
    """Admission of unknown nodes that call."""

    def __init__(
        self,
        refuses: Callable[[Node], str],
        ready: Callable[[], bool],
        admit: Callable[[Node], Awaitable[str]],
        adopt: Callable[[Node], None],
    ) -> None:
        # returns why a node may not join that nobody has announced, "" when it may
        self._refuses = refuses
        self._ready = ready  # whether this node belongs to the cluster and knows its catalog
        # has the catalog take a node in, and returns why it did not, "" if it did
        self._admit = admit
        self._adopt = adopt  # has this node talk to another one until it knows the catalog itself
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._refused: dict[int, str] = {}

    def ask(self, node: Node, formed: bool) -> str:
        """Take a node's wish to join; return for its log why it has to wait or is refused.

        Args:
            node: as it describes itself.
            formed: whether it takes itself for a member of the cluster.
        """
        who = f"node {node.id} ('{node.name}')"
        if not self._ready():
            if formed and node.name and node.address:
                self._adopt(node)
                return f"{who} was not known here, and is from now on: it may call again"
            return f"{who} is not known here, and this node does not belong to the cluster yet"
        # A node that has just started may not know yet that a further process was forgotten, and
        # have accepted the one that came after it. Nobody would empty the directory of that one.
        if formed and not is_further(node):
            return (
                f"{who} takes itself for a member of the cluster, but is not in its "
                "catalog. To have it join as a new member, move its data directory away and "
                "start it"
            )
        refusal = self._refuses(node)
        if refusal:
            return f"{who} is not known here, and {refusal}"
        if not node.name or not node.address:
            return f"{who} does not say its name and address: it runs an older release"
        if node.id not in self._under_way:
            task = asyncio.get_running_loop().create_task(self._run(node), name="admission")
            self._under_way[node.id] = task
        return self._refused.get(node.id) or f"{who} is being admitted: it may call again"

    async def stop(self) -> None:
        """Stop admitting nodes."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, node: Node) -> None:
        try:
            reason = await self._admit(node)
            if reason and self._refused.get(node.id) != reason:
                log_event(CLUSTER, NODE_REFUSED, node=node.name, id=node.id, reason=reason)
            if reason:
                self._refused[node.id] = reason
            else:
                self._refused.pop(node.id, None)
        finally:
            del self._under_way[node.id]
