"""A queue in memory whose messages are leased over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.core.queue.command.command import encode_enqueue
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.state.lease_effect import LeaseGone
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.host_watcher import Configuration, HostWatcher
from headrace_broker.runtime.contract.queue_log import MemoryQueueLog
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.lease.leasing import LeaseClient
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.leader import Leaders
from headrace_broker.runtime.session.wire import SessionRouter
from headrace_protos.broker.v1 import lease_pb2 as pb

TTL = 60_000
PUBLISHER = session_id(3, 1, 1)


class Watcher(HostWatcher):
    """The node of the queue."""

    def __init__(self) -> None:
        self.version = MACHINE_VERSION
        self.commands: GroupCommands | None = None
        self.gone: list[LeaseGone] = []

    def recent(self) -> RecentlyApplied:
        return RecentlyApplied(())

    def configuration(self, queue: Any) -> Configuration:
        return Configuration(self.version, QueueSettings(), {})

    def queue_leader_changed(self, queue: Any, leader: int) -> None:
        pass

    def command_rejected(self, queue: Any, reason: str) -> None:
        raise AssertionError(reason)

    def queue_unused(self, queue: Any) -> None:
        pass

    def queue_due(self, queue: Any, due_ms: int) -> None:
        pass

    def dead_lettered(self, queue: Any, arguments: Any, dead_letters: Any) -> None:
        raise AssertionError(dead_letters)

    def dead_letters_congested(self, queue: Any) -> bool:
        return False

    def dead_letters_kept(self, queue: Any, ids: Any, causes: Any) -> None:
        raise AssertionError(ids)

    def dead_letters_forgotten(self, queue: Any, ids: Any) -> None:
        raise AssertionError(ids)

    def group_answered(self, queue: Any, answer: GroupAnswer) -> None:
        assert self.commands is not None
        self.commands.answered(answer)

    def lease_gone(self, queue: Any, gone: LeaseGone) -> None:
        self.gone.append(gone)


class StoppedClock(Clock):
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def unix_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def boottime_us(self) -> int:
        return self.ms * 1000


class World:
    """A server, its client, and the queue "work" with its host."""

    def __init__(self, served: Any, version: int = MACHINE_VERSION) -> None:
        self.served = served
        self.stub = served.lease
        self.queue = served.broker.add_queue("work").definition
        self.clock = StoppedClock()
        self.watcher = Watcher()
        self.watcher.version = version
        log = MemoryQueueLog(1, asyncio.get_running_loop())
        board = SessionRouter(1, lambda node, payload: False)
        self.host = QueueHost(self.queue, 1, log, board, self.watcher, self.clock)
        log.apply = self.host.apply_one
        self.host.leadership(1, 1, True)
        self.exists = True
        numbers = iter(range(1, 1 << 20))
        rpc = Rpc(1, lambda node, payload: False)
        hosts = {self.queue.group: self.host}
        leaders = Leaders(rpc, hosts, lambda queue: 1, lambda queue: self.exists)
        commands = GroupCommands(leaders, lambda: session_id(1, 1, next(numbers)))
        self.watcher.commands = commands
        served.broker.leases = LeaseClient(leaders, commands)
        self.published = 0

    async def publish(self, *bodies: bytes, properties: bytes = b"\x00\x00") -> None:
        publishes = [Publish(1, b"\x02ex\x03key", False, False, properties, b) for b in bodies]
        self.host.propose(encode_enqueue(PUBLISHER, self.published + 1, encode_batch(publishes)))
        self.published += len(bodies)
        await asyncio.sleep(0)

    async def call(self, method: str, request: Any) -> Any:
        return await getattr(self.stub, method)(request, metadata=self.served.GUEST)

    async def open(self, request_id: str = "a", group: str = "g", ttl_ms: int = TTL) -> Any:
        request = pb.OpenGroupRequest(name=name(group), request_id=request_id, ttl_ms=ttl_ms)
        return await self.call("OpenGroup", request)

    async def lease(self, number: int, epoch: int = 1, **more: Any) -> Any:
        more.setdefault("ttl_ms", TTL)
        request = pb.LeaseRequest(name=name(), epoch=epoch, lease=number, **more)
        return await self.call("Lease", request)

    async def fetch(self, lease: int, epoch: int = 1, **more: Any) -> list[Any]:
        request = pb.FetchLeaseRequest(name=name(), epoch=epoch, lease=lease, **more)
        return [each async for each in self.stub.Fetch(request, metadata=self.served.GUEST)]

    async def settle(self, up_to: int, epoch: int = 1) -> Any:
        request = pb.SettleLeasesRequest(name=name(), epoch=epoch, up_to=up_to)
        return await self.call("Settle", request)

    async def idle(self) -> None:
        """Wait until no lease is read."""
        while self.served.lease_service.fetches:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def expire(self) -> None:
        self.clock.ms += TTL
        self.host.tick(self.clock.ms)
        await asyncio.sleep(0)


def name(group: str = "g", queue: str = "work", vhost: str = "/") -> pb.GroupName:
    return pb.GroupName(vhost=vhost, queue=queue, group=group)
