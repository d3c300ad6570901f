"""A simulated process: its threads, clock, disk and place in the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, final

from greenlet import greenlet

from headrace_simulation.cluster.network import Endpoint, Network
from headrace_simulation.cluster.world import NS, US, World

WALL_NS: Final = 1_790_000_000 * NS  # wall-clock time at which worlds begin
BOOT_NS: Final = 5_000 * NS  # what monotonic clocks show then


@final
class Clock:
    """A machine's clocks: monotonic at a rate of its own, wall-clock time besides with jumps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rate = 1.0
        self._since_ns = 0
        self._monotonic_ns = BOOT_NS  # at that time of the world
        self._wall_ns = WALL_NS - BOOT_NS

    def monotonic_ns(self) -> int:
        """Return the monotonic clock."""
        passed = self._world.now_ns - self._since_ns
        if self._rate == 1.0:
            return self._monotonic_ns + passed
        return self._monotonic_ns + int(passed * self._rate)

    def time_ns(self) -> int:
        """Return wall-clock time."""
        return self.monotonic_ns() + self._wall_ns

    def world_ns(self, seconds: float) -> int:
        """Return how much of the world's time passes with seconds of this clock."""
        return int(seconds / self._rate * NS) + US

    def set_rate(self, rate: float) -> None:
        """Go faster or slower than the world from now on; blocked threads keep their time."""
        self._monotonic_ns = self.monotonic_ns()
        self._since_ns = self._world.now_ns
        self._rate = rate

    def jump(self, seconds: float) -> None:
        """Set wall-clock time forward, or back."""
        self._wall_ns += int(seconds * NS)


class Disk(Protocol):
    """The disk of a machine, as its processes end."""

    def release(self, process: Any) -> None:
        """Close what a process that ended had open."""


@final
class Process:
    """One process on a host of the network."""

    def __init__(
        self, world: World, name: str, network: Network, host: str, disk: Disk, clock: Clock
    ) -> None:
        self.world = world
        self.name = name
        self.network = network
        self.host = host
        self.disk = disk
        self.clock = clock  # of its machine
        self.is_alive = True
        self.is_paused = False
        self.threads: dict[VirtualThread, None] = {}
        self.deferred: list[Callable[[], object]] = []  # what goes on after a pause
        self.sockets: dict[Endpoint, None] = {}  # open here
        # called when a thread or a callback of it raised what nobody caught
        self.on_failure: Callable[[str, BaseException], object] = lambda where, error: None

    def spawn(self, name: str, work: Callable[[], object]) -> VirtualThread:
        """Start a thread."""
        thread = VirtualThread(self, name, work)
        thread.start()
        return thread

    def note(self, text: str) -> None:
        """Note an event of this process in the trace."""
        self.world.trace.note(self.name, text)

    def failed(self, where: str, error: BaseException) -> None:
        """Report an error that nobody caught."""
        self.note(f"{where} failed: {error!r}")
        self.on_failure(where, error)

    def pause(self) -> None:
        """Stop all threads, as SIGSTOP does; the kernel goes on taking what the network brings."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on after a pause."""
        self.is_paused = False
        deferred, self.deferred = self.deferred, []
        for each in deferred:
            self.world.at(0, each)

    def die(self, *, power: bool) -> None:
        """End at once: killed, so that the kernel closes its sockets; or by a loss of power."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.world.dead.append((self, list(self.threads)))
        for socket in list(self.sockets):
            socket.vanish() if power else socket.close()
        self.disk.release(self)


@final
class VirtualThread:
    """A thread of a simulated process."""

    def __init__(self, process: Process, name: str, work: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.loop: Any = None  # that runs in it
        self.is_done = False
        self.on_done: list[Callable[[], object]] = []
        self.context = greenlet(self._run, process.world.hub)
        self._work = work
        self.turn = 1
        self._may_wake = False

    def start(self) -> None:
        """Begin, in a turn of its own."""
        self.process.threads[self] = None
        self._resume_at(0, woken=True)

    def _run(self, woken: bool) -> None:
        del woken
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  (outermost: ends the process)
            self.process.failed(f"thread {self.name}", error)
        self.is_done = True
        self.process.threads.pop(self, None)
        for each in self.on_done:
            each()

    def block(self, seconds: float | None, *, may_wake: bool = True) -> bool:
        """Wait; to be called in the thread.

        Args:
            seconds: of the process's clock, at most; None: until woken.
            may_wake: whether `wake` ends it.

        Returns:
            Whether it was woken.
        """
        world = self.process.world
        if seconds is not None:
            delay_ns = self.process.clock.world_ns(seconds)
            if world.skip(delay_ns):
                return False
        self.turn += 1
        self._may_wake = may_wake
        if seconds is not None:
            self._resume_at(delay_ns, woken=False)
        return world.leave()

    def wake(self) -> None:
        """End `block`; nothing happens where the thread does not wait for that."""
        if self._may_wake:
            self._may_wake = False
            self._resume_at(0, woken=True)

    def _resume_at(self, delay_ns: int, *, woken: bool) -> None:
        turn = self.turn
        self.process.world.resume_at(delay_ns, self, turn if woken else -turn)

    def resume(self, turn: int) -> None:
        """Go on after `block`, if this was not done since; `turn` is negative for a time-out."""
        process = self.process
        if abs(turn) != self.turn or not process.is_alive or self.is_done:
            return
        if process.is_paused:
            process.deferred.append(lambda: self.resume(turn))
            return
        self.turn += 1
        self._may_wake = False
        process.world.enter(self, turn > 0)
