"""Interface of lease groups for gateways, wherever the queue is led.

Commands go by `GroupCommands`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple

from headrace_broker.core.queue.command.lease_command import (
    encode_close_group,
    encode_lease,
    encode_open_group,
    encode_release_leases,
    encode_renew,
    encode_settle_leases,
)
from headrace_broker.core.queue.state.lease_effect import GroupInfo, LeaseAnswer
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import LEASE_CHUNK_BYTES_MAX, LEASE_CHUNK_MESSAGES_MAX
from headrace_broker.runtime.lease.chunk import HEAD_BYTES, Chunk, cut_chunk
from headrace_broker.runtime.lease.group_commands import GroupCommands, LeaseCommand
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.leader import LeaderQuestion, Leaders
from headrace_broker.runtime.rpc.protocol import READS


class Fetched(NamedTuple):
    """Some messages of a lease, or why there are none."""

    status: int  # LEASE_OK or another LEASE constant
    total: int  # messages of the whole lease
    heads: bytes  # of those that are here, as in `lease_chunk`
    batch: bytes  # likewise

    @property
    def message_count(self) -> int:
        """Number of messages here."""
        return len(self.heads) // HEAD_BYTES


_GONE: Final = Chunk(0, b"", b"")


class Fetch(LeaderQuestion[Fetched], frozen=True, tag="lease_fetch"):
    """Messages of a lease."""

    pool: ClassVar[str] = READS
    name: bytes  # of the group
    epoch: int  # likewise
    number: int  # of the lease
    offset: int  # how many of its messages come before
    messages: int  # most messages
    byte_count: int  # most bytes, but for one message


class Describe(LeaderQuestion[list[GroupInfo]], frozen=True, tag="lease_describe"):
    """Which groups lease messages?"""


def fetch(host: QueueHost, entries: Entries, asked: Fetch) -> Fetched:
    """Return messages of a lease as a replica has them, those before an entry that is missing."""
    status, messages = host.machine.leased(asked.name, asked.epoch, asked.number)
    most = max(1, min(asked.messages, LEASE_CHUNK_MESSAGES_MAX))
    byte_count = max(1, min(asked.byte_count, LEASE_CHUNK_BYTES_MAX))
    chunk = _GONE
    if asked.offset < len(messages):
        chunk = cut_chunk(entries, messages, asked.offset, most, byte_count)
    return Fetched(int(status), len(messages), chunk.heads, chunk.batch)


class LeaseClient:
    """Asks leaders, here or on other nodes."""

    def __init__(self, leaders: Leaders, commands: GroupCommands) -> None:
        self._leaders = leaders  # asks them
        self._commands = commands  # has commands of groups applied
        leaders.serve_reading(Fetch, fetch)
        leaders.serve(Describe, lambda host, _: host.machine.lease_groups())

    # Commands; all raise what `GroupCommands.ask` does

    async def open_group(
        self, queue: Queue, name: bytes, ttl_ms: int, opener: bytes
    ) -> LeaseAnswer:
        """Open a group for an owner called `opener`; see `OpenGroup`."""
        return await self._ask(queue, lambda n: encode_open_group(n, name, ttl_ms, opener))

    async def lease(
        self,
        queue: Queue,
        name: bytes,
        epoch: int,
        number: int,
        messages: int,
        byte_count: int,
        ttl_ms: int,
    ) -> LeaseAnswer:
        """Take messages as the lease with that number; see `TakeLease`."""
        return await self._ask(
            queue, lambda n: encode_lease(n, name, epoch, number, messages, byte_count, ttl_ms)
        )

    async def renew(self, queue: Queue, name: bytes, epoch: int, ttl_ms: int) -> LeaseAnswer:
        """Let the group's leases live so long from now on."""
        return await self._ask(queue, lambda n: encode_renew(n, name, epoch, ttl_ms))

    async def settle(self, queue: Queue, name: bytes, epoch: int, last: int) -> LeaseAnswer:
        """Accept the messages of the leases up to that number."""
        return await self._ask(queue, lambda n: encode_settle_leases(n, name, epoch, last))

    async def release(
        self, queue: Queue, name: bytes, epoch: int, first: int, failed: bool
    ) -> LeaseAnswer:
        """Give back the messages of the leases from that number on."""
        return await self._ask(
            queue, lambda n: encode_release_leases(n, name, epoch, first, failed)
        )

    async def close_group(self, queue: Queue, name: bytes, epoch: int) -> LeaseAnswer:
        """Forget a group, whose epoch is `epoch` or any for 0, and return its messages."""
        return await self._ask(queue, lambda n: encode_close_group(n, name, epoch))

    # Reading; raises LeaderUnavailableError and QueueGoneError

    async def describe(self, queue: Queue) -> list[GroupInfo]:
        """List the groups of a queue."""
        return await self._leaders.ask(queue, Describe(queue.group))

    async def fetch(
        self,
        queue: Queue,
        name: bytes,
        epoch: int,
        number: int,
        offset: int,
        messages: int,
        byte_count: int,
    ) -> Fetched:
        """Return messages of a lease from `offset` on, within the bounds of a chunk."""
        asked = Fetch(queue.group, name, epoch, number, offset, messages, byte_count)
        return await self._leaders.ask(queue, asked)

    async def _ask(self, queue: Queue, encode: Callable[[int], bytes]) -> LeaseAnswer:
        """Apply a command and return its answer."""
        return await self._commands.ask(queue, LeaseCommand, encode)
