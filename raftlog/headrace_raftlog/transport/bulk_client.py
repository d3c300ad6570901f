"""Fetches snapshots and entries from peers, over connections of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc

from headrace_protos.raftlog.v1.transport_pb2 import (
    Checkpoint,
    DigestsRequest,
    EntriesRequest,
    IndexRange,
    RebuildRequest,
    SmallSnapshotsRequest,
    SnapshotRequest,
    WantedSnapshot,
)
from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftBulkStub
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    BULK_RANGES_MAX,
    BULK_SILENCE_S_MAX,
    DIGEST_BYTES_MAX,
    DIGEST_VERSION_BYTES_MAX,
)
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.model.state_digest import StateDigest
from headrace_raftlog.transport.bulk_readers import INDEX_MAX, EntryReader, SnapshotReader
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.join_proof import check_signed
from headrace_raftlog.transport.security import NoSecurity, Security
from headrace_raftlog.transport.small_snapshot import SmallSnapshot, Wanted, read_small

if TYPE_CHECKING:
    from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftBulkAsyncStub

_Request = TypeVar("_Request")
_RequestIn = TypeVar("_RequestIn", contravariant=True)
_Part = TypeVar("_Part")

_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs leave it out


class _Fetch(Protocol[_RequestIn, _Part]):
    """One of the calls of a stub."""

    def __call__(
        self, request: _RequestIn, *, metadata: grpc.aio.Metadata
    ) -> grpc.aio.UnaryStreamCall[Any, _Part]:
        """Begin the call."""


class FetchFailedError(Exception):
    """A fetch did not come to its end; the text says why, and it may be tried again later."""


class UnknownCallError(FetchFailedError):
    """The peer's release does not know the call."""


class GoneError(FetchFailedError):
    """The peer no longer has the requested part; it has a newer snapshot, or none at all."""


class DeniedError(FetchFailedError):
    """The log of the member asked does not have the entry: another one stands there, or none."""


def ranges_of(indexes: list[int]) -> list[tuple[int, int]]:
    """Return the runs (first, last) of ascending indexes, at most what one call may ask for."""
    out: list[tuple[int, int]] = []
    for index in indexes:
        if out and out[-1][1] + 1 == index:
            out[-1] = (out[-1][0], index)
        elif len(out) == BULK_RANGES_MAX:
            break
        else:
            out.append((index, index))
    return out


