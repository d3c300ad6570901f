"""Serves snapshots and entries to members that fell far behind.

Nothing is read ahead: each piece is read when the one before it has left, so that the memory of
this node is bounded by the number of calls, and the receiver sets the pace.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from itertools import islice
from typing import Any, Final, NoReturn, Protocol

import grpc

from headrace_protos.raftlog.v1.transport_pb2 import (
    DigestsPart,
    DigestsRequest,
    EntriesPart,
    EntriesRequest,
    LiveSteps,
    RebuildAnswer,
    RebuildRequest,
    SmallSnapshot,
    SmallSnapshotsPart,
    SmallSnapshotsRequest,
    SnapshotHeader,
    SnapshotPart,
    SnapshotRequest,
    StoredEntry,
    WantedSnapshot,
)
from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftBulkServicer
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    BULK_CHUNK_BYTES,
    BULK_LIVE_STEPS,
    BULK_RANGES_MAX,
    BULK_STREAMS_MAX,
    DIGEST_GROUPS_MAX,
    SMALL_PART_S_MAX,
    SMALL_SNAPSHOT_BYTES_MAX,
    SMALL_SNAPSHOTS_MAX,
    SMALL_STREAMS_MAX,
)
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.model.state_digest import StateDigest
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.refusals import Refusals
from headrace_raftlog.transport.security import NoSecurity, Security
from headrace_raftlog.transport.small_snapshot import are_small, is_small

LOG: Final = logging.getLogger("headrace.cluster")

Context = grpc.aio.ServicerContext[Any, Any]


class BulkSource(Protocol):
    """Reader of a node's groups. Called on the event loop; each call must be short."""

    async def snapshot(self, group: int) -> Snapshot | None:
        """Return the newest snapshot of a group, None where there is none."""

    def snapshot_bytes(self, group: int) -> int:
        """Return about how many bytes the newest snapshot of a group has, without reading it."""

    def length(self, group: int, index: int) -> int | None:
        """Return the length of a committed entry, None where it is not there or no longer."""

    def prepare(self, group: int, index: int, done: Callable[[], None]) -> bool:
        """Read an entry ahead for `entry`; False, and `done` is called later, if it takes time."""

    def entry(self, group: int, index: int) -> Entry | None:
        """Return a committed entry, None where it is not there or no longer."""

    def stored_entry(self, group: int, index: int, term: int, member: int) -> Entry | None:
        """Return an entry of a term that the log of a member holds, committed or not.

        Args:
            group: incarnation id.
            index: its index.
            term: its term, 0 for a committed one.
            member: this node's member, without whom None says nothing.

        Returns:
            None where the log has another entry there, or ends before it.

        Raises KeyError: the entry went with a snapshot; LookupError: it cannot be told.
        """

    def digest(self, group: int, index: int) -> StateDigest | None:
        """Return the digest of this node's member at a checkpoint, None where it has none."""

    def rebuild(self, group: int, leader: int, wrong: StateDigest) -> bool:
        """Rebuild this node's member of a group; False where its leader cannot mean it.

        Args:
            group: incarnation id.
            leader: member id of the leader that says so.
            wrong: the digest that differs from those of a majority.
        """


class NoSource:
    """A source of nothing: of a node that does not host groups."""

    async def snapshot(self, group: int) -> Snapshot | None:
        """See `BulkSource`."""
        del group
        return None

    def snapshot_bytes(self, group: int) -> int:
        """See `BulkSource`."""
        del group
        return 0

    def length(self, group: int, index: int) -> int | None:
        """See `BulkSource`."""
        del group, index
        return None

    def prepare(self, group: int, index: int, done: Callable[[], None]) -> bool:
        """See `BulkSource`."""
        del group, index, done
        return True

    def entry(self, group: int, index: int) -> Entry | None:
        """See `BulkSource`."""
        del group, index
        return None

    def stored_entry(self, group: int, index: int, term: int, member: int) -> Entry | None:
        """See `BulkSource`."""
        raise LookupError(f"no group {group}, entry {index} of {term} for {member}")

    def digest(self, group: int, index: int) -> StateDigest | None:
        """See `BulkSource`."""
        del group, index
        return None

    def rebuild(self, group: int, leader: int, wrong: StateDigest) -> bool:
        """See `BulkSource`."""
        del group, leader, wrong
        return False


