"""The broker of one build, and the clients that are written for it.

`release` loads this module, and those of clients, once more for a released build.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, final

import msgspec
from msgspec.structs import replace

from headrace_broker.config.configuration import Config
from headrace_broker.runtime.node import resources
from headrace_broker.runtime.node.node import BrokerNode
from headrace_raftlog.model.errors import RaftLogError
from headrace_simulation.cluster.administration import administer, declare
from headrace_simulation.cluster.backups import back_up_from
from headrace_simulation.cluster.clients import Site, Wanted, consume_on, publish_on
from headrace_simulation.cluster.history import History
from headrace_simulation.cluster.hosts import DATA
from headrace_simulation.cluster.leases import lease_from
from headrace_simulation.cluster.process import Process

PORT: Final = 7000


def _unmetered(root: Path, siblings: bool = False) -> None:
    """Measure nothing: the real machine's memory says nothing here."""


resources._meter = _unmetered  # noqa: SLF001  (a release's takes fewer arguments than the head's)


def _as_it_is(config: Config) -> Config:
    return config


def config_of(node: int, nodes: int, snapshot_bytes: int) -> Config:
    """Return the configuration of a node; snapshots may come more often than one may say."""
    config = msgspec.convert(
        {
            "node": {"id": node, "name": f"n{node}", "data_dir": DATA},
            "cluster": {
                "name": "sim",
                "nodes": [
                    {"id": each, "name": f"n{each}", "address": f"n{each}:{PORT}"}
                    for each in range(1, nodes + 1)
                ],
                "balance_leaders": False,
            },
            "raft": {"tick_ms": 100},
            "limits": {"message_bytes_max": 512 << 10, "disk_free_bytes_min": 0},
            "log": {"segment_bytes": 1 << 20, "cache_bytes": 1 << 20},
            "telemetry": {"enabled": False},
        },
        Config,
    )
    log = replace(config.log, snapshot_every_bytes=snapshot_bytes)
    return replace(config, log=log)


@final
class Software:
    """A build of the broker."""

    # Reasons for which a node may end: its disk, its data, or another one with the same data.
    expected: Final = (RaftLogError, OSError)
    administer = staticmethod(administer)
    declare = staticmethod(declare)
    publish_on = staticmethod(publish_on)
    consume_on = staticmethod(consume_on)
    lease_from = staticmethod(lease_from)
    back_up_from = staticmethod(back_up_from)

    def node(
        self,
        number: int,
        nodes: int,
        snapshot_bytes: int,
        on_fatal: Callable[[Any], None],
        adapt: Callable[[Any], Any] = _as_it_is,
    ) -> BrokerNode:
        """Return one of a cluster's nodes; `adapt` changes its configuration."""
        return BrokerNode(adapt(config_of(number, nodes, snapshot_bytes)), on_fatal)

    def site(
        self, process: Process, node: BrokerNode, history: History, wanted: Wanted, rng: Random
    ) -> Site:
        """Return a place at a node for clients."""
        return Site(process, node, history, wanted, rng)


HEAD: Final = Software()
