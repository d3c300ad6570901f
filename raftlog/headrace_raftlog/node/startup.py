"""Opening a node's data directory, also one whose log is damaged beyond repair.

Such a log says nothing any more about some group that nobody can name. The node comes back then as
one that lost its disk: under another disk id, as a new member of all groups, which get everything
from their other members. It does that only where these have it: a peer has to say that the cluster
works without this node, and of no group that the log still shows may too few members be left. Its
data is set aside, not removed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace_raftlog.model.errors import CorruptLogError, LostDirectoryError
from headrace_raftlog.model.limits import REBUILD_ASK_S, REBUILD_WAIT_S
from headrace_raftlog.node.directory import Directory
from headrace_raftlog.node.health import SERVICE_NAME
from headrace_raftlog.node.options import NodeOptions
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.inspection.set_aside import (
    ASIDE_NAME,
    check_owner,
    condemn,
    needed_here,
    readable_identity,
    stand_in,
)
from headrace_raftlog.transport.identity import StreamRefusedError
from headrace_raftlog.transport.security import security_of

LOG: Final = logging.getLogger("headrace.cluster")

_ALONE: Final = "it is the only one"
_NOBODY: Final = (
    "no other node says that the cluster works without this one. Start the other nodes; if theirs "
    "are damaged too, their messages can be salvaged"
)


async def open_directory(options: NodeOptions) -> Directory:
    """Open a node's data directory; have it rebuilt where its log cannot be used.

    Raises:
        CorruptLogError: stored data is damaged, and nobody is known to have it; it was left alone.
        IdentityError: the data directory is another node's.
        LostDirectoryError: part of it is gone, and nobody is known to have the rest.
        LogLockedError: another process uses the data directory.
        ValueError: the cluster's name is too long or empty.
        OSError: a file cannot be used.
    """
    try:
        directory = await asyncio.to_thread(Directory.open, options)
    except (CorruptLogError, LostDirectoryError) as error:
        await _begin_anew(options, error)
        directory = await asyncio.to_thread(Directory.open, options)
    log = directory.log
    for group, reason in log.quarantined.items():
        if not log.is_kept(group):
            LOG.error(
                "group %d is damaged on this node: %s. It takes part in it no more, and joins it "
                "again as a new member, which gets everything from the others",
                group,
                reason,
            )
            continue
        LOG.critical(
            "group %d is damaged on this node: %s. Too few other nodes have it, so its data is "
            "kept and it is not served. Stop the node and run 'headrace log salvage %s --to DIR' "
            "to write out its messages; until its queue is deleted, no space of the log is given "
            "back",
            group,
            reason,
            options.data_dir,
        )
    return directory


async def _begin_anew(options: NodeOptions, error: CorruptLogError | LostDirectoryError) -> None:
    """Set a log that cannot be used aside and make the directory that of a new disk.

    A node that is alone and has only lost the file that says who it is goes on with its log.

    Raises:
        CorruptLogError: as given, where the data could be the last there is.
        LostDirectoryError: likewise.
        IdentityError: they are another node's.
    """
    directory, node, files = options.data_dir, options.node, Files()
    LOG.error("node %d cannot use its data: %s", node, error)
    owner = (options.cluster, node)
    identity = await asyncio.to_thread(readable_identity, directory, files)
    await asyncio.to_thread(check_owner, directory, owner, files)
    alone = not [peer for peer in options.peers if peer != node]
    if alone and identity is None and not isinstance(error, CorruptLogError):
        await asyncio.to_thread(stand_in, directory, owner, files)
        LOG.warning("node %d is the only one of its cluster and goes on with its log", node)
        return
    needed = await asyncio.to_thread(needed_here, directory, node, files)
    unformed = identity is not None and not identity.formed
    if needed or unformed or alone:
        _keep(options, f"too few other nodes have groups {needed[:8]}" if needed else _ALONE)
        raise error
    peer = await _who_serves(options)
    if not peer:
        _keep(options, _NOBODY)
        raise error
    LOG.error(
        "node %d sets its data aside in %s/%s and is rebuilt from the other nodes, as a new member "
        "of all groups; node %d says that the cluster works. Remove that directory when the "
        "rebuilt node is complete",
        *(node, directory, ASIDE_NAME, peer),
    )
    await asyncio.to_thread(condemn, directory, f"its data cannot be used: {error}")


def _keep(options: NodeOptions, why: str) -> None:
    LOG.critical(
        "node %d keeps its data as they are: %s. 'headrace log salvage %s --to DIR' writes out the "
        "messages that are intact",
        options.node,
        why,
        options.data_dir,
    )


async def _who_serves(options: NodeOptions) -> int:
    """Return a peer that knows a leader of the cluster's catalog, 0 where none is found in time."""
    until = time.monotonic() + REBUILD_WAIT_S
    while True:
        for peer, address in sorted(options.peers.items()):
            if peer != options.node and await _serves(options, peer, address):
                return peer
        if time.monotonic() >= until:
            return 0
        await asyncio.sleep(options.tick_ms / 1000)


async def _serves(options: NodeOptions, peer: int, address: str) -> bool:
    try:
        channel = security_of(options.certificate, options.name_of).open(address, peer)
    except StreamRefusedError as error:
        LOG.debug("node %d not reachable: %s", peer, error)
        return False
    try:
        request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
        answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=REBUILD_ASK_S)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
    except grpc.aio.AioRpcError as error:
        LOG.debug("node %d does not answer: %s", peer, error.details())
        return False
    finally:
        await channel.close(None)