class BulkServicer(RaftBulkServicer):
    """Answers known peers of the same cluster, a bounded number of calls at a time."""

    def __init__(
        self, identity: StreamIdentity, peers: Collection[int], security: Security | None = None
    ) -> None:
        self._security = security or NoSecurity()
        self.identity = identity  # who this node is, for calls from now on
        self.source: BulkSource = NoSource()  # what is served
        self.active = 0  # calls under way, but for those of small snapshots
        self.active_small = 0  # these
        # nodes and disks that were removed from the cluster
        self.barred: Collection[tuple[int, int]] = ()
        self._peers = peers
        self._told = Refusals()

    async def FetchSnapshot(  # noqa: N802  (the generated base names it)
        self, request: SnapshotRequest, context: Context
    ) -> AsyncIterator[SnapshotPart]:
        """Send the newest snapshot of a group in pieces."""
        await self._admit(request.member, context)
        self.active += 1
        try:
            snapshot = await self.source.snapshot(request.group)
            if snapshot is None or snapshot.index < request.index_min:
                text = f"group {request.group} has no snapshot from {request.index_min} on"
                await _refuse(context, grpc.StatusCode.NOT_FOUND, text)
            yield SnapshotPart(header=_header(snapshot))
            for at in range(0, len(snapshot.state), BULK_CHUNK_BYTES):
                yield SnapshotPart(state=snapshot.state[at : at + BULK_CHUNK_BYTES])
            for steps in _live_steps(snapshot):
                yield SnapshotPart(live=steps)
        finally:
            self.active -= 1

    async def FetchSmallSnapshots(  # noqa: N802  (the generated base names it)
        self, request: SmallSnapshotsRequest, context: Context
    ) -> AsyncIterator[SmallSnapshotsPart]:
        """Send the snapshots that are small with the entries that the caller lacks.

        Several go in a piece, and other work has its turn between two groups.
        """
        await self._admit(request.member, context, small=True)
        if not 1 <= len(request.wanted) <= SMALL_SNAPSHOTS_MAX:
            text = f"{len(request.wanted)} snapshots, 1 to {SMALL_SNAPSHOTS_MAX} are possible"
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, text)
        self.active_small += 1
        try:
            loop = asyncio.get_running_loop()
            part = SmallSnapshotsPart()
            size = 0
            sent_s = loop.time()
            for wanted in request.wanted:
                await asyncio.sleep(0)
                try:
                    small = await self._small(wanted)
                except OSError:  # it is fetched by itself: that call tells
                    small = None
                if small is not None:
                    part.snapshots.append(small)
                    size += small.ByteSize()
                if size >= BULK_CHUNK_BYTES or loop.time() - sent_s >= SMALL_PART_S_MAX:
                    yield part
                    part = SmallSnapshotsPart()
                    size = 0
                    sent_s = loop.time()
            yield part
        finally:
            self.active_small -= 1

    async def FetchEntries(  # noqa: N802  (the generated base names it)
        self, request: EntriesRequest, context: Context
    ) -> AsyncIterator[EntriesPart]:
        """Send entries in pieces of bounded size; a longer one is cut where the caller takes that.

        On a slow link the caller hears of each piece, however long an entry takes.
        """
        await self._admit(request.member, context)
        if len(request.ranges) > BULK_RANGES_MAX:
            text = f"{len(request.ranges)} ranges, the maximum is {BULK_RANGES_MAX}"
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, text)
        self.active += 1
        try:
            part = EntriesPart()
            size = 0
            terms = iter(request.terms)
            for wanted in request.ranges:
                for index in range(wanted.first, wanted.last + 1):
                    entry = await self._entry(request, index, next(terms, None), context)
                    if size and size + len(entry.data) > BULK_CHUNK_BYTES:
                        yield part
                        part = EntriesPart()
                        size = 0
                    if request.cut and len(entry.data) > BULK_CHUNK_BYTES:
                        for piece in _pieces(entry):
                            yield EntriesPart(entries=[piece])
                        continue
                    part.entries.add(index=index, term=entry.term, kind=entry.kind, data=entry.data)
                    size += len(entry.data) + 1
            if part.entries:
                yield part
        finally:
            self.active -= 1

    async def FetchDigests(  # noqa: N802  (the generated base names it)
        self, request: DigestsRequest, context: Context
    ) -> AsyncIterator[DigestsPart]:
        """Send the digests that members here have."""
        await self._admit(request.member, context)
        if len(request.checkpoints) > DIGEST_GROUPS_MAX:
            text = f"{len(request.checkpoints)} checkpoints, the maximum is {DIGEST_GROUPS_MAX}"
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, text)
        part = DigestsPart()
        for asked in request.checkpoints:
            found = self.source.digest(asked.group, asked.index)
            if found is not None:
                part.digests.add(
                    group=asked.group,
                    index=found.index,
                    member=found.member,
                    version=found.version,
                    digest=found.digest,
                )
        yield part

    async def RebuildReplica(  # noqa: N802  (the generated base names it)
        self, request: RebuildRequest, context: Context
    ) -> AsyncIterator[RebuildAnswer]:
        """Rebuild a member here that differs from the others."""
        await self._admit(request.member, context)
        wrong = StateDigest(request.of_member, request.index, "", request.digest)
        yield RebuildAnswer(accepted=self.source.rebuild(request.group, request.member, wrong))

    async def _small(self, wanted: WantedSnapshot) -> SmallSnapshot | None:
        """Return a snapshot and the entries that the caller lacks.

        Returns:
            None where one of them is not small or not there; little is read then.
        """
        group = wanted.group
        if self.source.snapshot_bytes(group) > SMALL_SNAPSHOT_BYTES_MAX:
            return None
        snapshot = await self.source.snapshot(group)
        if snapshot is None or snapshot.index < wanted.index_min or not is_small(snapshot):
            return None
        lacking = snapshot.live[bisect_right(snapshot.live, wanted.known) :]
        size = 0
        for count, index in enumerate(lacking, 1):
            length = self.source.length(group, index)
            if length is None or not are_small(count, size := size + length):
                return None
        live = next(_live_steps(snapshot), LiveSteps())
        small = SmallSnapshot(
            group=group, header=_header(snapshot), state=snapshot.state, live=live
        )
        for index in lacking:
            await self._prepare(group, index)
            entry = self.source.entry(group, index)
            if entry is None:
                return None
            small.entries.add(index=index, term=entry.term, kind=entry.kind, data=entry.data)
        return small

    async def _entry(
        self, request: EntriesRequest, index: int, term: int | None, context: Context
    ) -> Entry:
        """Return an entry; end the call where there is none."""
        group = request.group
        gone = f"group {group} has no entry {index} any more"
        await self._prepare(group, index)
        if term is None:
            entry = self.source.entry(group, index)
            if entry is None:
                await _refuse(context, grpc.StatusCode.NOT_FOUND, gone)
            return entry
        try:
            entry = self.source.stored_entry(group, index, term, request.of_member)
        except KeyError:
            await _refuse(context, grpc.StatusCode.NOT_FOUND, gone)
        except LookupError as error:
            await _refuse(context, grpc.StatusCode.UNAVAILABLE, str(error))
        if entry is None:
            text = f"group {group} has no entry {index} of term {term}"
            await _refuse(context, grpc.StatusCode.OUT_OF_RANGE, text)
        return entry

    async def _prepare(self, group: int, index: int) -> None:
        """Wait until an entry can be given without waiting for the disk, on the event loop."""
        read = asyncio.Event()
        while not self.source.prepare(group, index, read.set):
            await read.wait()
            read.clear()

    async def _admit(self, member: int, context: Context, small: bool = False) -> None:
        """Refuse callers outside our cluster, and one call too many."""
        metadata = tuple(context.invocation_metadata() or ())
        try:
            proof = self._security.proof.check(metadata)
            peer = self.identity.check(metadata, self._peers)
            self._security.check(context, peer)
            if not peer.formed or not self.identity.formed:
                raise StreamRefusedError("one of the nodes does not belong to the cluster yet")
            if (peer.node, peer.disk) in self.barred:
                raise StreamRefusedError(f"node {peer.node} was removed from the cluster")
            if member_node(member) != peer.node:
                raise StreamRefusedError(f"node {peer.node} fetches for member {member}")
        except StreamRefusedError as refusal:
            if self._told.is_new(str(refusal)):
                text = "refused a fetch from %s: %s"
                LOG.warning(text, context.peer(), refusal, extra={"unproven": ""})
            await _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        most = SMALL_STREAMS_MAX if small else BULK_STREAMS_MAX
        active = self.active_small if small else self.active
        if active >= most:
            text = f"{active} fetches are under way, the maximum is {most}"
            await _refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        await context.send_initial_metadata(proof.signed(self.identity.metadata(peer.node)))


def _pieces(entry: Entry) -> Iterator[StoredEntry]:
    """Yield a long entry in pieces."""
    for at in range(0, len(entry.data), BULK_CHUNK_BYTES):
        end = at + BULK_CHUNK_BYTES
        yield StoredEntry(
            index=entry.index,
            term=entry.term,
            kind=entry.kind,
            data=entry.data[at:end],
            more=end < len(entry.data),
        )


def _header(snapshot: Snapshot) -> SnapshotHeader:
    return SnapshotHeader(
        index=snapshot.index,
        term=snapshot.term,
        membership=snapshot.membership.encode(),
        state_bytes=len(snapshot.state),
        live_count=len(snapshot.live),
    )


def _live_steps(snapshot: Snapshot) -> Iterator[LiveSteps]:
    """Yield the live indexes of a snapshot in pieces."""
    before = 0
    live = iter(snapshot.live)
    while chunk := list(islice(live, BULK_LIVE_STEPS)):
        steps = [now - was for was, now in zip([before, *chunk], chunk, strict=False)]
        before = chunk[-1]
        yield LiveSteps(steps=steps)


async def _refuse(context: Context, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("abort raises")
