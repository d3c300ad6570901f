"""Time, threads, network and disk of a simulated world, without production code."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from headrace_simulation.cluster import stdlib
from headrace_simulation.cluster.disk import VirtualDisk
from headrace_simulation.cluster.machine import Machine
from headrace_simulation.cluster.network import Network
from headrace_simulation.cluster.process import Process
from headrace_simulation.cluster.world import NS, World


class Lab:
    """A world with a network; programs note what they see."""

    def __init__(self) -> None:
        self.world = World(1)
        stdlib.enter(self.world)
        self.network = Network(self.world)
        self.seen: list[Any] = []
        self.failures: list[BaseException] = []

    def machine(
        self, host: str, program: Callable[[Process], Coroutine[Any, Any, None]]
    ) -> Machine:
        made = Machine(self.world, self.network, host, program)
        made.on_failure = lambda where, error: self.failures.append(error)
        made.start()
        return made

    def run(self, seconds: float) -> None:
        self.world.run(seconds)
        assert self.failures == []

    def seconds(self) -> float:
        return self.world.now_ns / NS


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    stdlib.Current.world = None
    asyncio._set_running_loop(None)


class Receiver(asyncio.Protocol):
    """Notes what comes."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def data_received(self, data: bytes) -> None:
        self._lab.seen.append((round(self._lab.seconds(), 2), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lab.seen.append((round(self._lab.seconds(), 2), exc))


def serve(lab: Lab) -> Callable[[Process], Coroutine[Any, Any, None]]:
    async def program(process: Process) -> None:
        loop: Any = asyncio.get_running_loop()
        loop.accept_all(lab.network.listen(process, process.host, 1), lambda: Receiver(lab))
        await asyncio.sleep(1000)

    return program


def call(lab: Lab, timeout_s: float = 900.0) -> Callable[[Process], Coroutine[Any, Any, None]]:
    """Connect, and send a number each second."""

    async def program(process: Process) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.1)
        transport, _ = await loop.create_connection(lambda: Receiver(lab), "b", 1)
        transport.get_extra_info("socket").setsockopt(6, 18, int(timeout_s * 1000))
        for number in range(100):
            transport.write(b"%d" % number)
            await asyncio.sleep(1)

    return program


def test_time_passes_only_as_far_as_something_waits_for_it(lab: Lab) -> None:
    async def program(process: Process) -> None:
        await asyncio.sleep(3600)
        lab.seen.append(await asyncio.to_thread(lambda: round(lab.seconds())))

    lab.machine("a", program)
    lab.run(4000)
    assert lab.seen == [3600]
    assert lab.world.turns < 100


def test_clock_that_goes_fast_lets_timers_end_early(lab: Lab) -> None:
    async def program(process: Process) -> None:
        process.clock.set_rate(2.0)
        await asyncio.sleep(10)
        lab.seen.append(round(lab.seconds()))

    lab.machine("a", program)
    lab.run(20)
    assert lab.seen == [5]


def test_paused_process_goes_on_where_it_was(lab: Lab) -> None:
    async def program(process: Process) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            lab.seen.append(round(lab.seconds()))

    machine = lab.machine("a", program)
    lab.run(1.5)
    machine.pause()
    lab.run(10)
    assert lab.seen == [1]
    machine.resume()
    lab.run(10)
    assert lab.seen == [1, 12, 13]


def test_killed_process_does_nothing_more_and_its_peer_hears_the_end(lab: Lab) -> None:
    lab.machine("b", serve(lab))
    caller = lab.machine("a", call(lab))
    lab.run(1.5)
    caller.kill()
    lab.run(5)
    assert [data for _, data in lab.seen] == [b"0", b"1", None]


def test_peer_of_a_machine_without_power_hears_nothing(lab: Lab) -> None:
    server = lab.machine("b", serve(lab))
    lab.machine("a", call(lab, timeout_s=4.0))
    lab.run(1.5)
    server.kill(power=True)
    lab.run(2)
    assert [data for _, data in lab.seen] == [b"0", b"1"]
    lab.run(10)
    error = lab.seen[-1][1]
    assert isinstance(error, OSError)
    assert error.errno == errno.ETIMEDOUT


def test_machine_that_is_back_knows_nothing_of_its_connections(lab: Lab) -> None:
    server = lab.machine("b", serve(lab))
    lab.machine("a", call(lab))
    lab.run(1.5)
    server.kill(power=True)
    lab.run(2)
    server.start()
    lab.run(5)
    assert isinstance(lab.seen[-1][1], ConnectionResetError)


def test_cut_link_delivers_later_in_order(lab: Lab) -> None:
    lab.machine("b", serve(lab))
    lab.machine("a", call(lab))
    lab.run(0.5)
    lab.network.link("a", "b").cut()
    lab.run(4)
    assert lab.seen == [(0.1, b"0")]
    lab.network.link("a", "b").heal()
    lab.run(2)
    assert b"".join(data for _, data in lab.seen).startswith(b"012345")


def test_segment_of_a_link_that_gets_faster_overtakes_none(lab: Lab) -> None:
    lab.machine("b", serve(lab))
    lab.machine("a", call(lab))
    lab.run(0.5)
    link = lab.network.link("a", "b")
    link.delay_ns = int(2.5 * NS)
    lab.run(2)
    assert lab.seen == [(0.1, b"0")]
    link.delay_ns = NS // 1000
    lab.run(3)
    assert b"".join(data for _, data in lab.seen).startswith(b"01234")


def test_one_way_cut_lets_bytes_through_that_nobody_acknowledges(lab: Lab) -> None:
    lab.machine("b", serve(lab))
    lab.machine("a", call(lab, timeout_s=4.0))
    lab.run(0.5)
    lab.network.link("b", "a").cut()
    lab.run(3)
    assert [data for _, data in lab.seen] == [b"0", b"1", b"2", b"3"]
    lab.run(10)
    assert any(isinstance(data, TimeoutError) for _, data in lab.seen)


def test_disk_keeps_what_was_synced(lab: Lab) -> None:
    disk = VirtualDisk(lab.world, "a")
    for name, synced in (("/d/kept", True), ("/d/lost", False)):
        fd = disk.create(name)
        disk.write(fd, b"x", 0)
        if synced:
            disk.sync(fd)
    disk.sync_directory("/d")
    disk.lies = True
    disk.write(disk.open("/d/kept", write=True), b"y", 0)
    disk.sync(disk.open("/d/kept"))
    outcomes = set()
    for seed in range(20):
        copy = VirtualDisk(World(seed), "a")
        copy.place(dict(disk.synced_names), [])
        copy.lose_power()
        outcomes.add((copy.copy()["/d/kept"], copy.copy()["/d/lost"]))
    assert {kept for kept, _ in outcomes} == {b"x", b"y"}
    assert {lost for _, lost in outcomes} == {b"", b"x"}


def test_hung_disk_holds_the_thread_that_calls_it(lab: Lab) -> None:
    async def program(process: Process) -> None:
        files: Any = process.disk
        await asyncio.to_thread(files.create, "/d/file")
        lab.seen.append(round(lab.seconds()))

    machine = Machine(lab.world, lab.network, "a", program)
    machine.disk.is_hung = True
    machine.start()
    lab.run(7)
    assert lab.seen == []
    machine.disk.is_hung = False
    lab.run(1)
    assert lab.seen == [7]
