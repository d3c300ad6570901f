"""A queue in memory that is backed up over gRPC and restored through it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc
from tests.broker.gateways.fake_queue import FakeQueue
from tests.broker.gateways.grpc.conftest import Served, basic
from tests.broker.gateways.grpc.lease_world import World

from headrace_broker.catalog.access_backup import backup_refusal
from headrace_broker.gateways.grpc.backup.backup import BackupService
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.server import GrpcServer
from headrace_broker.model.definition import Queue, User
from headrace_broker.model.limits import MESSAGE_BYTES_MAX
from headrace_broker.runtime.backup.client import BackupClient
from headrace_broker.runtime.backup.points import BackupPoints
from headrace_broker.runtime.contract.queue_log import MemoryQueueLog
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.session.wire import SessionRouter
from headrace_protos.broker.v1 import backup_pb2 as pb
from headrace_protos.broker.v1.backup_pb2_grpc import BackupStub

TTL = 60_000
ADMIN = basic("guest", "guest")


class BackupWorld(World):
    """A server of its own for the service Backup; the queue is "work"."""

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self.broker = served.broker
        self.broker.tags = ("administrator",)
        self.hosts = {self.queue.group: self.host}
        self.short = ""
        rules = self.broker.rules
        for name in ("guest", "other"):
            rules.put_user(User(name, b"", b"", ("administrator",)))
        refusal = partial(backup_refusal, rules)
        self.points = BackupPoints(self.hosts, lambda: 1, lambda: self.short, refusal, self.clock)
        self.client = BackupClient(
            Rpc(1, lambda node, payload: False), self.points, lambda queue: 1, self._queue_by_group
        )
        admission = Admission(self.broker, lambda: "")
        self.service = BackupService(self.broker, admission, self.client, "127.0.0.1:1")
        self.server = GrpcServer([self.service], lambda: "", MESSAGE_BYTES_MAX, admission)

    def _queue_by_group(self, group: int) -> Queue | None:
        found = [each.definition for each in self.broker.queues.values()]
        return next((each for each in found if each.group == group and self.exists), None)

    def add_queue(self, name: str) -> FakeQueue:
        """Declare a queue that is empty, where the broker in memory takes messages."""
        added: FakeQueue = self.broker.add_queue(name)
        definition = added.definition
        log = MemoryQueueLog(1, asyncio.get_running_loop())
        board = SessionRouter(1, lambda node, payload: False)
        self.hosts[definition.group] = QueueHost(
            definition, 1, log, board, self.watcher, self.clock
        )
        return added

    async def __aenter__(self) -> BackupWorld:
        [port] = await self.server.start(("127.0.0.1:0", None))
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        self.stub = BackupStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.points.stop()
        await self.channel.close(None)
        await self.server.stop()

    async def call(self, method: str, request: Any, user: str = "guest") -> Any:
        return await getattr(self.stub, method)(request, metadata=basic(user, user))

    async def open_point(self, ttl_ms: int = TTL, queue: str = "work") -> Any:
        return await self.call("Open", pb.OpenPointRequest(vhost="/", queue=queue, ttl_ms=ttl_ms))

    async def read(
        self, point: str, user: str = "guest", **more: int
    ) -> list[pb.ReadPointResponse]:
        request = pb.ReadPointRequest(point=point, **more)
        return [chunk async for chunk in self.stub.Read(request, metadata=basic(user, user))]

    async def idle(self) -> None:
        """Wait until no point is read."""
        while self.service.reads:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def restore(self, *requests: pb.RestoreRequest) -> Any:
        async def stream() -> Any:
            for request in requests:
                yield request

        return self.stub.Restore(stream(), metadata=ADMIN)
