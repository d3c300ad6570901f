"""A node's looks at itself, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.config.telemetry import TelemetrySection
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.telemetry import telemetry as module
from headrace_broker.runtime.telemetry.telemetry import Telemetry


@pytest.fixture
def make_telemetry(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Telemetry]:
    """Telemetry that looks all the time, at nothing."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(Telemetry, "_make_takers", lambda self: None)
    sources: Any = SimpleNamespace(node="n1", ledger=Ledger(FlowLimits()))
    around: Any = SimpleNamespace(
        data_dir=str(tmp_path), address="", rpc=Rpc(1, lambda peer, data: False), names={1: "n1"}
    )
    return lambda: Telemetry(TelemetrySection(), sources, around)


def test_a_look_that_fails_takes_nothing_but_itself(
    make_telemetry: Callable[[], Telemetry],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = 0
    enough = asyncio.Event()

    async def look(self: Telemetry, lag_ms: int) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            enough.set()
        if looks < 4:
            raise OverflowError("int too big to convert")

    monkeypatch.setattr(Telemetry, "_note_now", look)

    async def scenario() -> None:
        telemetry = make_telemetry()
        await telemetry.start()
        await enough.wait()
        await telemetry.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert looks > 5  # the last one is that of the stop
    assert [record.message for record in caplog.records] == ["telemetry sample lost"]


def test_a_stop_lets_the_look_end_that_is_under_way(
    make_telemetry: Callable[[], Telemetry], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = asyncio.Event(), 0

    async def look(self: Telemetry, lag_ms: int) -> None:
        nonlocal ended
        begun.set()
        for _ in range(20):
            await asyncio.sleep(0.001)
        ended += 1

    monkeypatch.setattr(Telemetry, "_note_now", look)

    async def scenario() -> None:
        telemetry = make_telemetry()
        await telemetry.start()
        await begun.wait()
        await telemetry.stop()

    asyncio.run(scenario())
    assert ended == 2
