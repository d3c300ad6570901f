"""Faults of the data directory of a node that does not run at that moment."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SECTOR_BYTES: Final = 512
QUEUES: Final = 3  # that a publisher serves in turn
BODY: Final = re.compile(rb"(publisher-\d+-\d+)-(\d+)/\d+/")  # see history.message_body


def wipe(store: Path) -> None:
    """Remove everything, as a disk that was replaced."""
    shutil.rmtree(store, ignore_errors=True)


def wipe_shard(stores: Sequence[Path], shard: int) -> None:
    """Remove everything of one process of a node, whose disks those of the others are not."""
    others = set(stores) - {stores[shard]}
    for path in stores[shard].iterdir():
        if path not in others:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


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


def keep_copy(store: Path, copy: Path) -> None:
    """Copy everything to a new directory."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)


def put_back(copy: Path, store: Path) -> None:
    """Replace everything by a copy of before, as a restored virtual machine."""
    shutil.rmtree(store)
    copy.rename(store)


def drop_newest_segment(store: Path) -> str:
    """Remove the end of the log with its file; return which."""
    newest = _newest_segment(store)
    newest.unlink()
    return f"{newest.name} removed"


def zero_end(store: Path, sectors: int) -> str:
    """Zero the last sectors that hold anything, as a disk that lied about syncs; return where."""
    newest = _newest_segment(store)
    written = newest.read_bytes().rstrip(b"\0")
    end = -(-len(written) // SECTOR_BYTES) * SECTOR_BYTES
    start = max(end - sectors * SECTOR_BYTES, SECTOR_BYTES)
    with newest.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
        os.fsync(file.fileno())
    return f"{newest.name} zeroed from {start} to {end}"


def _newest_segment(store: Path) -> Path:
    """Return the newest segment with more in it than its header."""
    segments = sorted(store.glob("*.log"))
    return [each for each in segments if each.read_bytes()[SECTOR_BYTES:].strip(b"\0")][-1]


def rot(stores: Sequence[Path], number: int) -> str:
    """Flip a bit in a stored message of the middle of the log; return in which.

    Args:
        stores: of the processes of a node that does not run.
        number: of the queue among those of a publisher; messages of two queues share no record.
    """
    found = [
        (path, match)
        for store in stores
        for path in sorted(store.glob("*.log"))
        for match in BODY.finditer(path.read_bytes())
        if int(match[2]) % QUEUES == number
    ]
    if not found:
        return "nothing stored yet"
    path, match = found[len(found) // 2]
    with path.open("r+b") as file:
        file.seek(match.start())
        file.write(bytes([match[0][0] ^ 4]))
        os.fsync(file.fileno())
    return f"a bit of {match[1].decode()}-{match[2].decode()} in {path.name}"
