"""The processes of a node, here small programs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headrace_broker.cli import shards
from headrace_broker.cli.shards import ShardSupervisor

# Writes a line at its start, and one for each signal; ends at SIGTERM.
PROGRAM = """
import os, pathlib, signal, sys
file = pathlib.Path(sys.argv[1], sys.argv[-1])
def note(text):
    with file.open("a") as lines:
        lines.write(f"{text}\\n")
def on_signal(number, frame):
    note(signal.Signals(number).name)
    if number == signal.SIGTERM:
        sys.exit(0)
for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, on_signal)
note(os.getpid())
while True:
    signal.pause()
"""

# Writes its pid; the second process says that it serves, and hangs at SIGUSR1.
HANGING = """
import asyncio, os, pathlib, signal, sys, time
from headrace_broker.cli import shards
async def main():
    loop = asyncio.get_running_loop()
    stop, serving = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, time.sleep, 3600)
    file = int(sys.argv[sys.argv.index("--heartbeats") + 1])
    shards.HEARTBEAT_S = 0.01
    beating = asyncio.create_task(shards.beat(file, int(sys.argv[-1]), serving))
    if sys.argv[-1] == "1":
        serving.set()
        await asyncio.sleep(0.1)
    with pathlib.Path(sys.argv[1], sys.argv[-1]).open("a") as lines:
        lines.write(f"{os.getpid()}\\n")
    await stop.wait()
asyncio.run(main())
"""


class World:
    """A supervisor of two programs that write into a directory."""

    def __init__(self, directory: Path, program: str = PROGRAM) -> None:
        self.directory = directory
        command = [sys.executable, "-c", program, str(directory)]
        self.supervisor = ShardSupervisor("n1", command, 2)

    def lines(self, shard: int) -> list[str]:
        file = self.directory / str(shard)
        return file.read_text().splitlines() if file.exists() else []

    def has_more(self, shard: int, count: int) -> bool:
        return len(self.lines(shard)) > count

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not check():  # noqa: ASYNC110  (a file)
                await asyncio.sleep(0.01)


def test_processes_end_together_and_hear_of_certificates(tmp_path: Path) -> None:
    async def body() -> None:
        world = World(tmp_path)
        running = asyncio.create_task(world.supervisor.run())
        await world.until(lambda: all(world.lines(shard) for shard in range(2)))
        os.kill(os.getpid(), signal.SIGHUP)
        await world.until(lambda: all("SIGHUP" in world.lines(shard) for shard in range(2)))
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        for shard in range(2):
            assert world.lines(shard)[1:] == ["SIGHUP", "SIGTERM"]

    asyncio.run(body())


def test_a_process_that_ends_is_started_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shards, "RESTART_S_MIN", 0.01)

    async def body() -> None:
        world = World(tmp_path)
        running = asyncio.create_task(world.supervisor.run())
        await world.until(lambda: all(world.lines(shard) for shard in range(2)))
        for count in range(1, 4):
            os.kill(int(world.lines(1)[-1]), signal.SIGKILL)
            await world.until(partial(world.has_more, 1, count))
        assert len(world.lines(0)) == 1
        os.kill(os.getpid(), signal.SIGINT)
        await running

    asyncio.run(body())
    ended = [vars(each)["fields"] for each in caplog.records]
    assert [fields["pause_s"] for fields in ended] == [0.01, 0.02, 0.04]
    assert {fields["status"] for fields in ended} == {-signal.SIGKILL}


def test_a_process_that_hangs_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "STOP_S_MAX", 0.2)

    async def body() -> None:
        world = World(tmp_path)
        running = asyncio.create_task(world.supervisor.run())
        await world.until(lambda: all(world.lines(shard) for shard in range(2)))
        os.kill(int(world.lines(1)[0]), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
        assert world.lines(0)[1:] == ["SIGTERM"]

    asyncio.run(body())


def test_a_process_that_hangs_while_it_serves_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shards, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(shards, "SILENCE_S_MAX", 3.0)
    monkeypatch.setattr(shards, "RESTART_S_MIN", 0.01)

    async def body() -> None:
        world = World(tmp_path, HANGING)
        running = asyncio.create_task(world.supervisor.run())
        await world.until(lambda: all(world.lines(shard) for shard in range(2)))
        hanging = int(world.lines(1)[0])
        os.kill(hanging, signal.SIGUSR1)
        await world.until(partial(world.has_more, 1, 1))
        assert len(world.lines(0)) == 1, "it never served: it may take its time"
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0

    asyncio.run(body())
    assert caplog.messages[0].startswith("process n1:1 hangs: ")
    assert caplog.messages[1].startswith("process n1:1 ended by itself with status -9; ")


def test_an_address_at_which_others_accept_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "ADDRESS_S_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port} is in use, maybe by another node"):
            shards.check_unshared("127.0.0.1", port)
    shards.check_unshared("127.0.0.1", port)
    shards.check_unshared("no-such-host.invalid", port)


def test_a_configuration_that_is_refused_at_first_ends_all(tmp_path: Path) -> None:
    program = f"import sys; sys.argv[-1] == '1' and sys.exit({shards.REFUSED})\n{PROGRAM}"

    async def body() -> None:
        command = [sys.executable, "-c", program, str(tmp_path)]
        assert await ShardSupervisor("n1", command, 2).run() == 1

    asyncio.run(body())


def test_a_program_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shards, "RESTART_S_MIN", 0.01)

    async def body() -> None:
        running = asyncio.create_task(ShardSupervisor("n1", [str(tmp_path / "none")], 1).run())
        async with asyncio.timeout(60):
            while len(caplog.records) < 4:  # noqa: ASYNC110  (a log)
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0

    asyncio.run(body())
    assert "process n1 cannot be started: " in caplog.messages[0]
