"""Deletion of queues without owner or use, repeated while there is no quorum."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine
from typing import Any, Final

from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.cluster.topology import Topology
from headrace_broker.runtime.replica.queue_host import QueueHost

RETRY_SECONDS: Final = 1.0  # before a deletion that the catalog did not take is tried again

log = logging.getLogger("headrace.queue")


class Reaper:
    """Tries deletions until they are done."""

    def __init__(self, topology: Topology, hosts: dict[int, QueueHost]) -> None:
        self._topology = topology  # deletes
        self._hosts = hosts  # replicas on this node by queue group
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiring: set[int] = set()

    def stop(self) -> None:
        """Give up; the deletions that are left are made when the node starts anew."""
        for task in list(self._tasks):
            task.cancel()

    async def drop_owner(self, owner: str) -> None:
        """Delete the exclusive queues of a connection that is gone, if need be later."""
        try:
            await self._topology.drop_owner(owner)
        except AmqpError as error:
            log.warning("deletion of exclusive queues of %s postponed: %s", owner, error)
            self._start(self._drop_owner_later(owner))

    def drop_unused(self, queue: Queue) -> None:
        """Delete an auto-delete queue whose last consumer has gone, unless another comes."""
        self._start(self._drop_unused(queue))

    def drop_expired(self, queue: Queue) -> None:
        """Delete a queue that was unused for its time, unless it is used meanwhile."""
        host = self._hosts.get(queue.group)
        if host is not None and queue.group not in self._expiring:
            self._expiring.add(queue.group)
            self._start(self._drop_expired(host))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        # In nobody's name: whoever gave the occasion has not asked for it.
        task = contextvars.Context().run(asyncio.get_running_loop().create_task, work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drop_owner_later(self, owner: str) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._topology.drop_owner(owner)
            except AmqpError:
                continue
            return

    async def _drop_unused(self, queue: Queue) -> None:
        while self._is_unused(queue):
            if await self._drop("auto-delete", queue):
                return

    async def _drop_expired(self, host: QueueHost) -> None:
        queue = host.queue
        used_ms = host.used_ms
        try:
            while self._is_unused(queue) and host.used_ms == used_ms:
                if await self._drop("expired", queue):
                    return
        finally:
            self._expiring.discard(queue.group)

    async def _drop(self, kind: str, queue: Queue) -> bool:
        """Delete a queue; False, and later, where the catalog does not take it."""
        try:
            await self._topology.drop_unused(queue)
        except AmqpError as error:
            log.warning("deletion of %s queue %r postponed: %s", kind, queue.name, error)
            await asyncio.sleep(RETRY_SECONDS)
            return False
        return True

    def _is_unused(self, queue: Queue) -> bool:
        host = self._hosts.get(queue.group)
        return host is not None and host.serving and host.machine.consumer_count == 0
