"""Faults of the data directory of a node that does not run at that moment."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def wipe(store: Path) -> None:
    """Remove everything, as a disk that was replaced."""
    shutil.rmtree(store, ignore_errors=True)


def expected_member(store: Path, node: int) -> str:
    """Return the member id under which a node on this disk takes part, "" before it has one.

    A disk on which the cluster was founded makes the node's number a member, any other disk is
    named in the id.
    """
    try:
        identity = json.loads((store / "node.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    if not identity["formed"]:
        return ""
    founding = identity["formed"].get(str(node)) == identity["disk"]
    return str(node) if founding else f"{node}.{identity['disk']:x}"
