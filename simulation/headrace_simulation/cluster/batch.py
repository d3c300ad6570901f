"""Runs of many seeds, each in a process of its own that ends with it."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Final

from headrace_simulation.cluster.profiles import Profile, profile_of
from headrace_simulation.cluster.run import Outcome, Run
from headrace_simulation.cluster.software import HEAD, Software

RELEASES: Final[list[Software]] = []  # that nodes run beside the head, the oldest first
CPU_S_MAX: Final = 120  # for one seed; a simulation that does not end is one that failed


def run_one(seed: int, profile: str, show: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed in this process, which is of no use afterwards."""
    gc.disable()  # nothing ends by garbage collection, so that no run depends on when that comes
    if show is None:
        logging.disable(logging.CRITICAL)
    chosen = profile_of(seed, profile)
    return Run(seed, chosen, _builds(seed, chosen), show).run()


def _builds(seed: int, chosen: Profile) -> tuple[Software, ...]:
    """Return what nodes of a run may run; end the command where that was not given to it."""
    if not chosen.versions:
        return (HEAD,)
    if not RELEASES:
        sys.exit(f"seed {seed} is of profile '{chosen.name}', which needs --release")
    return (*RELEASES, HEAD)


def run_many(runs: Iterator[tuple[int, str]], jobs: int) -> Iterator[Outcome]:
    """Run seeds with profiles in child processes, several at once; outcomes come when ready."""
    running: dict[int, tuple[int, str, int]] = {}  # by descriptor: seed, profile and process
    left = True
    while left or running:
        while left and len(running) < jobs:
            run = next(runs, None)
            if run is None:
                left = False
                break
            fd, pid = _begin(*run)
            running[fd] = (*run, pid)
        if not running:
            return
        ready, _, _ = select.select(list(running), [], [])
        for fd in ready:
            yield _finish(fd, *running.pop(fd))


def _begin(seed: int, profile: str) -> tuple[int, int]:
    """Fork a process for a seed; return where its outcome comes, and its id."""
    _builds(seed, profile_of(seed, profile))
    sys.stdout.flush()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return reading, pid
    os.close(reading)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    try:
        data = json.dumps(asdict(run_one(seed, profile))).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _finish(fd: int, seed: int, profile: str, pid: int) -> Outcome:
    parts: list[bytes] = []
    while part := os.read(fd, 1 << 16):
        parts.append(part)
    os.close(fd)
    os.waitpid(pid, 0)
    text = b"".join(parts)
    if not text:
        return Outcome(seed, profile, f"its process has ended; it has {CPU_S_MAX} s of a processor")
    return Outcome(**json.loads(text))
