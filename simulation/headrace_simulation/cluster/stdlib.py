"""Stand-ins for what production code asks of the system: time, threads, randomness, sockets, files.

`install` puts them in the standard library's place, before production modules are imported (some
import functions by name). Where no simulated process runs, the originals do their work. Production
code is not changed, and cannot tell.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import queue
import random
import socket
import struct
import sys
import termios
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

import grpc

from headrace_simulation.cluster.network import Listener, Socket
from headrace_simulation.cluster.process import Process, VirtualThread
from headrace_simulation.cluster.rpc_channel import VirtualChannel
from headrace_simulation.cluster.rpc_server import VirtualServer
from headrace_simulation.cluster.world import World

T = TypeVar("T")

_ORIGINALS: Final[dict[str, Any]] = {
    "monotonic_ns": time.monotonic_ns,
    "time_ns": time.time_ns,
    "clock_gettime_ns": time.clock_gettime_ns,
    "sleep": time.sleep,
    "urandom": os.urandom,
    "scrypt": hashlib.scrypt,
    "Thread": threading.Thread,
    "Condition": threading.Condition,
    "SimpleQueue": queue.SimpleQueue,
    "ioctl": fcntl.ioctl,
    "statvfs": os.statvfs,
    "create_server": socket.create_server,
    "grpc_server": grpc.aio.server,
    "grpc_channel": grpc.aio.insecure_channel,
}


class Current:
    """The world that runs in this process of the system, if any."""

    world: World | None = None
    entropy: random.Random


def process() -> Process | None:
    """Return the simulated process that runs now."""
    world = Current.world
    if world is None or world.thread is None:
        return None
    thread: Any = world.thread
    return cast("Process", thread.process)


def current_thread() -> VirtualThread | None:
    """Return the virtual thread that runs now."""
    return cast("VirtualThread | None", Current.world.thread) if Current.world else None


def enter(world: World) -> None:
    """Let everything that is asked for from now on be of a world."""
    Current.world = world
    Current.entropy = random.Random(world.seed ^ 0x5EED)  # noqa: S311  (a simulation)
    random.seed(world.seed)


# time


def _monotonic_ns() -> int:
    running = process()
    if running is not None:
        return running.clock.monotonic_ns()
    found: int = _ORIGINALS["monotonic_ns"]()
    return found


def _time_ns() -> int:
    running = process()
    if running is not None:
        return running.clock.time_ns()
    found: int = _ORIGINALS["time_ns"]()
    return found


def _clock_gettime_ns(clock: int) -> int:
    running = process()
    if running is None:
        found: int = _ORIGINALS["clock_gettime_ns"](clock)
        return found
    return running.clock.time_ns() if clock == time.CLOCK_REALTIME else _monotonic_ns()


def _monotonic() -> float:
    return _monotonic_ns() / 1e9


def _worked() -> int:
    """Return the processor time of the caller: work takes none in the virtual world."""
    return 0


def _time() -> float:
    return _time_ns() / 1e9


def _sleep(seconds: float) -> None:
    thread = current_thread()
    if thread is not None:
        thread.block(seconds, may_wake=False)
    else:
        _ORIGINALS["sleep"](seconds)


def _urandom(count: int) -> bytes:
    if Current.world is not None:
        return Current.entropy.randbytes(count)
    found: bytes = _ORIGINALS["urandom"](count)
    return found


def _scrypt(password: bytes, **options: Any) -> bytes:
    """Hash at the least cost: each founding would take a tenth of a second of a processor."""
    if process() is not None:
        options |= {"n": 2, "r": 1, "p": 1}
    found: bytes = _ORIGINALS["scrypt"](password, **options)
    return found


# threads


class Thread(threading.Thread):
    """A thread of the system, or a virtual one where a simulated process starts it."""

    _virtual: VirtualThread | None = None

    def start(self) -> None:
        """See `threading.Thread`."""
        running = process()
        if running is None:
            super().start()
        else:
            self._virtual = running.spawn(self.name, self.run)

    def join(self, timeout: float | None = None) -> None:
        """See `threading.Thread`."""
        virtual = self._virtual
        if virtual is None:
            super().join(timeout)
            return
        waiting = current_thread()
        assert waiting is not None
        if not virtual.is_done:
            virtual.on_done.append(waiting.wake)
            waiting.block(timeout)

    def is_alive(self) -> bool:
        """See `threading.Thread`."""
        if self._virtual is not None:
            return not self._virtual.is_done
        return super().is_alive()


class SimpleQueue(Generic[T]):
    """`queue.SimpleQueue` between virtual threads."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[VirtualThread] = deque()

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """See `queue.SimpleQueue`."""
        del block, timeout
        self._items.append(item)
        if self._waiting:
            self._waiting.popleft().wake()

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """See `queue.SimpleQueue`."""
        thread = current_thread()
        while not self._items:
            if not block or thread is None:
                raise queue.Empty
            self._waiting.append(thread)
            woken = thread.block(timeout)
            if not woken:
                if thread in self._waiting:
                    self._waiting.remove(thread)
                if not self._items:
                    raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> T:
        """See `queue.SimpleQueue`."""
        return self.get(block=False)

    def put_nowait(self, item: T) -> None:
        """See `queue.SimpleQueue`."""
        self.put(item)

    def qsize(self) -> int:
        """See `queue.SimpleQueue`."""
        return len(self._items)

    def empty(self) -> bool:
        """See `queue.SimpleQueue`."""
        return not self._items


