"""Rows of nodes from those of their processes: `model/shard.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headrace_broker.management.view.view import ShardView
from headrace_broker.model.shard import node_name
from headrace_broker.model.stats import NODE_OWN_FIGURES

_SAME: Final = frozenset({"mem_used", "disk_free"})  # measured of the node by each process
_SUMMED: Final = ("fd_total", "sockets_total", "proc_total", "gc_num", "context_switches")
_FIGURES: Final = tuple(name for name in NODE_OWN_FIGURES if name not in _SAME)
_SHOWN: Final = tuple(ShardView.__annotations__)


def merge_nodes(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each node, in order of its first process.

    Args:
        rows: of processes, in order of ids: of GET /api/nodes, or shorter ones of the overview.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(node_name(row["name"]), []).append(row)
    return [_merged(name, group) for name, group in groups.items()]


def _merged(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first process's row with what the others have besides."""
    found: dict[str, Any] = {}
    for row in reversed(rows):  # what the first one does not tell, another one does
        found |= row
    found["name"] = name
    found["shards"] = [{key: row[key] for key in _SHOWN if key in row} for row in rows]
    found["running"] = any(row["running"] for row in rows)
    found["being_drained"] = all(row["being_drained"] for row in rows)
    for key in {"catalog", "quarantined"} & found.keys():
        found[key] = [each for row in rows for each in row.get(key, ())]
    telling = [row for row in rows if "os_pid" in row]
    if not telling:
        return found
    found["loop_lag_ms"] = max(row["loop_lag_ms"] for row in telling)
    for key in (*_SUMMED, *_FIGURES):
        found[key] = sum(row[key] for row in telling)
    for figure in _FIGURES:
        key = f"{figure}_details"
        found[key] = {"rate": round(sum(row[key]["rate"] for row in telling), 2)}
    return found
