# ruff: noqa: N802  (names of gRPC methods)
"""Groups that lease messages, in memory: as a queue of the broker does it, of one queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import grpc

from headrace_broker.codecs import column_block as codec
from headrace_protos.broker.v1 import lease_pb2 as pb
from headrace_protos.broker.v1.lease_pb2_grpc import LeaseServicer
from headrace_protos.broker.v1.message_pb2 import Range

Refusal = tuple[Any, ...]
FIRST_MS = 1_700_000_000_000  # Unix time at which the first message came
SCHEMA = codec.Schema(
    1,
    (
        ("queue_message_id", codec.INT64),
        ("exchange", codec.UTF8),
        ("routing_key", codec.UTF8),
        ("content_type", codec.UTF8),
        ("priority", codec.INT32),
        ("headers", codec.UTF8),
        ("payload", codec.BINARY),
        ("payload_bytes", codec.INT64),
        ("enqueued_at", codec.TIMESTAMP_MS),
        ("acquired_count", codec.INT32),
        ("delivery_count", codec.INT32),
    ),
)
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


@dataclass
class World:
    """Shared state of the nodes of a cluster: ready messages, and groups.

    Attributes:
        ready: bodies by message id.
        leases_max: that a group may have unsettled.
        most: messages that are leased at once of the queue.
    """

    ready: dict[int, bytes] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    leases_max: int = 64
    most: int = 1 << 20
    epochs: int = 0
    next_id: int = 1

    def fill(self, count: int) -> None:
        """Add so many messages, numbered on from 1."""
        first, self.next_id = self.next_id, self.next_id + count
        self.ready.update({each: b"%d" % each for each in range(first, self.next_id)})

    def group(self, name: str, epoch: int) -> Group | Refusal:
        """Return a group for who works for it."""
        group = self.groups.get(name)
        if group is None:
            return grpc.StatusCode.NOT_FOUND, f"group '{name}': it is not open", "UNKNOWN_GROUP"
        if epoch != group.epoch:
            return grpc.StatusCode.ABORTED, "somebody else has opened the group since", "FENCED"
        return group

    def expire(self, name: str) -> None:
        """Let a group's deadline pass."""
        group = self.groups[name]
        for number in list(group.held):
            self.ready |= group.go(number, pb.LeaseState.EXPIRED)
        self.ready = dict(sorted(self.ready.items()))


@dataclass
class Group:
    """A group.

    Attributes:
        held: messages by lease.
        gone: leases that went back.
        renewed: how often its deadline was put off by Renew.
    """

    name: str
    epoch: int
    openers: dict[str, int] = field(default_factory=dict)
    held: dict[int, dict[int, bytes]] = field(default_factory=dict)
    gone: dict[int, pb.LeaseState] = field(default_factory=dict)
    next_lease: int = 1
    settled: int = 0
    renewed: int = 0

    def go(self, number: int, state: Any) -> dict[int, bytes]:
        """Take a lease's messages away, and return them."""
        messages = self.held.pop(number)
        self.gone[number] = pb.LeaseState(
            lease=number,
            state=state,
            messages=len(messages),
            message_ids=[Range(first=min(messages), last=max(messages))],
        )
        return messages

    def state(self) -> pb.LeaseGroup:
        """Return its info."""
        told = {
            number: pb.LeaseState(
                lease=number,
                state=pb.LeaseState.HELD,
                messages=len(messages),
                octets=sum(map(len, messages.values())),
            )
            for number, messages in self.held.items()
        }
        told.update({number: gone for number, gone in self.gone.items() if number > self.settled})
        return pb.LeaseGroup(
            name=self.name,
            epoch=self.epoch,
            next_lease=self.next_lease,
            settled=self.settled,
            deadline_ms=FIRST_MS if self.held else 0,
            leases=[told[number] for number in sorted(told)],
        )

    def find(self, number: int) -> dict[int, bytes] | Refusal:
        """Return the messages of a lease that is held."""
        if number in self.held:
            return self.held[number]
        if number in self.gone:
            gone = self.gone[number]
            [ids] = gone.message_ids
            told = {"messages": str(gone.messages), "message_ids": f"{ids.first}-{ids.last}"}
            return PRECONDITION, "the lease is gone", "EXPIRED", (), told
        if number < self.next_lease:
            return PRECONDITION, "the lease is settled", "SETTLED"
        told = {"next_lease": str(self.next_lease)}
        return PRECONDITION, "beyond the next", "OUT_OF_ORDER", (), told


