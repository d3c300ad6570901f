# ruff: noqa: N802  (names of gRPC methods)
"""The service Lease: groups that take messages by lease."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import grpc

from headrace_broker.catalog.access import Caller
from headrace_broker.core.queue.state.lease_effect import LEASE_GONE, GroupInfo, LeaseInfo
from headrace_broker.gateways.grpc.lease.answer import (
    answered_group,
    check_status,
    checked,
    group_message,
    leader_errors,
    lease_state,
)
from headrace_broker.gateways.grpc.lease.columns import LeaseColumns
from headrace_broker.gateways.grpc.lease.rows import LeaseBlocks, LeaseRows
from headrace_broker.gateways.grpc.messaging.consuming import check_reads, find_queue
from headrace_broker.gateways.grpc.messaging.messaging import check_vhost
from headrace_broker.gateways.grpc.server.call import Admission, send
from headrace_broker.gateways.grpc.server.errors import (
    RETRY_MS,
    CallError,
    Context,
    bad_field,
    check_chunk,
    number_in,
)
from headrace_broker.gateways.grpc.server.unary import unary
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    LEASE_BYTES_MAX,
    LEASE_CHUNK_BYTES,
    LEASE_CHUNK_BYTES_MAX,
    LEASE_CHUNK_MESSAGES_MAX,
    LEASE_FETCHES_MAX,
    LEASE_MESSAGES_MAX,
    LEASE_OPENER_BYTES_MAX,
    LEASE_TTL_MS_MAX,
    LEASE_TTL_MS_MIN,
    NAME_BYTES_MAX,
)
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.lease.leasing import Fetched
from headrace_protos.broker.v1 import lease_pb2 as pb
from headrace_protos.broker.v1.lease_pb2_grpc import LeaseServicer, add_LeaseServicer_to_server

NUMBER_MAX: Final = (1 << 62) - 1  # of leases and epochs


class _Place(NamedTuple):
    """A group of a queue."""

    queue: Queue
    group: bytes
    name: str


class _Form(Protocol):
    """Format of a call's messages."""

    messages_max: int  # in one answer

    def add_to(self, response: pb.FetchLeaseResponse, chunk: Fetched) -> None:
        """Write the messages of a chunk, one or more, and name the form."""


_FORMS: Final[dict[int, Callable[[], _Form]]] = {
    pb.LEASE_FORMAT_BLOCKS: LeaseBlocks,
    pb.LEASE_FORMAT_COLUMNS: LeaseColumns,
}


