"""Groups that take messages of a queue by lease; see docs/leases.md.

A lease is up to 65,536 messages that a group holds, and no connection. Any process that knows the
group's epoch may read them, as often as needed, and one call settles them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from headrace_client.error import (
    BrokerFaultError,
    ExhaustedError,
    HeadraceError,
    NotSupportedError,
    UnknownGroupError,
)
from headrace_client.export_stream import Block, Columns, read_columns
from headrace_client.lease_value import (
    GroupState,
    LeaseChunk,
    Leased,
    SettledLeases,
    read_chunk,
    read_group,
    read_leased,
    read_settled,
)
from headrace_client.limits import CALL_SECONDS, LEASE_CHUNK_BYTES
from headrace_client.link import Attempts, Link, is_passing
from headrace_client.service_calls import ServiceCalls
from headrace_protos.broker.v1 import lease_pb2 as pb
from headrace_protos.broker.v1.lease_pb2_grpc import LeaseStub

if TYPE_CHECKING:
    from headrace_protos.broker.v1.lease_pb2_grpc import LeaseAsyncStub
else:
    LeaseAsyncStub = Any  # it exists in the types alone

TOO_MANY_FETCHES: Final = "TOO_MANY_FETCHES"  # reason of a node through which enough is read


class LeaseGroup(ServiceCalls[LeaseAsyncStub]):
    """A group of a queue; made by `Client.lease_group`. Nothing is asked until a method is called.

    All calls may be repeated, and are repeated at another node where one does not answer. They
    raise HeadraceError: FencedError when somebody else has opened the group since,
    LeaseExpiredError (whose metadata has `messages` and `message_ids`), LeaseSettledError,
    LeaseOutOfOrderError (with `next_lease`), UnknownGroupError; ExhaustedError with the reason
    TOO_MANY_LEASES where more is leased than may be.

    Args:
        link: to the cluster.
        vhost: of the queue.
        queue: its name.
        group: its name, 1 to 255 bytes.
    """

    _service = LeaseStub

    def __init__(self, link: Link, vhost: str, queue: str, group: str, epoch: int = 0) -> None:
        super().__init__(link, vhost)
        self._name = pb.GroupName(vhost=vhost, queue=queue, group=group)
        self.epoch = epoch  # under which to work; 0 for none before `open`

    async def open(
        self, request_id: str, ttl_s: float, *, timeout_s: float = CALL_SECONDS
    ) -> GroupState:
        """Open the group, make it where it is not there, and fence who worked for it before.

        What it holds is taken over.

        Args:
            request_id: tells this opening from every other, 1 to 64 bytes, as `str(uuid4())`: a
                repetition of it is given the same epoch.
            ttl_s: what the group holds lives at least so long from now on, 1 s to a day.
            timeout_s: seconds for all attempts, as in the other calls.
        """
        request = pb.OpenGroupRequest(
            name=self._name, request_id=request_id, ttl_ms=_milliseconds(ttl_s)
        )
        answer = await self._call(lambda stub: stub.OpenGroup, request, timeout_s)
        group = read_group(answer.group)
        self.epoch = group.epoch
        return group

    async def lease(
        self,
        number: int,
        messages_max: int = 0,
        bytes_max: int = 0,
        *,
        ttl_s: float,
        timeout_s: float = CALL_SECONDS,
    ) -> Leased:
        """Take messages that are ready, oldest first.

        Args:
            number: `next_lease` of the group; an earlier one that is held is told again.
            messages_max: at most so many; 0 for as many as a lease may have, 65,536.
            bytes_max: of bodies; the message that exceeds it is the last. 0 for 256 MiB.
            ttl_s: what the group holds lives at least so long from now on.
            timeout_s: seconds for all attempts.
        """
        request = pb.LeaseRequest(
            name=self._name,
            epoch=self._working(),
            lease=number,
            messages_max=messages_max,
            octets_max=bytes_max,
            ttl_ms=_milliseconds(ttl_s),
        )
        return read_leased(await self._call(lambda stub: stub.Lease, request, timeout_s))

    async def renew(self, ttl_s: float, *, timeout_s: float = CALL_SECONDS) -> GroupState:
        """Put the deadline of all leases off; those that had expired before are told."""
        ttl_ms = _milliseconds(ttl_s)
        request = pb.RenewLeasesRequest(name=self._name, epoch=self._working(), ttl_ms=ttl_ms)
        return read_group((await self._call(lambda stub: stub.Renew, request, timeout_s)).group)

    async def settle(self, up_to: int, *, timeout_s: float = CALL_SECONDS) -> SettledLeases:
        """Accept all messages of the leases up to a number: they leave the queue.

        Those of a lease that is gone do not, for they went back: the answer says so.
        """
        request = pb.SettleLeasesRequest(name=self._name, epoch=self._working(), up_to=up_to)
        return read_settled(await self._call(lambda stub: stub.Settle, request, timeout_s))

    async def release(self, first: int = 0, *, failed: bool = False) -> int:
        """Give messages back to their places, and return how many.

        Args:
            first: number of the first lease; 0 for all.
            failed: that counts for each message against the queue's delivery limit.
        """
        request = pb.ReleaseLeasesRequest(name=self._name, epoch=self._working(), failed=failed)
        setattr(request, "from", first)
        return int((await self._call(lambda stub: stub.Release, request)).messages)

    async def describe(self) -> GroupState | None:
        """Return the current state of the group, None without one; takes no epoch."""
        request = pb.DescribeGroupsRequest(name=self._name)
        answer = await self._call(lambda stub: stub.Describe, request)
        return read_group(answer.groups[0]) if answer.groups else None

    async def close_group(self, *, any_epoch: bool = False) -> int:
        """Close the group, and return how many messages went back.

        To close one that is not there is no error.

        Args:
            any_epoch: whoever works for it.
        """
        epoch = 0 if any_epoch else self._working()
        request = pb.CloseGroupRequest(name=self._name, epoch=epoch)
        try:
            return int((await self._call(lambda stub: stub.CloseGroup, request)).messages)
        except UnknownGroupError:
            return 0

    async def fetch(
        self,
        lease: int,
        offset: int = 0,
        messages_max: int = 0,
        *,
        chunk_bytes: int = LEASE_CHUNK_BYTES,
        timeout_s: float = CALL_SECONDS,
    ) -> AsyncGenerator[LeaseChunk, None]:
        """Read messages of a lease, in the same order every time.

        When a node fails the reading goes on at another one, where it was.

        Args:
            lease: number of one that is held.
            offset: how many of its messages are left out.
            messages_max: at most so many; 0 for all.
            chunk_bytes: about, of a chunk; at most 4 MiB.
            timeout_s: seconds without a node that answers, after which it fails.
        """
        request = self._fetch(lease, pb.LEASE_FORMAT_MESSAGES, chunk_bytes)
        answers = _fetched(self._link, request, offset, messages_max, timeout_s)
        async with aclosing(answers):
            async for answer in answers:
                yield read_chunk(answer)

    async def fetch_columns(
        self,
        lease: int,
        offset: int = 0,
        messages_max: int = 0,
        *,
        chunk_bytes: int = LEASE_CHUNK_BYTES,
        timeout_s: float = CALL_SECONDS,
    ) -> AsyncGenerator[Block, None]:
        """Read messages of a lease as columns that Arrow can use as they are.

        As `fetch`; the indexes of a block count the lease's messages from 0 on, and all of its rows
        are wanted. docs/leases.md says which columns there are.
        """
        request = self._fetch(lease, pb.LEASE_FORMAT_COLUMNS, chunk_bytes)
        schema: Columns | None = None
        answers = _fetched(self._link, request, offset, messages_max, timeout_s)
        async with aclosing(answers):
            async for answer in answers:
                if answer.HasField("schema"):
                    schema = read_columns(answer.schema)
                if schema is None:
                    raise NotSupportedError("the broker does not give leases as columns: update it")
                yield _block(schema, answer)

    def _fetch(
        self, lease: int, form: pb.LeaseFormat.ValueType, chunk_bytes: int
    ) -> pb.FetchLeaseRequest:
        return pb.FetchLeaseRequest(
            name=self._name,
            epoch=self._working(),
            lease=lease,
            format=form,
            chunk_octets=chunk_bytes,
        )

    def _working(self) -> int:
        if not self.epoch:
            raise ValueError("epoch: the group must be opened first, or an epoch be given")
        return self.epoch


async def _fetched(
    link: Link, request: pb.FetchLeaseRequest, offset: int, messages_max: int, timeout_s: float
) -> AsyncGenerator[pb.FetchLeaseResponse, None]:
    """Read a lease from `offset` on, at one node after the other.

    Raises:
        HeadraceError: no node answers in time, or one says what another would say as well.
    """
    loop = asyncio.get_running_loop()
    attempts = Attempts(link)
    end = offset + messages_max if messages_max else 0
    failing_since: float | None = None
    while True:
        endpoint = link.current
        request.offset = offset
        request.messages_max = end - offset if end else 0
        try:
            async with aclosing(_stream(link, endpoint, request)) as answers:
                async for answer in answers:
                    attempts.succeeded()
                    failing_since = None
                    offset += answer.messages
                    yield answer
                    if offset == end:
                        return
            return
        except HeadraceError as error:
            failure = error
        busy = isinstance(failure, ExhaustedError) and failure.reason == TOO_MANY_FETCHES
        if not (busy or is_passing(failure)):
            raise failure
        now = loop.time()
        failing_since = now if failing_since is None else failing_since
        pause_s = attempts.failed(endpoint, failure)
        if now + pause_s - failing_since > timeout_s:
            raise attempts.error(failure)
        await asyncio.sleep(pause_s)


async def _stream(
    link: Link, endpoint: str, request: pb.FetchLeaseRequest
) -> AsyncGenerator[pb.FetchLeaseResponse, None]:
    """Read a lease at one endpoint, to the end.

    Raises:
        HeadraceError: the stream has failed.
    """
    call: Any = LeaseStub(link.channel(endpoint)).Fetch(request, metadata=link.metadata)
    offset = request.offset
    try:
        while (answer := await link.next_answer(call, endpoint)) is not None:
            if answer.offset != offset or not answer.messages:
                raise BrokerFaultError(f"{endpoint} has left out messages of a lease")
            offset += answer.messages
            yield answer
    finally:
        call.cancel()


def _block(schema: Columns, answer: pb.FetchLeaseResponse) -> Block:
    """Return the columns of an answer.

    Raises:
        BrokerFaultError: they are not what the answer says.
    """
    block = answer.block
    if block.rows != answer.messages or len(block.body) != block.body_octets:
        raise BrokerFaultError(f"a block of a lease has {block.rows} rows, not {answer.messages}")
    end = answer.offset + block.rows
    byte_counts = tuple(block.buffer_octets)
    return Block(schema, answer.offset, block.rows, byte_counts, block.body, answer.offset, end)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
