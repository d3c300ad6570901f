"""A broker with one queue, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.client.fake_broker import FakeBroker

from headrace_client.loop_thread import SHARED
from headrace_pipeline.options import reach

new_broker: Any = FakeBroker  # its methods are made at run time


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A broker in the clients' own loop, since gRPC does not like two; clients end with it."""
    thread = SHARED.acquire()
    clients: dict[Any, Any] = {}
    monkeypatch.setattr(reach, "_clients", clients)
    try:

        async def start() -> Any:
            return await new_broker().start()

        broker = thread.run(start())
        yield broker
        for client in clients.values():
            client.close()
        thread.run(broker.stop())
    finally:
        SHARED.release()
