"""Bugs of nodes that have others of an older release beside them, or are taken back to it."""

from __future__ import annotations

from typing import Final

from headrace_broker.catalog import cluster_version, store, version
from headrace_simulation.cluster.bugs.bug import Mutation, put, put_all


def _raised_at_once() -> None:
    put_all(version.upgrade_problem, lambda _: lambda *_: "")
    put_all(version.older_nodes, lambda _: lambda *_: [])
    put_all(cluster_version.is_empty, lambda _: lambda view: True)


def _later_snapshots() -> None:
    put(store, "SNAPSHOT_VERSION_PLAIN", lambda _: store.SNAPSHOT_VERSION)


MUTATIONS: Final = (
    Mutation(
        "versions-raised-beside-older-nodes",
        "the cluster version is raised while nodes run that do not know it",
        *("versions", 20, _raised_at_once),
    ),
    Mutation(
        "snapshots-of-later-releases",
        "snapshots of the catalog are written in the newest form, which older nodes do not know",
        *("versions", 60, _later_snapshots),
    ),
)
