"""Machines of a simulated cluster: a clock, a disk, and a process that runs on them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, final

from headrace_simulation.cluster.disk import VirtualDisk
from headrace_simulation.cluster.loop import VirtualLoop
from headrace_simulation.cluster.network import Network
from headrace_simulation.cluster.process import Clock, Process
from headrace_simulation.cluster.world import World

Program = Callable[[Process], Coroutine[Any, Any, None]]


@final
class Machine:
    """One machine, on which one program is started again and again.

    Several programs on one machine have a `Machine` each, with the same host, clock and disk.

    Args:
        world: that it is in.
        network: that its host is in.
        host: its name there.
        program: what is started.
        name: of the process, as the host where nothing is said.
        beside: another program on the same machine.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        host: str,
        program: Program,
        name: str = "",
        beside: Machine | None = None,
    ) -> None:
        self.world = world
        self.network = network
        self.host = host
        self.program = program
        self.name = name or host
        self.clock: Clock = Clock(world) if beside is None else beside.clock
        self.disk: VirtualDisk = VirtualDisk(world, host) if beside is None else beside.disk
        self.process: Process | None = None
        self.loop: VirtualLoop | None = None
        self.starts = 0
        self.on_failure: Callable[[str, BaseException], object] = lambda where, error: None

    @property
    def is_running(self) -> bool:
        """True while a process lives, paused or not."""
        return self.process is not None

    def start(self) -> None:
        """Start the program, unless it runs."""
        if self.process is not None:
            return
        self.network.power_on(self.host)
        self.starts += 1
        process = Process(self.world, self.name, self.network, self.host, self.disk, self.clock)
        process.on_failure = self.on_failure
        self.process = process
        process.note("starts")
        process.spawn("main", lambda: self._main(process))

    def _main(self, process: Process) -> None:
        loop = self.loop = VirtualLoop(process)
        loop.call_soon(lambda: loop.create_task(self._run(process)))
        loop.drive()

    async def _run(self, process: Process) -> None:
        try:
            await self.program(process)
        except Exception as error:  # noqa: BLE001  (outermost: the process would end)
            process.failed("program", error)

    def call(self, action: Callable[[], object]) -> None:
        """Call a function in the loop of the process, if there is one."""
        if self.process is not None and self.loop is not None:
            self.loop.call_soon_threadsafe(action)

    def kill(self, *, power: bool = False) -> None:
        """End the process at once: killed, or with the power of the machine, which all lose."""
        process = self.process
        if process is None:
            return
        process.note("power lost" if power else "killed")
        if power:
            self.network.power_off(self.host)
        process.die(power=power)
        if power:
            self.disk.lose_power()
        self.process = self.loop = None

    def pause(self) -> None:
        """Stop the process for a time."""
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """Go on after a pause."""
        if self.process is not None and self.process.is_paused:
            self.process.resume()
