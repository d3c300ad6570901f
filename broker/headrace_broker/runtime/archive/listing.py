"""The archives of all queues, and of one, for people and for those who read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace_broker.core.queue.state.archive_effect import ArchiveInfo
from headrace_broker.model.archive import ArchiveGroupStatus, ArchiveStatus
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.archive.archiving import ArchiveClient
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.led_rows import LedRows
from headrace_broker.runtime.rpc.question import Archives


class ArchiveListing:
    """Lists archives on all nodes."""

    def __init__(
        self,
        node: int,
        names: Mapping[int, str],
        hosts: Mapping[int, QueueHost],
        rpc: Rpc,
        archives: ArchiveClient,
        locate: Callable[[Queue], int],
        address: str = "",
    ) -> None:
        self._node = node  # this node's id
        self._names = names  # of all nodes by id; they may change
        self._archives = archives  # asks single queues
        self._locate = locate  # where a queue's leader is, 0 for unknown
        self._address = address  # HOST:PORT of this node's gRPC listener, "" without one
        self._all = LedRows(rpc, names, hosts, (Archives(), ArchiveStatus), self._rows)

    async def everywhere(self) -> tuple[list[ArchiveStatus], tuple[str, ...]]:
        """Return the archives of all queues, and the names of the nodes that did not answer."""
        return await self._all.everywhere()

    def _rows(self, host: QueueHost, node: str) -> Iterator[ArchiveStatus]:
        info = host.machine.archive()
        if info.since_ms > 0:
            yield status_of(host.queue, info, node, self._address)

    async def of(self, queue: Queue) -> ArchiveStatus:
        """Return the archive of a queue; `since_ms` is 0 where it never had one.

        Raises LeaderUnavailableError: no answer; QueueGoneError: there never will be one.
        """
        info = await self._archives.describe(queue)
        leader = self._locate(queue)
        address = self._address if leader == self._node else ""
        return status_of(queue, info, self._names.get(leader, ""), address)


def status_of(queue: Queue, info: ArchiveInfo, node: str, address: str) -> ArchiveStatus:
    """Return an archive for people."""
    following = int(info.following)
    return ArchiveStatus(
        vhost=queue.vhost,
        queue=queue.name,
        group=queue.group,
        node=node,
        mode=int(info.mode),
        since_ms=int(info.since_ms),
        first_index=int(info.first),
        next_index=following,
        byte_count=int(info.byte_count),
        first_ms=int(info.first_ms),
        last_ms=int(info.last_ms),
        groups=[
            ArchiveGroupStatus(
                name=group.name.decode("utf-8", "replace"),
                epoch=int(group.epoch),
                committed=int(group.committed),
                committed_ms=int(group.committed_ms),
                lag=following - int(group.committed),
            )
            for group in info.groups
        ],
        address=address,
    )
