"""The event loop of a simulated process: asyncio's own, on virtual time and sockets."""

from __future__ import annotations

import asyncio
import collections
import heapq
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, final

from headrace_simulation.cluster.network import Listener, Socket
from headrace_simulation.cluster.process import Process, VirtualThread
from headrace_simulation.cluster.transport import VirtualTransport

TURN_S: Final = 20e-6  # what a turn of a loop takes, and a callback in it
CALLBACK_S: Final = 3e-6
OWED_S_MAX: Final = 150e-6  # for which turns may be ahead of the world
TIMER_S: Final = 1e-6  # by which timers may be early: the resolution of the clock


@final
class VirtualLoop(asyncio.BaseEventLoop):
    """Runs in a virtual thread: turns, threads and sockets are simulated, the rest is asyncio's."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.callbacks = 0  # run since the start
        self._selecting = False
        super().__init__()
        self._generators: set[AsyncGenerator[Any, Any]] = set()
        self._pools: dict[int, _Pool] = {}
        self.set_exception_handler(self._report)

    def drive(self) -> None:
        """Run until the process ends; to be called in a virtual thread.

        A turn is asyncio's: timers that are due, then what is ready. Turns that follow one another
        share one wait for the time that they take, up to `OWED_S_MAX`: each wait is two switches of
        threads. Where nothing is ready, time passes until something is.
        """
        thread = self.process.world.thread
        assert isinstance(thread, VirtualThread)
        thread.loop = self
        self.process.world.use(self)
        self._thread = thread
        ready: collections.deque[Any] = self._ready  # type: ignore[attr-defined]
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        owed = 0.0
        while True:
            if ready:
                self.callbacks += len(ready)
                owed += TURN_S + CALLBACK_S * len(ready)
                if owed > OWED_S_MAX:
                    thread.block(owed, may_wake=False)
                    owed = 0.0
            else:
                owed = self._wait(timers, owed)
            until = self.time() + TIMER_S
            while timers and (timers[0]._cancelled or timers[0]._when <= until):
                timer = heapq.heappop(timers)
                timer._scheduled = False
                if not timer._cancelled:
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()

    def _wait(self, timers: list[Any], owed: float) -> float:
        """Wait for the next timer, or for what another thread or the network brings.

        Time that turns have taken passes meanwhile; what is left of it is returned.
        """
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        began = self.time()
        self._selecting = True
        if not timers:
            self._thread.block(None)
        elif (left := timers[0]._when - began) > 0:
            self._thread.block(left)
        self._selecting = False
        return max(0.0, began + owed - self.time())

    def time(self) -> float:
        """Return the monotonic clock of the process, in seconds."""
        return self.process.clock.monotonic_ns() / 1e9

    def is_running(self) -> bool:
        """Return True: it begins with its process, and ends with it."""
        return True

    def _write_to_self(self) -> None:
        if self._selecting:
            self._thread.wake()

    def note_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Keep an asynchronous generator that begins, so that none ends by garbage collection."""
        self._generators.add(generator)

    def end_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that was dropped."""
        self._generators.discard(generator)
        self.call_soon_threadsafe(self.create_task, generator.aclose())

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        del loop
        error = context.get("exception") or RuntimeError(str(context.get("message")))
        self.process.failed("callback", error)

    # threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function in a virtual thread; in that of an executor of one's own, in order."""
        future: asyncio.Future[Any] = self.create_future()
        pool = self._pools.setdefault(id(executor) if executor is not None else 0, _Pool(self))
        pool.submit(lambda: self._call(future, func, args), 1 if executor is not None else 0)
        return future

    def _call(self, future: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        try:
            result = func(*args)
        except BaseException as error:  # noqa: BLE001  (goes to whoever waits)
            self.call_soon_threadsafe(_fail, future, error)
        else:
            self.call_soon_threadsafe(_finish, future, result)

    # network

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """Return the host itself."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (str(host), int(port or 0)))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **options: Any
    ) -> tuple[VirtualTransport, Any]:
        """Connect; nothing is encrypted."""
        assert not options.get("ssl")
        connected = self.create_future()
        end = self.process.network.connect(self.process, host, port)
        end.on_connected = lambda error: self.call_soon_threadsafe(_connected, connected, error)
        try:
            await connected
        except BaseException:
            end.close()
            raise
        return await self._begin(end, protocol_factory())

    async def connect_accepted_socket(
        self, protocol_factory: Callable[[], Any], sock: Any, **options: Any
    ) -> tuple[VirtualTransport, Any]:
        """Take over a connection that was accepted."""
        assert not options.get("ssl")
        return await self._begin(sock, protocol_factory())

    async def _begin(self, end: Socket, protocol: Any) -> tuple[VirtualTransport, Any]:
        transport = VirtualTransport(self, end, protocol)
        try:
            await asyncio.sleep(0)  # it has begun then
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call a function when a listening socket has a connection."""
        assert isinstance(fd, Listener)
        fd.on_waiting = lambda: self.call_soon_threadsafe(callback, *args)
        if fd.waiting:
            self.call_soon(callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        """Call it no more."""
        assert isinstance(fd, Listener)
        fd.on_waiting = None
        return True

    def accept_all(self, listener: Listener, protocol_factory: Callable[[], Any]) -> None:
        """Serve each connection of a listening socket with a protocol."""

        def accepted() -> None:
            while listener.waiting:
                end: Socket = listener.accept()[0]
                VirtualTransport(self, end, protocol_factory())

        self.add_reader(listener, accepted)


@final
class _Pool:
    """Virtual threads for functions that block."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()
        self._running = 0

    def submit(self, work: Callable[[], None], threads_max: int) -> None:
        if threads_max and self._running >= threads_max:
            self._waiting.append(work)
            return
        self._running += 1
        self._loop.process.spawn("pool", lambda: self._run(work))

    def _run(self, work: Callable[[], None]) -> None:
        work()
        while self._waiting:
            self._waiting.popleft()()
        self._running -= 1


def _finish(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _connected(future: asyncio.Future[None], error: OSError | None) -> None:
    if error is None:
        _finish(future, None)
    else:
        _fail(future, error)
