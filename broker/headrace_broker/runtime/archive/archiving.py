"""Interface of queues' archives for gateways, wherever the queues are led."""

from __future__ import annotations

from collections.abc import Callable

from headrace_broker.core.queue.command.archive_command import (
    encode_close_archive,
    encode_commit_archive,
    encode_open_archive,
)
from headrace_broker.core.queue.state.archive_effect import ArchiveAnswer, ArchiveInfo
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import ARCHIVE_BLOCK_OCTETS, ARCHIVE_BLOCK_ROWS
from headrace_broker.runtime.archive.chunk import Rows, cut_rows
from headrace_broker.runtime.lease import archive_wire as wire
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader_client import LeaderClient
from headrace_protos.cluster.v1 import cluster_pb2 as pb


class ArchiveClient:
    """Asks leaders, here or on other nodes, and answers other nodes.

    Args:
        node: this node's id.
        hosts: replicas on this node by group.
        locate: where the leader of a queue is, 0 for unknown.
        send: carries a payload to a node.
        exists: whether a queue, this incarnation of it, is in the catalog as applied here.
        commands: has commands of groups applied.
    """

    def __init__(
        self,
        node: int,
        hosts: dict[int, QueueHost],
        locate: Callable[[Queue], int],
        send: Callable[[int, bytes], bool],
        exists: Callable[[Queue], bool],
        commands: GroupCommands,
    ) -> None:
        self._commands = commands
        self._fetches: LeaderClient[Rows] = LeaderClient(node, hosts, locate, send, exists)
        self._states: LeaderClient[ArchiveInfo] = LeaderClient(node, hosts, locate, send, exists)

    # Commands; all raise what `GroupCommands.ask` does

    async def open_group(self, queue: Queue, name: bytes, opener: bytes) -> ArchiveAnswer:
        """Open a group for an owner called `opener`; see `OpenArchive`."""
        return await self._ask(queue, lambda n: encode_open_archive(n, name, opener))

    async def commit(self, queue: Queue, name: bytes, epoch: int, up_to: int) -> ArchiveAnswer:
        """Note that a group is done with all rows before index `up_to`."""
        return await self._ask(queue, lambda n: encode_commit_archive(n, name, epoch, up_to))

    async def close_group(self, queue: Queue, name: bytes, epoch: int) -> ArchiveAnswer:
        """Forget a group, whose epoch is `epoch` or any for 0."""
        return await self._ask(queue, lambda n: encode_close_archive(n, name, epoch))

    async def _ask(self, queue: Queue, encode: Callable[[int], bytes]) -> ArchiveAnswer:
        answer = await self._commands.ask(queue, encode)
        assert isinstance(answer, ArchiveAnswer), "it answers what was asked"
        return answer

    # Reading; raises LeaderUnavailableError and QueueGoneError

    async def describe(self, queue: Queue) -> ArchiveInfo:
        """Return the content of an archive, and its readers."""

        def question(number: int) -> pb.ClusterPayload:
            asked = pb.ArchiveQuestion(group=queue.group, request=number)
            return pb.ClusterPayload(archive_question=asked)

        return await self._states.ask(queue, _state, question)

    async def fetch(self, queue: Queue, start: int, rows: int) -> Rows:
        """Return rows from index `start` on, at most `rows`, within the bounds of a block."""
        most = max(1, min(rows, ARCHIVE_BLOCK_ROWS))

        def here(host: QueueHost, entries: Entries) -> Rows:
            return cut_rows(host, entries, start, most, ARCHIVE_BLOCK_OCTETS)

        def question(number: int) -> pb.ClusterPayload:
            asked = pb.ArchiveFetch(group=queue.group, request=number, start=start, rows=most)
            return pb.ClusterPayload(archive_fetch=asked)

        return await self._fetches.ask_reading(queue, here, question)

    # From other nodes

    def receive_fetch(self, source: int, asked: pb.ArchiveFetch) -> None:
        """Answer another node."""
        most = max(1, min(asked.rows, ARCHIVE_BLOCK_ROWS))

        def here(host: QueueHost, entries: Entries) -> Rows:
            return cut_rows(host, entries, asked.start, most, ARCHIVE_BLOCK_OCTETS)

        def payload(rows: Rows | None) -> pb.ClusterPayload:
            chunk = pb.ArchiveChunk(request=asked.request)
            if rows is not None:
                chunk.serving = True
                chunk.since_ms, chunk.first, chunk.following, chunk.heads, chunk.batch = rows
            return pb.ClusterPayload(archive_chunk=chunk)

        self._fetches.answer_reading(source, asked.group, here, payload)

    def receive_chunk(self, _source: int, chunk: pb.ArchiveChunk) -> None:
        """Take another node's answer."""
        rows = Rows(chunk.since_ms, chunk.first, chunk.following, chunk.heads, chunk.batch)
        self._fetches.receive(chunk.request, rows if chunk.serving else None)

    def receive_question(self, source: int, asked: pb.ArchiveQuestion) -> None:
        """Answer another node."""
        host = self._states.serving_host(asked.group)
        if host is None:
            state = pb.ArchiveState(request=asked.request)
        else:
            state = wire.state_of(_state(host), asked.request)
        self._states.answer(source, pb.ClusterPayload(archive_state=state))

    def receive_state(self, _source: int, state: pb.ArchiveState) -> None:
        """Take another node's answer."""
        self._states.receive(state.request, wire.info_of(state) if state.serving else None)


def _state(host: QueueHost) -> ArchiveInfo:
    return host.machine.archive()
