"""Options of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.model.join_secret import JoinSecrets
from headrace_raftlog.model.limits import (
    DIGEST_ROUND_S,
    DISK_STALL_S,
    DISK_STALL_S_MAX,
    DISK_STALL_S_MIN,
    FOUNDING_LISTEN_S,
    FOUNDING_LISTEN_S_MAX,
    NODE_ID_MAX,
    OUTBOX_BYTES_MAX,
    SNAPSHOT_EVERY_BYTES,
    TICK_MS_MAX,
    TICK_MS_MIN,
)
from headrace_raftlog.model.tls import NodeCertificate
from headrace_raftlog.storage.disk.options import LogOptions

PORT_MAX: Final = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Identity, peers, directory and tunables of one node."""

    cluster: str  # name of the cluster, 1 to 255 bytes
    node: int  # node id, 1 to NODE_ID_MAX
    peers: dict[int, str]  # host:port by node id, of all nodes, this one included
    data_dir: str  # directory of this node alone
    name: str = ""  # what people call this node; told to others, and not looked at here
    listen: str = ""  # host:port to listen on for other nodes; empty: this node's entry in `peers`
    # port on the same host that others send frames to; 0: any that is free, which they are told
    frames_port: int = 0
    # frames travel over gRPC, and no port but that of `listen` is listened on
    over_grpc: bool = False
    # milliseconds between two ticks, which is also the time between two beats. A peer that is
    # silent for `core.election_ticks` of them is down.
    tick_ms: int = 100
    # bytes of entries that a group applies between two snapshots, at least
    snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES
    # seconds, DISK_STALL_S_MIN to DISK_STALL_S_MAX, after which a write of which no step ends makes
    # this node hand over what it leads, until its disk answers again
    disk_stall_s: float = DISK_STALL_S
    # seconds between two rounds of comparing the states of groups that this node leads
    digest_round_s: float = DIGEST_ROUND_S
    # seconds for which an empty directory listens for members of its cluster before it founds a new
    # one; 0 where there certainly is none
    found_listen_s: float = FOUNDING_LISTEN_S
    # returns what this node shows to others and asks of them, looked at for each connection; None:
    # nothing is encrypted, and everybody believed
    certificate: Callable[[], NodeCertificate] | None = None
    # returns the name of a node by its id, "" for one that is not known; with certificates, each
    # node may speak as the one only that its certificate names
    name_of: Callable[[int], str] = str
    # returns the secrets that nodes must prove to know, None for none; looked at for each
    # connection
    join_secrets: Callable[[], JoinSecrets | None] = lambda: None
    core: CoreOptions = field(default_factory=CoreOptions)  # tunables of every group
    log: LogOptions = field(default_factory=LogOptions)  # tunables of the shared log
    # bytes of APPENDs, and as many of payloads, that wait for a peer; more than the longest that is
    # usual, or others get dropped beside it
    outbox_bytes_max: int = OUTBOX_BYTES_MAX

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises ValueError: names the option and its range.
        """
        if self.node not in self.peers:
            raise ValueError(f"peers has no address of this node, {self.node}")
        for node, address in self.peers.items():
            if not 1 <= node <= NODE_ID_MAX:
                raise ValueError(f"peers has node id {node}, not within 1 to {NODE_ID_MAX}")
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal():
                raise ValueError(f"peers has {address!r} for node {node}, not host:port")
        if self.outbox_bytes_max <= 0:
            raise ValueError(f"outbox_bytes_max is {self.outbox_bytes_max}, must be positive")
        if not 0 <= self.frames_port <= PORT_MAX:
            raise ValueError(f"frames_port is {self.frames_port}, not within 0 to {PORT_MAX}")
        if not DISK_STALL_S_MIN <= self.disk_stall_s <= DISK_STALL_S_MAX:
            raise ValueError(
                f"disk_stall_s is {self.disk_stall_s}, not within {DISK_STALL_S_MIN} to "
                f"{DISK_STALL_S_MAX}"
            )
        if not 0 <= self.found_listen_s <= FOUNDING_LISTEN_S_MAX:
            raise ValueError(
                f"found_listen_s is {self.found_listen_s}, not within 0 to {FOUNDING_LISTEN_S_MAX}"
            )
        if not TICK_MS_MIN <= self.tick_ms <= TICK_MS_MAX:
            raise ValueError(
                f"tick_ms is {self.tick_ms}, not within {TICK_MS_MIN} to {TICK_MS_MAX}"
            )
