"""The cluster version: which semantics the cluster uses, whatever its nodes know.

Nodes of a later release act like those of the release before it until the cluster version is
raised, and until then the later release can be taken back. It never goes down.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.definition import Node

FIRST_CLUSTER_VERSION: Final = 1  # of a cluster whose version was never raised


class ClusterVersion(NamedTuple):
    """The newest of everything that nodes of one cluster version exchange and keep.

    The catalog version of each is its own, so that an older node stops where it is raised.
    """

    version: int
    catalog: int  # commands and their semantics: see `catalog/version.py`
    machine: int  # queue machine: its commands, their semantics, and settings
    protocol: int  # between nodes: frames, and what they carry
    catalog_snapshot: int
    queue_snapshot: int
    segment: int  # files of the log


CLUSTER_VERSIONS: Final = (
    ClusterVersion(1, 5, 5, protocol=4, catalog_snapshot=7, queue_snapshot=3, segment=3),
    ClusterVersion(2, 7, 5, protocol=4, catalog_snapshot=8, queue_snapshot=3, segment=3),
)
CLUSTER_VERSION: Final = CLUSTER_VERSIONS[-1].version  # the newest that this code knows


def row_of(version: int) -> ClusterVersion:
    """Return what a version uses; the newest known row for a later one."""
    return CLUSTER_VERSIONS[min(version, CLUSTER_VERSION) - 1]


def in_force(view: CatalogView) -> ClusterVersion:
    """Return what the cluster uses now."""
    return row_of(view.cluster_version)


def known_cluster_version(catalog: int, machine: int) -> int:
    """Return the newest cluster version that a node knows, by what it has announced."""
    known = [row for row in CLUSTER_VERSIONS if row.catalog <= catalog and row.machine <= machine]
    return known[-1].version if known else 0


def is_empty(view: CatalogView) -> bool:
    """Return whether a cluster holds nothing yet that an older release would have to take over."""
    return not view.queues() and len(view.vhosts()) <= 1


def too_old(node: Node, catalog: int, machine: int, version: int) -> str:
    """Return the reason why a node cannot be in a cluster of a version, "" if it can."""
    if known_cluster_version(catalog, machine) >= version:
        return ""
    return (
        f"node '{node.name}' runs a release that is too old for this cluster, whose version is "
        f"{version}: start it with a release as new as its peers'"
    )
