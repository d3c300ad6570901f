"""Logs that brokers keep for others to read: archives of queues, and telemetry.

docs/telemetry.md and docs/archive.md say what is in them, and what the errors mean. Rows come as
columns that Arrow can use as they are; nothing here needs Arrow.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace_client.export_stream import Block, Columns, ReadStream, Wanted
from headrace_client.limits import CALL_SECONDS
from headrace_client.message_value import read_value
from headrace_client.service_calls import ServiceCalls
from headrace_protos.broker.v1 import export_pb2 as pb
from headrace_protos.broker.v1.export_pb2_grpc import ExportStub

if TYPE_CHECKING:
    from headrace_protos.broker.v1.export_pb2_grpc import ExportAsyncStub
else:
    ExportAsyncStub = Any  # it exists in the types alone

ARCHIVE: Final = "archive"

LOGS: Final[Mapping[str, pb.ExportLog.ValueType]] = MappingProxyType(
    {
        ARCHIVE: pb.EXPORT_LOG_ARCHIVE,
        "queue_events": pb.EXPORT_LOG_QUEUE_EVENTS,
        "flow_samples": pb.EXPORT_LOG_FLOW_SAMPLES,
        "flow_events": pb.EXPORT_LOG_FLOW_EVENTS,
        "debt_edges": pb.EXPORT_LOG_DEBT_EDGES,
    }
)


class Shard(NamedTuple):
    """Readable range of a part of a log."""

    name: str  # the same for ever
    incarnation: int  # another one when the shard was lost with its disk
    first_index: int  # of the first row that can be read
    next_index: int  # of the row that comes next; nothing can be read while it is the first
    byte_count: int = 0  # of its rows: on the disk; of an archive, of their bodies
    first_ms: int = 0  # Unix time of the first row, about; 0 where there is none
    last_ms: int = 0  # of the last row
    node: str = ""  # that has it
    address: str = ""  # HOST:PORT of that node's gRPC listener, "" where that is not known
    vhost: str = ""  # of an archive: of the queue whose it is
    queue: str = ""  # likewise


class Shards(NamedTuple):
    """Shards, ascending by name, and the names of nodes that did not answer for theirs."""

    shards: tuple[Shard, ...]
    missing_nodes: tuple[str, ...] = ()


class Group(NamedTuple):
    """A reader of a shard that says how far it has come."""

    shard: str  # name of the shard
    name: str  # of the group
    epoch: int  # under which it is open
    committed: int  # index of the first row that it is not done with
    committed_ms: int  # Unix time at which it said so, or was opened
    incarnation: int  # of the shard, as the next two
    first_index: int  # what is before and not committed was dropped unread
    next_index: int  # how far behind the group is


class Groups(NamedTuple):
    """Groups, and the names of nodes that did not answer for theirs."""

    groups: tuple[Group, ...]
    missing_nodes: tuple[str, ...] = ()


class Export(ServiceCalls[ExportAsyncStub]):
    """Reads logs; `Client.export`. `log` is one of `LOGS`. Telemetry needs the tag `monitoring`.

    Everything raises HeadraceError.
    """

    _service = ExportStub

    async def shards(self, log: str, vhost: str = "", queue: str = "") -> Shards:
        """Say what can be read.

        Args:
            log: which one.
            vhost: of archives: of queues there only; "" for all.
            queue: and of that queue only.
        """
        request = pb.ListShardsRequest(log=number_of(log), vhost=vhost, queue=queue)
        answer = await self._call(lambda stub: stub.ListShards, request)
        found: dict[str, Shard] = {}
        for shard in map(_shard, answer.shards):  # where a leader changes, two tell of it
            known = found.get(shard.name)
            if known is None or known.next_index < shard.next_index:
                found[shard.name] = shard
        return Shards(tuple(found.values()), tuple(answer.missing_nodes))

    async def read(
        self,
        log: str,
        shard: str,
        incarnation: int,
        start: int,
        end: int,
        *,
        bytes_max: int = 0,
        node: str = "",
        address: str = "",
        compressed: bool = True,
        give_up_after_s: float = CALL_SECONDS,
    ) -> AsyncGenerator[Block, None]:
        """Return blocks with rows `start` to `end` - 1, in order.

        A stream that is lost is begun again at another node, behind the last block.

        Args:
            log: which one.
            shard: its name.
            incarnation: of the shard.
            start: index of the first row.
            end: of the row behind the last.
            bytes_max: of blocks; the one that exceeds it is the last. 0 for all.
            node: that has the shard, and is asked first where the endpoints hold it.
            address: likewise.
            compressed: blocks may come compressed; they are handed out as they were before.
            give_up_after_s: seconds without a row after which it fails.

        Raises:
            DataGoneError: rows were dropped; those from its `first_index` on can be read.
            NotYetError: there are no such rows yet.
            OtherIncarnationError: the shard was lost, and began anew.
            UnknownShardError: there is none.
            NodeDownError: the node that has the shard does not answer.
            HeadraceError: something else.
        """
        wanted = Wanted(number_of(log), shard, incarnation, start, end, bytes_max, compressed)
        stream = ReadStream(self._link, self._vhost, wanted, node, address, give_up_after_s)
        blocks = stream.blocks()
        async with aclosing(blocks):
            async for block in blocks:
                yield block

    async def open_group(self, log: str, shard: str, group: str, request_id: str) -> Group:
        """Open a group at a shard, which is made where it is not there.

        Whoever has it open is fenced.

        Args:
            log: which one.
            shard: its name.
            group: its name.
            request_id: tells this opening from others: its repetition fences nobody.
        """
        request = pb.OpenExportGroupRequest(name=_name(log, shard, group), request_id=request_id)
        return _group((await self._call(lambda stub: stub.OpenGroup, request)).group)

    async def commit(
        self, log: str, shard: str, group: str, epoch: int, incarnation: int, up_to: int
    ) -> Group:
        """Say that a group is done with all rows before `up_to`; it never goes back.

        Raises:
            FencedError: somebody else has opened it.
            UnknownGroupError: it was closed, or never opened.
            HeadraceError: something else.
        """
        request = pb.CommitExportRequest(
            name=_name(log, shard, group), epoch=epoch, incarnation=incarnation, up_to=up_to
        )
        return _group((await self._call(lambda stub: stub.Commit, request)).group)

    async def groups(self, log: str, shard: str = "", group: str = "") -> Groups:
        """Say how far groups have come; all of a shard, of all shards, or of one name."""
        request = pb.DescribeExportGroupsRequest(name=_name(log, shard, group))
        answer = await self._call(lambda stub: stub.DescribeGroups, request)
        return Groups(tuple(map(_group, answer.groups)), tuple(answer.missing_nodes))

    async def close_group(self, log: str, shard: str, group: str, epoch: int = 0) -> None:
        """Forget a group, so that nothing is kept for it; 0 for any epoch."""
        request = pb.CloseExportGroupRequest(name=_name(log, shard, group), epoch=epoch)
        await self._call(lambda stub: stub.CloseGroup, request)


def number_of(log: str) -> pb.ExportLog.ValueType:
    """Return the number of a log.

    Raises:
        ValueError: there is none of this name.
    """
    number = LOGS.get(log)
    if number is None:
        raise ValueError(f"log: must be one of {', '.join(LOGS)}, not {log!r}")
    return number


def _name(log: str, shard: str, group: str) -> pb.ExportGroupName:
    return pb.ExportGroupName(log=number_of(log), shard=shard, group=group)


def _shard(each: pb.ExportShard) -> Shard:
    return read_value(Shard, each, name=each.shard, byte_count=each.octets)


def _group(each: pb.ExportGroup) -> Group:
    return read_value(Group, each, name=each.group)


__all__ = ["ARCHIVE", "LOGS", "Block", "Columns", "Export", "Group", "Groups", "Shard", "Shards"]
