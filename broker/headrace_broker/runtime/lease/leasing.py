"""Interface of lease groups for gateways, wherever the queue is led.

Commands go by `GroupCommands`. Reading is asked of the leader, as `LeaderClient` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headrace_broker.core.queue.command.lease_command import (
    encode_close_group,
    encode_lease,
    encode_open_group,
    encode_release_leases,
    encode_renew,
    encode_settle_leases,
)
from headrace_broker.core.queue.state.lease_effect import GroupInfo, LeaseAnswer
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    LEASE_CHUNK_MESSAGES_MAX,
    LEASE_CHUNK_OCTETS_MAX,
)
from headrace_broker.runtime.lease import wire
from headrace_broker.runtime.lease.chunk import HEAD_OCTETS, Chunk, cut_chunk
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader_client import LeaderClient
from headrace_protos.cluster.v1 import cluster_pb2 as pb


class Fetched(NamedTuple):
    """Some messages of a lease, or why there are none.

    Attributes:
        status: LEASE_OK or another LEASE constant.
        total: messages of the whole lease.
        heads: of those that are here, as in `lease_chunk`.
        batch: likewise.
    """

    status: int
    total: int
    heads: bytes
    batch: bytes

    @property
    def message_count(self) -> int:
        """Number of messages here."""
        return len(self.heads) // HEAD_OCTETS


_GONE: Final = Chunk(0, b"", b"")


def fetch(
    host: QueueHost,
    entries: Entries,
    name: bytes,
    epoch: int,
    number: int,
    offset: int,
    most: int,
    octets: int,
) -> Fetched:
    """Return messages of a lease as a replica has them, those before an entry that is missing."""
    status, messages = host.machine.leased(name, epoch, number)
    most = max(1, min(most, LEASE_CHUNK_MESSAGES_MAX))
    octets = max(1, min(octets, LEASE_CHUNK_OCTETS_MAX))
    chunk = _GONE
    if offset < len(messages):
        chunk = cut_chunk(entries, messages, offset, most, octets)
    return Fetched(int(status), len(messages), chunk.heads, chunk.batch)


class LeaseClient:
    """Asks leaders, here or on other nodes, and answers other nodes.

    Args:
        node: this node's id.
        hosts: replicas on this node by group.
        locate: where the leader of a queue is, 0 for unknown.
        send: carries a payload to a node.
        exists: whether a queue, this incarnation of it, is in the catalog as applied here.
        new_number: returns a session id that was never used, to name a request by.

    Attributes:
        commands: of groups that lease, and of others.
    """

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
        new_number: Callable[[], int],
    ) -> None:
        self.commands = GroupCommands(node, hosts, locate, send, exists, new_number)
        self._fetches: LeaderClient[Fetched] = LeaderClient(node, hosts, locate, send, exists)
        self._listings: LeaderClient[list[GroupInfo]] = LeaderClient(
            node, hosts, locate, send, exists
        )

    # Commands; all raise what `GroupCommands.ask` does

    async def open_group(
        self, queue: Queue, name: bytes, ttl_ms: int, opener: bytes
    ) -> LeaseAnswer:
        """Open a group for an owner called `opener`; see `OpenGroup`."""
        return await self._ask(queue, lambda n: encode_open_group(n, name, ttl_ms, opener))

    async def lease(
        self,
        queue: Queue,
        name: bytes,
        epoch: int,
        number: int,
        messages: int,
        octets: int,
        ttl_ms: int,
    ) -> LeaseAnswer:
        """Take messages as the lease with that number; see `TakeLease`."""
        return await self._ask(
            queue, lambda n: encode_lease(n, name, epoch, number, messages, octets, ttl_ms)
        )

    async def renew(self, queue: Queue, name: bytes, epoch: int, ttl_ms: int) -> LeaseAnswer:
        """Let the group's leases live so long from now on."""
        return await self._ask(queue, lambda n: encode_renew(n, name, epoch, ttl_ms))

    async def settle(self, queue: Queue, name: bytes, epoch: int, last: int) -> LeaseAnswer:
        """Accept the messages of the leases up to that number."""
        return await self._ask(queue, lambda n: encode_settle_leases(n, name, epoch, last))

    async def release(
        self, queue: Queue, name: bytes, epoch: int, first: int, failed: bool
    ) -> LeaseAnswer:
        """Give back the messages of the leases from that number on."""
        return await self._ask(
            queue, lambda n: encode_release_leases(n, name, epoch, first, failed)
        )

    async def close_group(self, queue: Queue, name: bytes, epoch: int) -> LeaseAnswer:
        """Forget a group, whose epoch is `epoch` or any for 0, and return its messages."""
        return await self._ask(queue, lambda n: encode_close_group(n, name, epoch))

    # Reading; raises LeaderUnavailableError and QueueGoneError

    async def describe(self, queue: Queue) -> list[GroupInfo]:
        """List the groups of a queue."""

        def question(number: int) -> pb.ClusterPayload:
            return pb.ClusterPayload(
                lease_describe=pb.LeaseDescribe(group=queue.group, request=number)
            )

        return await self._listings.ask(queue, _groups, question)

    async def fetch(
        self,
        queue: Queue,
        name: bytes,
        epoch: int,
        number: int,
        offset: int,
        messages: int,
        octets: int,
    ) -> Fetched:
        """Return messages of a lease from `offset` on, within the bounds of a chunk."""

        def here(host: QueueHost, entries: Entries) -> Fetched:
            return fetch(host, entries, name, epoch, number, offset, messages, octets)

        def question(request: int) -> pb.ClusterPayload:
            asked = pb.LeaseFetch(
                group=queue.group,
                request=request,
                name=name,
                epoch=epoch,
                number=number,
                offset=offset,
                messages=messages,
                octets=octets,
            )
            return pb.ClusterPayload(lease_fetch=asked)

        return await self._fetches.ask_reading(queue, here, question)

    # Inner

    async def _ask(self, queue: Queue, encode: Callable[[int], bytes]) -> LeaseAnswer:
        """Have a command applied and return its answer."""
        answer = await self.commands.ask(queue, encode)
        assert isinstance(answer, LeaseAnswer), "it answers what was asked"
        return answer

    # From other nodes

    def receive(self, source: int, kind: str | None, payload: pb.ClusterPayload) -> bool:
        """Take a payload of another node; return False where it does not concern leases."""
        if kind == "lease_command":
            self.commands.receive_command(source, payload.lease_command)
        elif kind == "lease_reply":
            self.commands.receive_reply(payload.lease_reply)
        elif kind == "lease_fetch":
            self._receive_fetch(source, payload.lease_fetch)
        elif kind == "lease_chunk":
            self._receive_chunk(payload.lease_chunk)
        elif kind == "lease_describe":
            self._receive_describe(source, payload.lease_describe)
        elif kind == "lease_groups":
            self._receive_groups(payload.lease_groups)
        else:
            return False
        return True

    def _receive_fetch(self, source: int, asked: pb.LeaseFetch) -> None:
        def here(host: QueueHost, entries: Entries) -> Fetched:
            return fetch(
                host,
                entries,
                asked.name,
                asked.epoch,
                asked.number,
                asked.offset,
                asked.messages,
                asked.octets,
            )

        def payload(found: Fetched | None) -> pb.ClusterPayload:
            chunk = pb.LeaseChunk(request=asked.request)
            if found is not None:
                chunk.serving = True
                chunk.status, chunk.total, chunk.heads, chunk.batch = found
            return pb.ClusterPayload(lease_chunk=chunk)

        self._fetches.answer_reading(source, asked.group, here, payload)

    def _receive_chunk(self, chunk: pb.LeaseChunk) -> None:
        found = Fetched(chunk.status, chunk.total, chunk.heads, chunk.batch)
        self._fetches.receive(chunk.request, found if chunk.serving else None)

    def _receive_describe(self, source: int, asked: pb.LeaseDescribe) -> None:
        answer = pb.LeaseGroups(request=asked.request)
        host = self._listings.serving_host(asked.group)
        if host is not None:
            answer.serving = True
            answer.lease_groups.extend(wire.group_message(group) for group in _groups(host))
        self._listings.answer(source, pb.ClusterPayload(lease_groups=answer))

    def _receive_groups(self, answer: pb.LeaseGroups) -> None:
        groups = [wire.group_of(group) for group in answer.lease_groups]
        self._listings.receive(answer.request, groups if answer.serving else None)


def _groups(host: QueueHost) -> list[GroupInfo]:
    return host.machine.lease_groups()
