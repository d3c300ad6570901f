"""The archives of all queues, and of one, for people and for those who read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from headrace_broker.core.queue.archive_effect import ArchiveInfo
from headrace_broker.model.archive import ArchiveGroupStatus, ArchiveStatus
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import LISTING_ROWS_MAX, LISTING_TURN_ROWS
from headrace_broker.runtime.archiving import ArchiveClient
from headrace_broker.runtime.inquiry import Archives, Inquiries, NoAnswerError
from headrace_broker.runtime.queue_host import QueueHost


class ArchiveListing:
    """Lists archives on all nodes.

    Args:
        node: this node's id.
        names: of all nodes by id; they may change.
        hosts: replicas on this node by group.
        inquiries: asks the other nodes.
        archives: asks single queues.
        locate: where a queue's leader is, 0 for unknown.
    """

    def __init__(
        self,
        node: int,
        names: Mapping[int, str],
        hosts: Mapping[int, QueueHost],
        inquiries: Inquiries,
        archives: ArchiveClient,
        locate: Callable[[Queue], int],
    ) -> None:
        self._node = node
        self._names = names
        self._hosts = hosts
        self._inquiries = inquiries
        self._archives = archives
        self._locate = locate
        inquiries.archive_rows = self._rows

    async def everywhere(self) -> tuple[list[ArchiveStatus], tuple[str, ...]]:
        """Return the archives of all queues, and the names of the nodes that did not answer."""
        found: list[ArchiveStatus] = []
        for row in islice(self._rows(Archives()), LISTING_ROWS_MAX):
            found.append(row)
            if len(found) % LISTING_TURN_ROWS == 0:
                await asyncio.sleep(0)
        peers = {peer: name for peer, name in self._names.items() if peer != self._node}
        missing: list[str] = []
        answers = await asyncio.gather(*(self._asked(peer) for peer in peers))
        for name, answer in zip(peers.values(), answers, strict=True):
            if answer is None:
                missing.append(name)
            else:
                found += answer
        return found, tuple(missing)

    async def _asked(self, peer: int) -> list[ArchiveStatus] | None:
        try:
            rows, _ = await self._inquiries.rows(peer, Archives(), ArchiveStatus, LISTING_ROWS_MAX)
        except NoAnswerError:
            return None
        return rows

    def _rows(self, _question: Archives) -> Iterator[ArchiveStatus]:
        node = self._names[self._node]
        for host in list(self._hosts.values()):
            if host.serving:
                info = host.machine.archive()
                if info.since_ms > 0:
                    yield status_of(host.queue, info, node)

    async def of(self, queue: Queue) -> ArchiveStatus:
        """Return the archive of a queue; `since_ms` is 0 where it never had one.

        Raises:
            LeaderUnavailableError: nobody who leads the queue answered.
            QueueGoneError: nobody ever will.
        """
        info = await self._archives.describe(queue)
        return status_of(queue, info, self._names.get(self._locate(queue), ""))


def status_of(queue: Queue, info: ArchiveInfo, node: str) -> ArchiveStatus:
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
        octets=int(info.octets),
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
    )