class FakeLeases(LeaseServicer):
    """The service of one node.

    Attributes:
        world: what it shares with other nodes.
        chunk: messages in an answer to Fetch.
        breaks_after: answers after which a Fetch breaks off, and what with; one each time.
        fetches: (lease, offset, messages_max) that were asked for.
        reads: answers Fetch instead.
    """

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.world = World()
        self.chunk = 4
        self.breaks_after: list[tuple[int, Refusal]] = []
        self.fetches: list[tuple[int, int, int]] = []
        self.reads: Any = None

    async def _group(self, name: str, request: Any, context: Any) -> Any:
        await self._broker.unary(name, request, context)
        return await self._taken(self.world.group(request.name.group, request.epoch), context)

    async def _taken(self, found: Any, context: Any) -> Any:
        if isinstance(found, tuple):
            await self._broker.refuse(context, *found)
        return found

    async def OpenGroup(self, request: Any, context: Any) -> Any:
        await self._broker.unary("OpenGroup", request, context)
        world, name = self.world, request.name.group
        group = world.groups.setdefault(name, Group(name, 0))
        if request.request_id not in group.openers:
            world.epochs += 1
            group.openers[request.request_id] = group.epoch = world.epochs
        told = group.state()
        told.epoch = group.openers[request.request_id]
        return pb.OpenGroupResponse(group=told)

    async def Lease(self, request: Any, context: Any) -> Any:
        group = await self._group("Lease", request, context)
        world = self.world
        if request.lease == group.next_lease:
            unsettled = len(group.held) + len(group.gone)
            leased = sum(len(held) for each in world.groups.values() for held in each.held.values())
            if unsettled >= world.leases_max or leased >= world.most:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                await self._taken((code, "too many leases", "TOO_MANY_LEASES"), context)
            taken: dict[int, bytes] = {}
            byte_count = 0
            room = min(request.messages_max or 65_536, world.most - leased)
            while (
                world.ready and len(taken) < room and byte_count < (request.octets_max or 1 << 28)
            ):
                number = next(iter(world.ready))
                taken[number] = world.ready.pop(number)
                byte_count += len(taken[number])
            if taken:
                group.held[request.lease] = taken
                group.next_lease += 1
        else:
            taken = await self._taken(group.find(request.lease), context)
        return pb.LeaseResponse(
            lease=request.lease,
            messages=len(taken),
            octets=sum(map(len, taken.values())),
            messages_ready=len(world.ready),
            group=group.state(),
        )

    async def Describe(self, request: Any, context: Any) -> Any:
        await self._broker.unary("Describe", request, context)
        groups = self.world.groups.values()
        wanted = [each.state() for each in groups if request.name.group in ("", each.name)]
        return pb.DescribeGroupsResponse(groups=wanted)

    async def Renew(self, request: Any, context: Any) -> Any:
        group = await self._group("Renew", request, context)
        group.renewed += 1
        return pb.RenewLeasesResponse(group=group.state())

    async def Settle(self, request: Any, context: Any) -> Any:
        group = await self._group("Settle", request, context)
        if request.up_to >= group.next_lease:
            await self._taken(group.find(request.up_to), context)
        numbers = [number for number in group.held if number <= request.up_to]
        count = sum(len(group.held.pop(number)) for number in numbers)
        gone = [group.gone.pop(each) for each in sorted(group.gone) if each <= request.up_to]
        group.settled = max(group.settled, request.up_to)
        return pb.SettleLeasesResponse(
            messages=count, expired=bool(gone), gone=gone, group=group.state()
        )

    async def Release(self, request: Any, context: Any) -> Any:
        group = await self._group("Release", request, context)
        numbers = [number for number in group.held if number >= getattr(request, "from")]
        back = [group.go(number, pb.LeaseState.RELEASED) for number in numbers]
        for messages in back:
            self.world.ready = dict(sorted((self.world.ready | messages).items()))
        return pb.ReleaseLeasesResponse(messages=sum(map(len, back)), group=group.state())

    async def CloseGroup(self, request: Any, context: Any) -> Any:
        await self._broker.unary("CloseGroup", request, context)
        name = request.name.group
        epoch = request.epoch or getattr(self.world.groups.get(name), "epoch", 0)
        group = await self._taken(self.world.group(name, epoch), context)
        back = sum(len(held) for held in group.held.values())
        self.world.expire(name)
        del self.world.groups[name]
        return pb.CloseGroupResponse(messages=back)

    async def Fetch(self, request: Any, context: Any) -> None:  # type: ignore[override]
        await self._broker.admit(context)
        self.fetches.append((request.lease, request.offset, request.messages_max))
        if self.reads is not None:
            await self.reads(request, context)
            return
        left, refusal = self.breaks_after.pop(0) if self.breaks_after else (1 << 30, ())
        group = await self._taken(self.world.group(request.name.group, request.epoch), context)
        offset, end = request.offset, request.offset + (request.messages_max or 1 << 30)
        while True:
            if not left:
                await self._taken(refusal, context)
            messages = await self._taken(group.find(request.lease), context)
            some = list(messages.items())[offset : min(end, offset + self.chunk)]
            if not some:
                return
            answer = pb.FetchLeaseResponse(
                offset=offset, messages=len(some), total=len(messages), format=request.format
            )
            if request.format == pb.LEASE_FORMAT_COLUMNS:
                _columns(answer, some, is_first=offset == request.offset)
            else:
                answer.rows.extend(_row(number, body) for number, body in some)
            await context.write(answer)
            offset += len(some)
            left -= 1


def _row(number: int, body: bytes) -> pb.LeasedMessage:
    row = pb.LeasedMessage(
        message_id=number, enqueued_ms=FIRST_MS + number, routing_key="q", body=body
    )
    row.properties.content_type = "text/plain"
    return row


def _columns(answer: Any, some: list[tuple[int, bytes]], is_first: bool) -> None:
    """Put messages into an answer as columns."""
    count = len(some)
    numbers, bodies = [number for number, _ in some], [body for _, body in some]
    block = codec.encode_columns(
        SCHEMA,
        (
            numbers,
            [""] * count,
            ["q"] * count,
            ["text/plain"] * count,
            [None] * count,
            ['{"a": 1}'] * count,
            bodies,
            [len(body) for body in bodies],
            [FIRST_MS + number for number in numbers],
            [0] * count,
            [0] * count,
        ),
    )
    if is_first:
        answer.schema.version = SCHEMA.version
        for name, kind in SCHEMA.columns:
            answer.schema.columns.add(name=name, type=kind)
    answer.block.first_index = answer.offset
    answer.block.rows = count
    answer.block.buffer_octets.extend(block.buffer_bytes)
    answer.block.body = block.body
    answer.block.body_octets = len(block.body)
