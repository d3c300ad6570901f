"""Runs scenarios of a client and one or two brokers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake_broker import FakeBroker

from headrace_client import Client, backoff

SECONDS = 60
Scenario = Callable[[FakeBroker, Client], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    monkeypatch.setattr(backoff, "BACKOFF_SECONDS_MIN", 0.001)
    monkeypatch.setattr(backoff, "BACKOFF_SECONDS_MAX", 0.01)
    monkeypatch.setattr(backoff.Backoff.__init__, "__defaults__", (0.001, 0.01))


new_broker: Any = FakeBroker  # its methods are made at run time


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(bounded())


@pytest.fixture
def play() -> Callable[[Scenario], None]:
    """Runs a scenario with one broker."""

    async def scene(scenario: Scenario) -> None:
        broker = await new_broker("n1").start()
        try:
            async with await Client.connect(broker.endpoint) as client:
                await scenario(broker, client)
        finally:
            await broker.stop()

    return lambda scenario: run(scene(scenario))


@pytest.fixture
def play_two() -> Callable[..., None]:
    """Runs a scenario with two brokers of which the first is preferred."""

    async def scene(scenario: Any) -> None:
        brokers = [await new_broker(name).start() for name in ("n1", "n2")]
        try:
            async with await Client.connect([each.endpoint for each in brokers]) as client:
                await scenario(*brokers, client)
        finally:
            for each in brokers:
                await each.stop()

    return lambda scenario: run(scene(scenario))
