"""Samples, latencies and faults of a soak: the report's only input."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

DOWN: Final = "node down"
CLOCK: Final = "clock step"
LINK: Final = "slow link"
BACKUP: Final = "backup"
FAULTS: Final = (DOWN, CLOCK, LINK, BACKUP)


class NodeSample(msgspec.Struct, frozen=True):
    """A node's process and data at one time."""

    at: float  # seconds since the load began
    node: str
    pid: int  # another one after a restart
    resident_bytes: int
    descriptors: int
    store_bytes: int  # allocated on disk


class Latency(msgspec.Struct, frozen=True):
    """One publish of the healthy client."""

    at: float  # seconds since the load began, when it was due
    seconds: float  # from then until the confirm, or until the client gave up
    confirmed: bool


class Probe(msgspec.Struct, frozen=True):
    """One small write and sync beside the nodes' data, made by no node."""

    at: float  # seconds since the load began
    seconds: float


class Interval(msgspec.Struct, frozen=True):
    """A fault, or a backup, in force."""

    kind: str  # one of FAULTS
    what: str
    begin: float
    end: float


class Recording(msgspec.Struct):
    """Everything of one soak. Lists are appended to by several threads, whole items at a time."""

    command: str
    queues: int = 0
    duration: float = 0.0  # seconds under load
    samples: list[NodeSample] = []
    latencies: list[Latency] = []
    intervals: list[Interval] = []
    confirmed: int = 0  # messages of the healthy client
    missing: int = 0  # of those, how many never came back
    invented: int = 0  # messages delivered that it never published
    visits: int = 0  # messages that walkers published and got confirmed
    backups_failed: list[str] = []
    problems: list[str] = []  # lines of logs that no fault excuses, nodes that ended, ...
    probes: list[Probe] = []

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_bytes(msgspec.json.encode(self))

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read what `save` wrote."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
