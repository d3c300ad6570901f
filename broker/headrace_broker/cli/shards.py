"""The processes of a node that has several: started, watched, restarted and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Final

from headrace_broker.logs.log_event import SHARD_ENDED, SHARD_HANGS, log_event
from headrace_broker.model.shard import shard_name

# Exit status of a process whose configuration is refused, or whose data or address another one
# has; sysexits.h.
REFUSED: Final = 78
NOT_STARTED: Final = 127  # in place of the exit status of a process that could not be started
RESTART_S_MIN: Final = 1.0  # before a process that ended is started again; twice as long each time
RESTART_S_MAX: Final = (
    30.0  # the longest pause; a process that ran for longer begins with the least
)
HEARTBEAT_S: Final = 1.0  # between two heartbeats of a process that serves
SILENCE_S_MAX: Final = 20.0  # without one, until it is killed; a pod's probes give up after 30
STOP_S_MAX: Final = 60.0  # after which a process that hangs is killed; ordinary ones need a third
ADDRESS_S_MAX: Final = 5.0  # for an address to be free, as after a kill of a node
ADDRESS_LOOK_S: Final = 0.1  # between two looks
_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG, prctl(2)

logger = logging.getLogger("headrace.node")


def end_with(supervisor: int) -> None:
    """Ask the kernel to kill this process when its supervisor (a pid) ends, however it does."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != supervisor:  # it ended before
        sys.exit(1)


def _heartbeats(file: int) -> memoryview:
    """Map the processes' heartbeats: a counter for each, 0 while it does not serve."""
    return memoryview(mmap.mmap(file, 0)).cast("Q")


async def beat(file: int, shard: int, serving: asyncio.Event) -> None:
    """Count a process's heartbeats from the time on that it serves, until cancelled.

    The last count stands then: a process that hangs at its end is killed as well.

    Args:
        file: descriptor that the supervisor handed on.
        shard: number of the process.
        serving: set when it serves; what comes before may take the event loop as long as it needs.
    """
    counts = _heartbeats(file)
    counts[shard] = 0
    await serving.wait()
    while True:
        counts[shard] += 1
        await asyncio.sleep(HEARTBEAT_S)


def check_unshared(host: str, port: int) -> None:
    """Refuse an address at which others accept: with `SO_REUSEPORT` they would share clients.

    One that does not resolve, or that cannot be bound for another reason, is left to those who
    will bind it.

    Raises:
        OSError: it is in use still after ADDRESS_S_MAX, as by a node that was killed just now.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        return
    until = time.monotonic() + ADDRESS_S_MAX
    for family, _, _, _, address in found:
        while True:
            try:
                socket.create_server((str(address[0]), port), family=family).close()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    break
                if time.monotonic() > until:
                    text = f"{host}:{port} is in use, maybe by another node"
                    raise OSError(error.errno, text) from error
                time.sleep(ADDRESS_LOOK_S)
            else:
                break


class ShardSupervisor:
    """Keeps the processes of a node running.

    Args:
        node: name of the node.
        command: starts a process; `--supervisor PID --heartbeats FILE --shards COUNT --shard
            NUMBER` is added.
        count: number of processes.
    """

    def __init__(self, node: str, command: Sequence[str], count: int) -> None:
        self._node = node
        self._file = os.memfd_create("heartbeats")
        os.truncate(self._file, count * 8)
        self._heartbeats = _heartbeats(self._file)
        watched = ("--supervisor", str(os.getpid()), "--heartbeats", str(self._file))
        self._command = (*command, *watched, "--shards", str(count), "--shard")
        self._count = count
        self._stop = asyncio.Event()
        self._refused = False
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Keep all of them running until SIGTERM or SIGINT.

        SIGHUP is passed on. A process that ends by itself is started again, alone; but one that
        ends as REFUSED at its first start ends them all. One that serves and gives no heartbeat
        for SILENCE_S_MAX is killed, for its listeners still get connections.

        Returns:
            The exit status, when the last has ended.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._send, signal.SIGHUP)
        async with asyncio.TaskGroup() as group:
            for shard in range(self._count):
                group.create_task(self._keep(shard), name=f"shard {shard}")
        return int(self._refused)

    def _end(self) -> None:
        self._stop.set()
        self._send(signal.SIGTERM)
        asyncio.get_running_loop().call_later(STOP_S_MAX, self._send, signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, shard: int) -> None:
        loop = asyncio.get_running_loop()
        pause = RESTART_S_MIN
        is_first = True
        while not self._stop.is_set():
            began = loop.time()
            status = await self._live(shard)
            if self._stop.is_set():
                return
            if status == REFUSED and is_first:
                self._refused = True
                self._end()
                return
            is_first = False
            if loop.time() - began > RESTART_S_MAX:
                pause = RESTART_S_MIN
            name = shard_name(self._node, shard)
            log_event(logger, SHARD_ENDED, node=name, status=status, pause_s=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(2 * pause, RESTART_S_MAX)

    async def _live(self, shard: int) -> int:
        """Start a process, wait for its end, and return its exit status, less than 0 for a signal.

        It is NOT_STARTED where the system lacks memory or processes for it.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(shard), stdin=asyncio.subprocess.DEVNULL, pass_fds=(self._file,)
            )
        except OSError as error:
            logger.error("process %s cannot be started: %s", shard_name(self._node, shard), error)
            return NOT_STARTED
        self._running[shard] = process
        if self._stop.is_set():
            self._send(signal.SIGTERM)
        watching = asyncio.create_task(self._watch(shard, process), name=f"watch shard {shard}")
        status = await process.wait()
        watching.cancel()
        self._heartbeats[shard] = 0
        del self._running[shard]
        return status

    async def _watch(self, shard: int, process: asyncio.subprocess.Process) -> None:
        """Kill the process of a shard once it is silent for SILENCE_S_MAX.

        Looks are counted, not time: silence does not count on a host that sleeps.
        """
        silence = 0.0
        heard = 0
        while silence < SILENCE_S_MAX:
            await asyncio.sleep(HEARTBEAT_S)
            count = self._heartbeats[shard]
            silence = silence + HEARTBEAT_S if count == heard and count else 0.0
            heard = count
        log_event(logger, SHARD_HANGS, node=shard_name(self._node, shard), silence_s=silence)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
