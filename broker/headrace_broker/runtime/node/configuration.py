"""Values of a node's configuration for its parts."""

from __future__ import annotations

from collections.abc import Callable

from headrace_broker.config.configuration import Config
from headrace_broker.model.client_limits import ClientLimits, beyond_plain
from headrace_raftlog.model.group import QUEUED_BYTES_MAX, CoreOptions
from headrace_raftlog.model.join_secret import JoinSecrets
from headrace_raftlog.model.limits import OUTBOX_BYTES_MAX, WRITE_BACKLOG_BYTES_MAX
from headrace_raftlog.model.tls import NodeCertificate
from headrace_raftlog.node.node import NodeOptions
from headrace_raftlog.storage.disk.options import LogOptions


def raft_options(
    config: Config,
    certificate: Callable[[], NodeCertificate] | None = None,  # None where nodes prove nothing
    name_of: Callable[[int], str] = str,  # returns the name of a node, "" for one that is not known
    # returns what nodes must prove to know, None for nothing
    join_secrets: Callable[[], JoinSecrets | None] = lambda: None,
) -> NodeOptions:
    """Return what the configuration says to the replicated logs."""
    beyond = beyond_plain(config.limits.message_bytes_max)
    return NodeOptions(
        cluster=config.cluster.name,
        node=config.node.id,
        name=config.node.name,
        peers={node.id: node.address for node in config.cluster.nodes},
        listen=config.cluster.listen,
        frames_port=config.cluster.frames_port,
        over_grpc=config.cluster.transport == "grpc",
        data_dir=config.node.data_dir,
        tick_ms=config.raft.tick_ms,
        core=CoreOptions(
            election_ticks=config.raft.election_ticks,
            heartbeat_ticks=config.raft.heartbeat_ticks,
            quiesce_ticks=config.raft.quiesce_ticks,
            queued_bytes_max=QUEUED_BYTES_MAX + beyond,
        ),
        log=LogOptions(
            segment_bytes=config.log.segment_bytes,
            cache_bytes=config.log.cache_bytes,
            backlog_bytes_max=WRITE_BACKLOG_BYTES_MAX + beyond,
        ),
        outbox_bytes_max=OUTBOX_BYTES_MAX + beyond,
        snapshot_every_bytes=config.log.snapshot_every_bytes,
        disk_stall_s=config.raft.disk_stall_ms / 1000,
        certificate=certificate,
        name_of=name_of,
        join_secrets=join_secrets,
    )


def client_limits(config: Config) -> ClientLimits:
    """Return what the configuration says to clients."""
    limits = config.limits
    return ClientLimits(limits.frame_bytes_max, limits.channels_max, limits.message_bytes_max)
