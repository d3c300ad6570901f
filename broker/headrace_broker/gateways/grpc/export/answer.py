"""Answers of logs to their readers, as messages and as errors of calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from headrace_broker.codecs.column_block import Schema
from headrace_broker.gateways.grpc.server.errors import RETRY_MS, CallError
from headrace_broker.runtime.export.log import (
    Block,
    DataGoneError,
    ExportError,
    FencedError,
    Group,
    NotYetError,
    OtherIncarnationError,
    Shard,
    ShardUnavailableError,
    TooManyGroupsError,
    UnknownGroupError,
    UnknownShardError,
)
from headrace_broker.runtime.telemetry.segment import inflated
from headrace_protos.broker.v1 import export_pb2 as pb

_CODE: Final = grpc.StatusCode
_REASONS: Final[dict[type[ExportError], tuple[grpc.StatusCode, str, str]]] = {
    UnknownShardError: (_CODE.NOT_FOUND, "UNKNOWN_SHARD", ""),
    ShardUnavailableError: (_CODE.UNAVAILABLE, "NODE_DOWN", ""),
    OtherIncarnationError: (_CODE.FAILED_PRECONDITION, "OTHER_INCARNATION", "incarnation"),
    DataGoneError: (_CODE.OUT_OF_RANGE, "DATA_GONE", "first_index"),
    NotYetError: (_CODE.OUT_OF_RANGE, "NOT_YET", "next_index"),
    UnknownGroupError: (_CODE.NOT_FOUND, "UNKNOWN_GROUP", ""),
    FencedError: (_CODE.ABORTED, "FENCED", "epoch"),
    TooManyGroupsError: (_CODE.RESOURCE_EXHAUSTED, "TOO_MANY_GROUPS", ""),
}
_RETRIED: Final = (_CODE.UNAVAILABLE, _CODE.RESOURCE_EXHAUSTED)


@contextmanager
def export_errors(what: str) -> Iterator[None]:
    """Make errors of calls of what logs refuse.

    Args:
        what: the shard or group that is asked about, for people.

    Raises:
        CallError: saying why.
    """
    try:
        yield
    except ExportError as error:
        code, reason, field = _REASONS[type(error)]
        metadata = {field: str(getattr(error, field))} if field else {}
        retry_ms = RETRY_MS if code in _RETRIED else 0
        raise CallError(code, reason, f"{what}: {error}", (), metadata, retry_ms) from error


def shard_message(shard: Shard) -> pb.ExportShard:
    """Return a shard as a message."""
    return pb.ExportShard(
        shard=shard.name,
        incarnation=shard.incarnation,
        first_index=shard.first_index,
        next_index=shard.next_index,
        octets=shard.byte_count,
        first_ms=shard.first_ms,
        last_ms=shard.last_ms,
        node=shard.node,
        address=shard.address,
        vhost=shard.vhost,
        queue=shard.queue,
    )


def group_message(group: Group) -> pb.ExportGroup:
    """Return a group as a message."""
    return pb.ExportGroup(
        shard=group.shard.name,
        group=group.name,
        epoch=group.epoch,
        committed=group.committed,
        committed_ms=group.committed_ms,
        incarnation=group.shard.incarnation,
        first_index=group.shard.first_index,
        next_index=group.shard.next_index,
    )


def schema_message(schema: Schema) -> pb.ExportSchema:
    """Return a schema as a message."""
    columns = [
        pb.ExportColumn(name=name, type=pb.ExportType.ValueType(kind))
        for name, kind in schema.columns
    ]
    return pb.ExportSchema(version=schema.version, columns=columns)


def block_message(block: Block, compressed: bool) -> pb.ExportBlock:
    """Return a block as a message.

    Args:
        block: likewise.
        compressed: it may stay so.
    """
    if not compressed:
        block = inflated(block)
    return pb.ExportBlock(
        first_index=block.first_index,
        rows=block.columns.rows,
        buffer_octets=block.columns.buffer_bytes,
        body_octets=block.body_bytes,
        compression=pb.EXPORT_COMPRESSION_ZLIB
        if block.deflated
        else pb.EXPORT_COMPRESSION_UNSPECIFIED,
        body=block.columns.body,
    )
