"""Interface of an exported log: shards of numbered rows, and groups with committed positions.

The telemetry of each node and the archives of queues are such logs; the gRPC service Export serves
them all. What is said in export.proto about calls and errors holds for the methods here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from headrace_broker.catalog.access import Caller
from headrace_broker.codecs.column_block import ColumnBlock, Schema


class Shard(NamedTuple):
    """Readable part of one shard."""

    name: str  # the same for ever
    incarnation: int  # another one when the shard was lost; 1 or more, below 2^63
    first_index: int  # of the first row that can be read
    next_index: int  # of the row that comes next
    byte_count: int = 0  # on the disk
    first_ms: int = 0  # Unix time of the first row, about, 0 where there is none
    last_ms: int = 0  # of the last row
    node: str = ""  # name of the node that has it
    address: str = ""  # HOST:PORT of that node's gRPC listener, "" where it is not known
    vhost: str = ""  # of the queue whose it is, "" for none
    queue: str = ""  # likewise


class ShardListing(NamedTuple):
    """Shards of all nodes that answered, and the names of those that did not."""

    shards: list[Shard]
    missing: tuple[str, ...] = ()


class Block(NamedTuple):
    """Rows that stand one behind the other."""

    first_index: int  # of the first one
    schema: Schema  # of all of them
    columns: ColumnBlock  # the rows; while `deflated`, its body is compressed (RFC 1950)
    body_bytes: int  # of the body, uncompressed
    deflated: bool = False  # likewise

    @property
    def end_index(self) -> int:
        """Index of the row behind the last one."""
        return self.first_index + self.columns.rows


class Group(NamedTuple):
    """A reader of a shard."""

    shard: Shard  # as it is now
    name: str  # of the group
    epoch: int  # under which it is open
    committed: int  # index of the first row that it is not done with
    committed_ms: int  # Unix time at which it said so, or was made


class GroupListing(NamedTuple):
    """Groups of all shards that answered, and the names of nodes that did not."""

    groups: list[Group]
    missing: tuple[str, ...] = ()


class ExportError(Exception):
    """A call about a log is refused; each reason is a class."""


class UnknownShardError(ExportError):
    """The log has no shard of this name, or it is gone for good."""


class ShardUnavailableError(ExportError):
    """The node that has the shard does not answer; another attempt may help."""


class OtherIncarnationError(ExportError):
    """The shard was lost, and began anew."""

    def __init__(self, text: str, incarnation: int) -> None:
        super().__init__(text)
        self.incarnation = incarnation  # that it has


class DataGoneError(ExportError):
    """Rows that are asked for were dropped."""

    def __init__(self, text: str, first_index: int) -> None:
        super().__init__(text)
        self.first_index = first_index  # of the first row that can be read


class NotYetError(ExportError):
    """There are no such rows yet."""

    def __init__(self, text: str, next_index: int) -> None:
        super().__init__(text)
        self.next_index = next_index  # of the row that comes next


class UnknownGroupError(ExportError):
    """The group was never opened at this shard, or is closed."""


class FencedError(ExportError):
    """Another owner has opened the group since."""

    def __init__(self, text: str, epoch: int) -> None:
        super().__init__(text)
        self.epoch = epoch  # under which they have


class TooManyGroupsError(ExportError):
    """The shard has as many groups as it may."""


class ExportLog(Protocol):
    """A log, all of its shards, wherever they are.

    All methods but `check` and `shards` may raise UnknownShardError and ShardUnavailableError.
    """

    def check(self, caller: Caller, shard: str) -> None:
        """Refuse who may not read a shard ("" for all); UnknownShardError for none."""

    async def shards(self, caller: Caller, vhost: str = "", queue: str = "") -> ShardListing:
        """Return what the caller may read, ascending by name; of a vhost or queue where given."""

    def read(
        self, shard: str, incarnation: int, start: int, end: int
    ) -> AsyncGenerator[Block, None]:
        """Return the blocks that hold rows `start` to `end` - 1, in order.

        The first block may begin before `start`, the last one reach beyond `end`. Nothing, not even
        a wrong name, is found out before the first block is asked for. Whoever stops early closes
        the generator.

        Raises:
            OtherIncarnationError: likewise.
            DataGoneError: `start` was dropped, also when that happens while it is read.
            NotYetError: `end` is beyond the last row.
        """

    async def open_group(self, shard: str, group: str, opener: bytes) -> Group:
        """Open a group for whoever calls itself `opener`; a new one is done with nothing.

        Raises TooManyGroupsError: likewise.
        """

    async def commit(
        self, shard: str, group: str, epoch: int, incarnation: int, up_to: int
    ) -> Group:
        """Note that a group is done with all rows before `up_to`; it never goes back.

        Raises NotYetError: `up_to` is beyond the last row; OtherIncarnationError,
        UnknownGroupError, FencedError: likewise.
        """

    async def groups(self, caller: Caller, shard: str = "", group: str = "") -> GroupListing:
        """Return groups that the caller may read, by shard and name; "" stands for all."""

    async def close_group(self, shard: str, group: str, epoch: int) -> None:
        """Forget a group, whatever its epoch for 0; FencedError under another one."""
