"""Samples of the nodes' processes and data, and of the disk below them, each in its thread."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.chaos.cluster import ChaosNode
from e2e.harness.worker import Worker
from e2e.soak.recording import NodeSample, Probe, Recording

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES: Final = 512  # the unit of st_blocks
PROBE_BYTES: Final = 512
PROBE_INTERVAL: Final = 0.25  # seconds


class Sampler(Worker):
    """Samples all running nodes every `interval` seconds until told to stop."""

    def __init__(
        self, nodes: Sequence[ChaosNode], recording: Recording, begun: float, interval: float
    ) -> None:
        super().__init__("sampler")
        self._nodes = nodes
        self._recording = recording
        self._begun = begun
        self._interval = interval

    def work(self) -> None:
        """Sample."""
        while not self._halt.wait(self._interval):
            for node in self._nodes:
                found = sample(node, time.monotonic() - self._begun)
                if found is not None:
                    self._recording.samples.append(found)


class SyncProbe(Worker):
    """Writes and syncs a few bytes again and again: the host's part of what a confirm takes."""

    def __init__(self, directory: Path, recording: Recording, begun: float) -> None:
        super().__init__("sync probe")
        self._path = directory / "probe"
        self._recording = recording
        self._begun = begun

    def work(self) -> None:
        """Write and sync at a fixed pace."""
        with self._path.open("wb", buffering=0) as file:
            while not self._halt.wait(PROBE_INTERVAL):
                began = time.monotonic()
                os.pwrite(file.fileno(), bytes(PROBE_BYTES), 0)
                os.fdatasync(file.fileno())
                took = time.monotonic() - began
                self._recording.probes.append(Probe(began - self._begun, took))


def sample(node: ChaosNode, at: float) -> NodeSample | None:
    """Return a node's sample, None when it does not run or has just ended."""
    try:
        pid = node.pid
        process = Path(f"/proc/{pid}")
        resident = int((process / "statm").read_text().split()[1]) * PAGE_BYTES
        if resident == 0:  # it has ended, and its parent has not seen it yet
            return None
        handles = len(os.listdir(process / "fd"))
        return NodeSample(at, node.name, pid, resident, handles, stored_bytes(node.store))
    except (AssertionError, OSError):  # it was killed in between
        return None


def stored_bytes(folder: Path) -> int:
    """Return the bytes that are allocated on disk below a folder."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue  # removed meanwhile
    return total
