"""A single message that is published for people."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import Resolution, Routing
from headrace_broker.flow.blocked import BlockedState
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.contract.traffic import ExchangeTraffic
from headrace_broker.runtime.inspect.publish_service import PublishService
from headrace_broker.runtime.routing.router import Route


class Routes:
    """A broker that has come to know of all bindings, and refuses what its routes cost."""

    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.caught_up = 0
        self.blocked = BlockedState()
        self.router = self

    async def catch_up(self) -> None:
        self.caught_up += 1

    def route(self, vhost: str, raw_route: bytes) -> Route:
        return Route("x", "k", self.resolution, (), ExchangeTraffic())


def test_a_route_that_costs_too_much_is_refused() -> None:
    routing = Routing()
    routing.add_exchange(Exchange("/", "x", "fanout"))
    for number in range(10):
        routing.add_exchange(Exchange("/", f"x{number}", "topic"))
        routing.add_binding(Binding("/", "x", "exchange", f"x{number}", ""))
    subject = Subject(["k"])
    subject.work_max = 50
    routes: Any = Routes(routing.resolve("/", "x", subject))
    with pytest.raises(AmqpError, match="takes more than 524288 steps") as refused:
        asyncio.run(PublishService(routes).publish("/", b"\x01x\x01k", b"\0\0", b"", "guest"))
    assert refused.value.code == PRECONDITION_FAILED
    assert routes.caught_up == 1
