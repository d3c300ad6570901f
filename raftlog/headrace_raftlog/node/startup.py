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
from dataclasses import replace
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.limits import REBUILD_ASK_S, REBUILD_WAIT_S
from headrace_raftlog.node.formation import random_generation
from headrace_raftlog.node.health import SERVICE_NAME
from headrace_raftlog.node.options import NodeOptions
from headrace_raftlog.storage.files import Files
from headrace_raftlog.storage.identity import Identity
from headrace_raftlog.storage.set_aside import needed_here, set_aside
from headrace_raftlog.storage.shared_log import SharedLog
from headrace_raftlog.transport.identity import StreamRefusedError
from headrace_raftlog.transport.security import security_of

LOG: Final = logging.getLogger(__name__)


async def open_directory(options: NodeOptions) -> tuple[Identity, SharedLog]:
    """Count one more start of a node and recover its log; have it rebuilt where it is damaged.

    Raises:
        CorruptLogError: stored data is damaged, and nobody is known to have it; it was left alone.
        IdentityError: the data directory is another node's.
        LogLockedError: another process uses the data directory.
        ValueError: the cluster's name is too long or empty.
        OSError: a file cannot be used.
    """
    directory = options.data_dir
    identity = await asyncio.to_thread(Identity.open, directory, options.cluster, options.node)
    try:
        log = await asyncio.to_thread(SharedLog.open, directory, options.log, identity)
    except CorruptLogError as error:
        identity = await _begin_anew(options, identity, error)
        log = await asyncio.to_thread(SharedLog.open, directory, options.log, identity)
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
            directory,
        )
    return identity, log


async def _begin_anew(options: NodeOptions, identity: Identity, error: CorruptLogError) -> Identity:
    """Set a damaged log aside and make the directory that of a new disk.

    Raises:
        CorruptLogError: as given, where the data could be the last there is.
    """
    directory, node = options.data_dir, options.node
    LOG.error("node %d cannot use its log: %s", node, error)
    needed = await asyncio.to_thread(needed_here, directory, node, Files())
    if needed or not identity.formed or not [peer for peer in options.peers if peer != node]:
        LOG.critical(
            "node %d keeps its damaged log as it is: %s. 'headrace log salvage %s --to DIR' writes "
            "out the messages that are intact",
            node,
            f"too few other nodes have groups {needed[:8]}" if needed else "it is the only one",
            directory,
        )
        raise error
    peer = await _who_serves(options)
    if not peer:
        LOG.critical(
            "node %d keeps its damaged log as it is: no other node says that the cluster works "
            "without this one. Start the other nodes; if theirs are damaged too, 'headrace log "
            "salvage %s --to DIR' writes out the messages that are intact",
            node,
            directory,
        )
        raise error
    anew = replace(identity, disk=random_generation())
    place = await asyncio.to_thread(set_aside, directory, identity, anew, Files())
    LOG.error(
        "node %d sets its damaged log aside in %s and is rebuilt from the other nodes, as a new "
        "member of all groups; node %d says that the cluster works. Remove that directory when the "
        "rebuilt node is complete",
        node,
        place,
        peer,
    )
    return anew


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
        LOG.debug("node %d cannot be asked: %s", peer, error)
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
