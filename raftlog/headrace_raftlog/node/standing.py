"""Identity of a node in its cluster: its disk, its boots, its member ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace_raftlog.model.errors import DamageFoundError, ForgottenError
from headrace_raftlog.model.membership import NODE_BITS, member_id, member_node
from headrace_raftlog.node.formation import Formation
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.options import NodeOptions
from headrace_raftlog.transport.transport import Transport


class NodeStanding:
    """The part of a node's public face that is about its place in the cluster."""

    options: NodeOptions
    on_diverged: Callable[[int], None] | None
    _damaged: dict[int, str]
    _formation: Formation
    _host: Host
    _transport: Transport

    async def wait_formed(self) -> None:
        """Wait until this node belongs to its cluster; groups may be created from then on.

        A node with a new data directory waits here until it has met all other configured nodes,
        or one that belongs to the cluster already; the log says which are missing. One that is
        configured alone listens for members of its cluster for `found_listen_s`, and founds one
        then. A node that was there before does not wait. `start` returns earlier, so
        that the other nodes, and whoever checks its health, can reach it meanwhile.
        """
        await self._formation.formed.wait()

    @property
    def is_formed(self) -> bool:
        """True once this node belongs to its cluster."""
        return self._formation.formed.is_set()

    @property
    def missing_nodes(self) -> tuple[int, ...]:
        """Node ids of those that this node, being new, has yet to meet; empty once formed."""
        return self._formation.missing

    @property
    def waits_for_data(self) -> bool:
        """True while this node waits: its data, or those of all it has met, were set aside."""
        return self._formation.rejoins

    def set_aside(self, reason: str) -> None:
        """Take part no more with these data; the next start sets them aside and joins anew.

        Nothing is acknowledged after the call; `on_fatal` is called with `ForgottenError`.
        """
        self._host.fail(ForgottenError(reason))

    def lost_voters(self, group: int) -> tuple[int, ...]:
        """Return node ids of a group's voters that are gone for good with their disks.

        Empty unless they are so many that the group can have no leader any more, and as long as
        their nodes were not met on other disks since this one started.
        """
        hosted = self._host.find(group)
        if hosted is None:
            return ()
        members = hosted.core.membership
        for electorate in (members.voters, members.outgoing):
            gone = [int(member_node(each)) for each in electorate if self._is_gone(each)]
            if electorate and 2 * len(gone) >= len(electorate):
                return tuple(sorted(set(gone)))
        return ()

    def is_unadmitted(self, group: int) -> bool:
        """Return whether this node waits for a group's leader to take it in."""
        hosted = self._host.find(group)
        return hosted is not None and not hosted.core.membership.voters

    def _is_gone(self, member: int) -> bool:
        """Return whether a member's disk is known to be another one now.

        A member of a later generation may also be one whose group alone was damaged: it counts
        only where its generation was heard of as a disk.
        """
        node, generation = int(member_node(member)), member >> NODE_BITS
        now = self._transport.generation(node)
        if node == self.options.node or now in (-1, generation):
            return False
        return generation == 0 or self._transport.memory.knows(node, generation)

    async def raise_boot(self, boot: int) -> None:
        """Count this start as a later one, because an earlier process of this node had `boot`.

        To be called once formed. All streams to peers are opened anew, under that boot count.

        Raises OSError: the data directory cannot be written; this node cannot go on.
        """
        try:
            await self._formation.raise_boot(boot)
        except OSError as error:
            self._host.fail(error)
            raise

    async def verify_peers_anew(self) -> None:
        """End all streams between nodes, so that certificates are shown again."""
        await self._transport.verify_anew()

    @property
    def member(self) -> int:
        """This node's member id in groups that it founds or joins, once formed."""
        return self._formation.identity.member

    def member_of(self, node: int) -> int:
        """Return the member id that a node has in groups which it founds now, once formed.

        A peer that was not met since this node started is held to be on its founding disk. Should
        it have lost that, it joins the groups that were founded meanwhile.
        """
        if node == self.options.node:
            return self.member
        generation = self._transport.generation(node)
        return member_id(node, max(generation, 0))

    @property
    def disk(self) -> int:
        """Id of the data directory, once started."""
        return self._formation.identity.disk

    def refusals(self) -> dict[int, str]:
        """Return why peers refuse this node, by node id, of those that do."""
        sessions = self._transport.sessions.values()
        return {s.peer: s.link.refusal for s in sessions if s.link.refusal}

    def _begin_anew(self, group: int, index: int) -> None:
        """Begin a group that differed at an entry anew, as a new member, in a later turn."""
        reason = f"its state differed from a majority's at entry {index}; it is rebuilt from them"
        self._damaged[group] = reason
        asyncio.get_running_loop().call_soon(self._begin_anew_now, group, reason)

    def _begin_anew_now(self, group: int, reason: str) -> None:
        if self._host.stopped or self._host.find(group) is None:
            return
        try:
            if self.on_diverged is not None and group != 0:  # the catalog: all else builds on it
                self.on_diverged(group)
                self._damaged[group] = reason
                return
            self._host.leave_group(group)
            self._host.fail(DamageFoundError(f"group {group}: {reason}"))
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._host.fail(error)