class BulkClient:
    """Calls of this node to its peers' `BulkServicer`; one connection a peer, made when needed."""

    def __init__(
        self,
        identity: StreamIdentity,
        addresses: Mapping[int, str],
        security: Security | None = None,
    ) -> None:
        self._security = security or NoSecurity()
        self.identity = identity  # who this node is, for calls from now on
        self._addresses = addresses
        self._channels: dict[int, grpc.aio.Channel] = {}

    async def close(self, peer: int = 0) -> None:
        """Close the connection to a peer, 0 for all; calls under way fail."""
        for node in [peer] if peer else list(self._channels):
            channel = self._channels.pop(node, None)
            if channel is not None:
                await channel.close(None)

    async def snapshot(self, peer: int, group: int, member: int, index_min: int) -> Snapshot:
        """Fetch a peer's newest snapshot of a group.

        Args:
            peer: node id.
            group: incarnation id.
            member: member id of this node in the group.
            index_min: least index of use.

        Raises:
            GoneError: there is none from `index_min` on.
            FetchFailedError: the peer cannot be reached, refuses, or breaks off.
            FrameError: it sent what no correct peer sends.
        """
        request = SnapshotRequest(group=group, member=member, index_min=index_min)
        channel = self._channel(peer)
        reader = SnapshotReader(index_min)
        fetch = _stub(channel).FetchSnapshot
        async with aclosing(self._parts(peer, channel, fetch, request)) as parts:
            async for part in parts:
                reader.receive(part)
        return reader.finish()

    async def small_snapshots(
        self, peer: int, member: int, wanted: Mapping[int, Wanted]
    ) -> AsyncGenerator[SmallSnapshot, None]:
        """Fetch a peer's newest snapshots of many groups, those that are small.

        Args:
            peer: node id.
            member: a member id of this node.
            wanted: by group, at most SMALL_SNAPSHOTS_MAX.

        Raises:
            UnknownCallError: the peer is of an earlier release.
            FetchFailedError: the peer cannot be reached, refuses, or breaks off.
            FrameError: it sent what no correct peer sends.
        """
        request = SmallSnapshotsRequest(
            member=member,
            wanted=[
                WantedSnapshot(group=group, index_min=each.index_min, known=each.known)
                for group, each in wanted.items()
            ],
        )
        left = dict(wanted)
        channel = self._channel(peer)
        fetch = _stub(channel).FetchSmallSnapshots
        async with aclosing(self._parts(peer, channel, fetch, request)) as parts:
            async for part in parts:
                for raw in part.snapshots:
                    asked = left.pop(raw.group, None)
                    if asked is None:
                        raise FrameError(f"snapshot of group {raw.group} was not asked for")
                    yield read_small(raw, asked)

    async def entries(
        self, peer: int, group: int, member: int, ranges: list[tuple[int, int]], term_max: int
    ) -> AsyncGenerator[list[Entry], None]:
        """Fetch committed entries in pieces of bounded size, in order.

        Args:
            peer: node id.
            group: incarnation id.
            member: member id of this node in the group.
            ranges: runs (first, last) of indexes, ascending, at most BULK_RANGES_MAX.
            term_max: highest term that any of them can have.

        Raises:
            GoneError: the peer no longer has one of them; those before it were given out.
            FetchFailedError: the peer cannot be reached, refuses, or breaks off.
            FrameError: it sent what no correct peer sends.
        """
        request = EntriesRequest(
            group=group,
            member=member,
            ranges=[IndexRange(first=first, last=last) for first, last in ranges],
            cut=True,
        )
        channel = self._channel(peer)
        fetch = _stub(channel).FetchEntries
        reader = EntryReader(ranges, term_max)
        async with aclosing(self._parts(peer, channel, fetch, request)) as parts:
            async for part in parts:
                if whole := reader.receive(part.entries):
                    yield whole
        reader.finish()

    async def stored_entry(
        self, peer: int, group: int, member: int, of_member: int, index: int, term: int
    ) -> Entry:
        """Fetch one entry of a peer's log, committed or not.

        Args:
            peer: node id.
            group: incarnation id.
            member: member id of this node in the group.
            of_member: that of the peer.
            index: index of the entry.
            term: its term, 0 for a committed one.

        Raises:
            DeniedError: the log of `of_member` does not have it.
            GoneError: it is committed, and went with a snapshot.
            FetchFailedError: the peer cannot be reached, refuses, cannot tell, or breaks off.
            FrameError: it sent what no correct peer sends.
        """
        request = EntriesRequest(
            group=group,
            member=member,
            ranges=[IndexRange(first=index, last=index)],
            terms=[term],
            of_member=of_member,
            cut=True,
        )
        channel = self._channel(peer)
        fetch = _stub(channel).FetchEntries
        reader = EntryReader([(index, index)], term or INDEX_MAX)
        async with aclosing(self._parts(peer, channel, fetch, request)) as parts:
            async for part in parts:
                for entry in reader.receive(part.entries):
                    return entry
        raise FrameError("an entry is missing from a complete answer")

    async def digests(
        self, peer: int, member: int, checkpoints: Mapping[int, int]
    ) -> dict[int, StateDigest]:
        """Fetch the digests that a peer's members took of their states, by group.

        Args:
            peer: node id.
            member: a member id of this node.
            checkpoints: index by group, at most DIGEST_GROUPS_MAX.

        Raises:
            UnknownCallError: the peer is of an earlier release.
            FetchFailedError: the peer cannot be reached, refuses, or breaks off.
            FrameError: it sent what no correct peer sends.
        """
        pairs = [Checkpoint(group=group, index=index) for group, index in checkpoints.items()]
        request = DigestsRequest(member=member, checkpoints=pairs)
        channel = self._channel(peer)
        found: dict[int, StateDigest] = {}
        fetch = _stub(channel).FetchDigests
        async with aclosing(self._parts(peer, channel, fetch, request)) as parts:
            async for part in parts:
                for raw in part.digests:
                    long = len(raw.version) > DIGEST_VERSION_BYTES_MAX
                    if long or len(raw.digest) > DIGEST_BYTES_MAX:
                        raise FrameError(f"digest of {len(raw.digest)} bytes")
                    if checkpoints.get(raw.group) != raw.index or member_node(raw.member) != peer:
                        raise FrameError(f"digest of group {raw.group} was not asked for")
                    found[raw.group] = StateDigest(raw.member, raw.index, raw.version, raw.digest)
        return found

    async def rebuild(self, peer: int, group: int, member: int, wrong: StateDigest) -> bool:
        """Tell a peer to rebuild its member of a group that this node leads; False if it refuses.

        Args:
            peer: node id.
            group: incarnation id.
            member: member id of this node, the leader.
            wrong: the digest of the peer's member that differs from those of a majority.

        Raises FetchFailedError: the peer cannot be reached, refuses, or breaks off.
        """
        request = RebuildRequest(
            group=group,
            member=member,
            of_member=wrong.member,
            index=wrong.index,
            digest=wrong.digest,
        )
        channel = self._channel(peer)
        fetch = _stub(channel).RebuildReplica
        async with aclosing(self._parts(peer, channel, fetch, request)) as parts:
            async for part in parts:
                return part.accepted
        return False

    def _channel(self, peer: int) -> grpc.aio.Channel:
        channel = self._channels.get(peer)
        if channel is None:
            try:
                channel = self._security.open(self._addresses[peer], peer)
            except (KeyError, StreamRefusedError) as error:  # it was removed from the cluster
                raise FetchFailedError(f"node {peer} is no peer any more: {error}") from error
            self._channels[peer] = channel
        return channel

    async def _parts(
        self,
        peer: int,
        channel: grpc.aio.Channel,
        fetch: _Fetch[_Request, _Part],
        request: _Request,
    ) -> AsyncGenerator[_Part, None]:
        """Pass on what arrives; turn gRPC's errors into ours; end the call in any case."""
        checked = False
        call: grpc.aio.UnaryStreamCall[Any, _Part] | None = None
        try:
            async with asyncio.timeout(BULK_SILENCE_S_MAX):
                own = self.identity.metadata(peer)
                said, proof = await self._security.proof.prove(channel, own)
            call = fetch(request, metadata=grpc.aio.Metadata(*said))
            while True:
                async with asyncio.timeout(BULK_SILENCE_S_MAX):
                    part: Any = await call.read()
                if part is _EOF:
                    return
                if not checked:
                    heard = tuple(await call.initial_metadata())
                    check_signed(proof, heard)
                    self.identity.check(heard, (peer,))
                    checked = True
                yield part
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise FetchFailedError(f"the connection to node {peer} was closed") from None
        except TimeoutError as error:
            await self.close(peer)
            raise FetchFailedError(f"node {peer} fell silent") from error
        except StreamRefusedError as error:
            raise FetchFailedError(f"node {peer} is not who it should be: {error}") from error
        except grpc.aio.AioRpcError as error:
            text = f"node {peer}: {error.code().name}: {error.details()!r}"
            if error.code() == grpc.StatusCode.NOT_FOUND:
                raise GoneError(text) from error
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise UnknownCallError(text) from error
            if error.code() == grpc.StatusCode.OUT_OF_RANGE:
                raise DeniedError(text) from error
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                await self.close(peer)  # it would not try again for a while by itself
            raise FetchFailedError(text) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise FetchFailedError(f"node {peer}: {error!r}") from error
        finally:
            if call is not None:
                call.cancel()


def _stub(channel: grpc.aio.Channel) -> RaftBulkAsyncStub:
    return RaftBulkStub(channel)