class LeaseService(LeaseServicer):
    """Leases messages to clients."""

    name = pb.DESCRIPTOR.services_by_name["Lease"].full_name

    def __init__(self, broker: Broker, admission: Admission) -> None:
        self._broker = broker  # the node
        self.admission = admission  # lets calls in
        self.fetches = 0  # how many calls read leases now

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_LeaseServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """Calls have nothing that must end by itself."""

    @unary
    async def OpenGroup(self, who: Caller, request: pb.OpenGroupRequest) -> pb.OpenGroupResponse:
        """Open a group."""
        place = await self._place(who, request.name)
        opener = request.request_id.encode()
        if not 1 <= len(opener) <= LEASE_OPENER_BYTES_MAX:
            rule = f"must have 1 to {LEASE_OPENER_BYTES_MAX} bytes"
            raise bad_field("request_id", rule)
        ttl_ms = _ttl(request.ttl_ms)
        with leader_errors():
            answer = await self._broker.leases.open_group(place.queue, place.group, ttl_ms, opener)
        return pb.OpenGroupResponse(group=answered_group(checked(answer, place.name)))

    @unary
    async def Lease(self, who: Caller, request: pb.LeaseRequest) -> pb.LeaseResponse:
        """Take messages as a group's next lease."""
        place = await self._place(who, request.name)
        number = number_in("lease", request.lease, 1, NUMBER_MAX)
        most = request.messages_max or LEASE_MESSAGES_MAX
        if most > LEASE_MESSAGES_MAX:
            raise bad_field("messages_max", f"must be at most {LEASE_MESSAGES_MAX}")
        byte_count = request.octets_max or LEASE_BYTES_MAX
        if byte_count > LEASE_BYTES_MAX:
            raise bad_field("octets_max", f"must be at most {LEASE_BYTES_MAX}")
        epoch, ttl_ms = _epoch(request.epoch), _ttl(request.ttl_ms)
        with leader_errors():
            answer = await self._broker.leases.lease(
                place.queue, place.group, epoch, number, most, byte_count, ttl_ms
            )
        checked(answer, place.name)
        return pb.LeaseResponse(
            lease=number,
            messages=answer.count,
            octets=answer.byte_count,
            messages_ready=answer.ready,
            group=answered_group(answer),
        )

    @unary
    async def Describe(
        self, who: Caller, request: pb.DescribeGroupsRequest
    ) -> pb.DescribeGroupsResponse:
        """Say what groups hold."""
        place = await self._place(who, request.name, all_groups=True)
        with leader_errors():
            groups = await self._broker.leases.describe(place.queue)
        wanted = [group for group in groups if place.group in (b"", group.name)]
        return pb.DescribeGroupsResponse(groups=[group_message(group) for group in wanted])

    async def Fetch(  # type: ignore[override]  # writes by itself
        self, request: pb.FetchLeaseRequest, context: Context
    ) -> None:
        """Send messages of a lease."""
        async with self.admission.call(context) as caller:
            if self.fetches >= LEASE_FETCHES_MAX:
                text = f"{LEASE_FETCHES_MAX} leases are being read through this node"
                code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_FETCHES"
                raise CallError(code, reason, text, retry_ms=RETRY_MS)
            self.fetches += 1
            try:
                place = await self._place(caller.who, request.name)
                _check_fetch(request)
                judge = partial(check_reads, self._broker, place.queue)
                with (
                    self.admission.while_allowed(caller, place.queue.vhost, judge),
                    leader_errors(),
                ):
                    await self._send(place, request, context)
            finally:
                self.fetches -= 1

    @unary
    async def Renew(self, who: Caller, request: pb.RenewLeasesRequest) -> pb.RenewLeasesResponse:
        """Put deadlines off."""
        place = await self._place(who, request.name)
        epoch, ttl_ms = _epoch(request.epoch), _ttl(request.ttl_ms)
        with leader_errors():
            answer = await self._broker.leases.renew(place.queue, place.group, epoch, ttl_ms)
        return pb.RenewLeasesResponse(group=answered_group(checked(answer, place.name)))

    @unary
    async def Settle(self, who: Caller, request: pb.SettleLeasesRequest) -> pb.SettleLeasesResponse:
        """Accept the messages of leases up to a number."""
        place = await self._place(who, request.name)
        epoch, up_to = _epoch(request.epoch), number_in("up_to", request.up_to, 0, NUMBER_MAX)
        with leader_errors():
            answer = await self._broker.leases.settle(place.queue, place.group, epoch, up_to)
        expired = answer.status == LEASE_GONE
        if not expired:
            checked(answer, place.name)
        return pb.SettleLeasesResponse(
            messages=answer.count,
            expired=expired,
            gone=[lease_state(lease) for lease in answer.gone],
            group=answered_group(answer),
        )

    @unary
    async def Release(
        self, who: Caller, request: pb.ReleaseLeasesRequest
    ) -> pb.ReleaseLeasesResponse:
        """Give messages back."""
        place = await self._place(who, request.name)
        first = number_in("from", getattr(request, "from"), 0, NUMBER_MAX)
        epoch = _epoch(request.epoch)
        with leader_errors():
            answer = await self._broker.leases.release(
                place.queue, place.group, epoch, first, request.failed
            )
        checked(answer, place.name)
        return pb.ReleaseLeasesResponse(messages=answer.count, group=answered_group(answer))

    @unary
    async def CloseGroup(self, who: Caller, request: pb.CloseGroupRequest) -> pb.CloseGroupResponse:
        """Forget a group."""
        place = await self._place(who, request.name)
        epoch = number_in("epoch", request.epoch, 0, NUMBER_MAX)
        with leader_errors():
            answer = await self._broker.leases.close_group(place.queue, place.group, epoch)
        return pb.CloseGroupResponse(messages=checked(answer, place.name).count)

    # Inner

    async def _place(self, who: Caller, name: pb.GroupName, all_groups: bool = False) -> _Place:
        """Return whom a call is about.

        Raises:
            CallError: the name is none, or the user may not enter the vhost.
            AmqpError: the user may not read the queue, or it is not there.
        """
        check_vhost(self._broker, who, name.vhost)
        queue = await find_queue(self._broker, who.name, name.vhost, name.queue)
        group = name.group.encode()
        if len(group) > NAME_BYTES_MAX or (not group and not all_groups):
            raise bad_field("name.group", f"must have 1 to {NAME_BYTES_MAX} bytes")
        return _Place(queue, group, name.group)

    async def _send(self, place: _Place, request: pb.FetchLeaseRequest, context: Any) -> None:
        """Send chunks until all that was asked for is sent."""
        form = _FORMS.get(request.format, LeaseRows)()
        offset, left = request.offset, request.messages_max or LEASE_MESSAGES_MAX
        most = min(request.chunk_messages or LEASE_CHUNK_MESSAGES_MAX, form.messages_max)
        byte_count = request.chunk_octets or LEASE_CHUNK_BYTES
        while left > 0:
            chunk = await self._broker.leases.fetch(
                place.queue,
                place.group,
                request.epoch,
                request.lease,
                offset,
                min(most, left),
                byte_count,
            )
            if chunk.status == LEASE_GONE:
                group, gone = await self._gone(place, request.lease)
                check_status(chunk.status, place.name, group, gone)
            check_status(chunk.status, place.name)
            if not chunk.message_count:
                return
            check_chunk(len(chunk.batch))
            response = _response(chunk, offset, form)
            offset += response.messages
            left -= response.messages
            await send(context, response)

    async def _gone(self, place: _Place, number: int) -> tuple[GroupInfo | None, list[LeaseInfo]]:
        """Return a group, and the rest of what is remembered of its ended lease."""
        groups = await self._broker.leases.describe(place.queue)
        group = next((each for each in groups if each.name == place.group), None)
        leases = group.leases if group is not None else []
        return group, [lease for lease in leases if lease.number == number]