class Condition:
    """`threading.Condition` between virtual threads, one of which runs at a time.

    Its lock needs no lock: nothing between `with` and its end blocks but `wait`.
    """

    def __new__(cls, lock: Any = None) -> Any:
        """Return one of these, or of `threading` outside of simulated processes."""
        if process() is None:
            return _ORIGINALS["Condition"](lock)
        return super().__new__(cls)

    def __init__(self, lock: Any = None) -> None:
        del lock
        self._waiting: deque[VirtualThread] = deque()

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Condition`."""
        thread = current_thread()
        assert thread is not None
        self._waiting.append(thread)
        woken = thread.block(timeout)
        if thread in self._waiting:
            self._waiting.remove(thread)
        return woken

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """See `threading.Condition`."""
        until = _monotonic() + timeout if timeout is not None else None
        while not (found := predicate()):
            left = until - _monotonic() if until is not None else None
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        """See `threading.Condition`."""
        while n > 0 and self._waiting:
            self._waiting.popleft().wake()
            n -= 1

    def notify_all(self) -> None:
        """See `threading.Condition`."""
        self.notify(len(self._waiting))


# network


class _Space:
    """Free space of a simulated disk, as `os.statvfs` tells it."""

    f_bsize = f_frsize = 4096
    f_blocks = 1 << 24
    f_bfree = f_bavail = 1 << 23


def _statvfs(path: Any) -> Any:
    return _Space if process() is not None else _ORIGINALS["statvfs"](path)


def _ioctl(fd: Any, request: int, arg: Any = 0, mutate_flag: bool = True) -> Any:
    if isinstance(fd, Socket):
        assert request == termios.TIOCOUTQ
        return struct.pack("i", fd.unsent_bytes)
    return _ORIGINALS["ioctl"](fd, request, arg, mutate_flag)


def _create_server(address: tuple[str, int], **options: Any) -> Any:
    running = process()
    if running is None:
        return _ORIGINALS["create_server"](address, **options)
    found: Listener = running.network.listen(running, running.host, address[1])
    return found


def _grpc_server(*args: Any, **options: Any) -> Any:
    running = process()
    if running is None:
        return _ORIGINALS["grpc_server"](*args, **options)
    return VirtualServer(running)


def _grpc_channel(target: str, *args: Any, **options: Any) -> Any:
    running = process()
    if running is None:
        return _ORIGINALS["grpc_channel"](target, *args, **options)
    return VirtualChannel(running, target)


def install() -> None:
    """Put the stand-ins in place; production modules must not be imported yet."""
    early = [
        name for name in sys.modules if name.startswith(("headrace_raftlog", "headrace_broker"))
    ]
    allowed = ("headrace_raftlog", "headrace_raftlog.storage", "headrace_raftlog.storage.disk")
    late = [name for name in early if name not in (*allowed, "headrace_raftlog.storage.disk.files")]
    assert not late, f"imported before the simulation: {late[:3]}"
    patches: list[tuple[Any, str, Any]] = [
        (time, "monotonic_ns", _monotonic_ns),
        (time, "monotonic", _monotonic),
        (time, "perf_counter_ns", _monotonic_ns),
        (time, "perf_counter", _monotonic),
        (time, "time_ns", _time_ns),
        (time, "time", _time),
        (time, "clock_gettime_ns", _clock_gettime_ns),
        (time, "clock_gettime", lambda clock: _clock_gettime_ns(clock) / 1e9),
        (time, "thread_time_ns", _worked),
        (time, "thread_time", _worked),
        (time, "process_time_ns", _worked),
        (time, "process_time", _worked),
        (time, "sleep", _sleep),
        (os, "urandom", _urandom),
        (random, "_urandom", _urandom),
        (hashlib, "scrypt", _scrypt),
        (threading, "Thread", Thread),
        (threading, "Condition", Condition),
        (queue, "SimpleQueue", SimpleQueue),
        (fcntl, "ioctl", _ioctl),
        (os, "statvfs", _statvfs),
        (socket, "create_server", _create_server),
        (grpc.aio, "server", _grpc_server),
        (grpc.aio, "insecure_channel", _grpc_channel),
    ]
    for module, name, stand_in in patches:
        setattr(module, name, stand_in)
