"""A read of a log, continued at another node when one is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import zlib
from collections.abc import AsyncGenerator, Iterable
from typing import Any, NamedTuple

import grpc

from headrace_client.error import BrokerFaultError, ExhaustedError, HeadraceError
from headrace_client.link import Attempts, Link, is_passing
from headrace_client.placement import Placement
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportStub

log = logging.getLogger(__name__)


class Columns(NamedTuple):
    """Columns of the rows of a block."""

    version: int  # grows when columns are added at the end; none is ever removed or changed
    # names, and types by their numbers in `ExportType` of export.proto
    columns: tuple[tuple[str, int], ...]


def read_columns(schema: pb.ExportSchema) -> Columns:
    """Return the schema of blocks."""
    return Columns(schema.version, tuple((each.name, int(each.type)) for each in schema.columns))


class Block(NamedTuple):
    """Rows that stand one behind the other, as buffers that Arrow can use as they are."""

    schema: Columns  # of the rows
    first_index: int  # of the first one
    rows: int  # how many
    # length of each buffer: two of each column, three of UTF8 and BINARY ones
    buffer_bytes: tuple[int, ...]
    body: bytes  # the buffers, each at a multiple of 8 bytes
    start: int  # index of the first row that is wanted; the block may begin before
    end: int  # of the row behind the last that is; the block may reach beyond


class Wanted(NamedTuple):
    """A read; see `Export.read`."""

    log: pb.ExportLog.ValueType
    shard: str
    incarnation: int
    start: int
    end: int
    bytes_max: int
    compressed: bool


class ReadStream:
    """One read."""

    def __init__(
        self,
        link: Link,
        vhost: str,
        wanted: Wanted,
        node: str,
        address: str,  # of that node, which is asked first where the endpoints hold it
        give_up_after_s: float,
    ) -> None:
        self._link = link  # to the cluster
        self._vhost = vhost  # that the user may enter
        self._wanted = wanted  # what is read
        self._node = node  # that is asked first
        self._place = address if address in link.endpoints else None
        self._give_up_after_s = give_up_after_s  # seconds without a row after which it fails
        self._index = wanted.start
        self._byte_count = 0  # of blocks that were handed out
        self._schema: Columns | None = None

    async def blocks(self) -> AsyncGenerator[Block, None]:
        """Return the blocks, once.

        Raises:
            HeadraceError: there are no more.
        """
        loop = asyncio.get_running_loop()
        attempts = Attempts(self._link)
        if self._place is None and not self._is_done():
            self._place = await Placement(self._link, self._vhost, "").at(self._node)
        moved_at = loop.time()
        while not self._is_done():
            endpoint, self._place = self._place or self._link.current, None
            call = self._begin(endpoint)
            try:
                while (answer := await self._link.next_answer(call, endpoint)) is not None:
                    for block in self._take(answer):
                        yield block
                        moved_at = loop.time()  # as long as who reads may take over it
                    attempts.succeeded()
                if self._is_done():
                    return
                failure: HeadraceError = BrokerFaultError(f"{endpoint} has ended the stream early")
            except HeadraceError as error:
                failure = error
            finally:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    call.cancel()
            if not (is_passing(failure) or isinstance(failure, ExhaustedError)):
                raise failure
            pause_s = attempts.failed(endpoint, failure)
            if loop.time() + pause_s - moved_at > self._give_up_after_s:
                raise failure
            text = "shard %s: %s: %s; again in %.1f s"
            log.info(text, self._wanted.shard, endpoint, failure.text, pause_s)
            await asyncio.sleep(pause_s)

    def _is_done(self) -> bool:
        wanted = self._wanted
        enough = 0 < wanted.bytes_max <= self._byte_count
        return self._index >= wanted.end or enough

    def _begin(self, endpoint: str) -> Any:
        """Begin a stream where the last one has ended."""
        wanted = self._wanted
        request = pb.ReadExportRequest(
            log=wanted.log,
            shard=wanted.shard,
            incarnation=wanted.incarnation,
            start=self._index,
            end=wanted.end,
            octets_max=max(wanted.bytes_max - self._byte_count, 0),
            compressed=wanted.compressed,
        )
        self._schema = None
        return ExportStub(self._link.channel(endpoint)).Read(request, metadata=self._link.metadata)

    def _take(self, answer: pb.ReadExportResponse) -> Iterable[Block]:
        """Return the blocks of an answer; each counts when it is asked for."""
        if answer.HasField("schema"):
            self._schema = read_columns(answer.schema)
        for each in answer.blocks:
            block = self._block(each)
            self._index = block.end
            self._byte_count += len(each.body)
            yield block

    def _block(self, each: pb.ExportBlock) -> Block:
        """Return a block as it was before it was compressed.

        Raises:
            BrokerFaultError: it is not what was asked for.
        """
        behind = each.first_index + each.rows
        if self._schema is None or not each.first_index <= self._index < behind:
            raise BrokerFaultError(f"shard {self._wanted.shard}: rows do not follow each other")
        return Block(
            self._schema,
            each.first_index,
            each.rows,
            tuple(each.buffer_octets),
            _body(each),
            self._index,
            min(behind, self._wanted.end),
        )


def _body(block: pb.ExportBlock) -> bytes:
    """Return a block's body, inflated to its stated size, and no more.

    Raises:
        BrokerFaultError: it is damaged.
    """
    body = block.body
    if block.compression == pb.EXPORT_COMPRESSION_ZLIB:
        inflater = zlib.decompressobj()
        try:
            body = inflater.decompress(body, block.body_octets)
        except zlib.error as error:
            raise BrokerFaultError(f"a block cannot be inflated: {error}") from None
    elif block.compression != pb.EXPORT_COMPRESSION_UNSPECIFIED:
        raise BrokerFaultError(f"a block has the unknown compression {block.compression}")
    if len(body) != block.body_octets:
        raise BrokerFaultError(f"a block has {len(body)} bytes, not {block.body_octets}")
    return body