def _response(chunk: Fetched, offset: int, form: _Form) -> pb.FetchLeaseResponse:
    response = pb.FetchLeaseResponse(offset=offset, messages=chunk.message_count, total=chunk.total)
    form.add_to(response, chunk)
    return response


def _ttl(ttl_ms: int) -> int:
    return number_in("ttl_ms", ttl_ms, LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX)


def _epoch(epoch: int) -> int:
    return number_in("epoch", epoch, 1, NUMBER_MAX)


def _check_fetch(request: pb.FetchLeaseRequest) -> None:
    """Refuse to read what no lease can have.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    _epoch(request.epoch)
    number_in("lease", request.lease, 1, NUMBER_MAX)
    number_in("offset", request.offset, 0, NUMBER_MAX)
    number_in("messages_max", request.messages_max, 0, NUMBER_MAX)
    if request.chunk_messages > LEASE_CHUNK_MESSAGES_MAX:
        raise bad_field("chunk_messages", f"must be at most {LEASE_CHUNK_MESSAGES_MAX}")
    if request.chunk_octets > LEASE_CHUNK_BYTES_MAX:
        raise bad_field("chunk_octets", f"must be at most {LEASE_CHUNK_BYTES_MAX}")
    if request.format not in pb.LeaseFormat.values():
        raise bad_field("format", "must be a LeaseFormat that there is")
